"""The events topic as a watch uses it beside its incidents: it sorts the records, and sends its heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch import __version__
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.sinks.delivery.outbox import FailingTarget
from txnwatch.state.incidents.heartbeat import MOST_NAME, MOST_NAMES, Heartbeat, TopicRecord
from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.incidents.speaking import UNHEARD_MS
from txnwatch.state.model.errors import BadEventError, BrokerError, SinkError
from txnwatch.state.model.findings import BucketCount, Finding, ReadLimitReached
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.values import (
    DAY_MS,
    LONG_AGO,
    TRANSACTION_STATE_TOPIC,
    WEEK_MS,
    DurationMs,
    TimestampMs,
    TopicPartition,
    is_log,
    log_numbered,
)
from txnwatch.state.text import printable
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.watch.alerts import any_count
from txnwatch.watch.coverage import MissingEvidence

# Sorts the records of the events topic: events go to the ledger, heartbeats are kept, bad records are counted.

_MOST = 1_000  # instances to keep; anybody who may write to the topic can invent any number
_PAUSE_MS = DurationMs(600_000)
_KEPT_MS = DurationMs(WEEK_MS + DAY_MS)


class HeardBeat(NamedTuple):
    """The last heartbeat of an instance that was read.

    Attributes:
        at_ms: when it was heard by the clock of this process: the two clocks may be minutes apart.
        latest_ms: the latest time in a heartbeat of the instance, and never in the future.
    """

    beat: Heartbeat
    at_ms: TimestampMs
    latest_ms: TimestampMs


@dataclass(slots=True)
class EventListener:
    """The reader of one watch.

    Attributes:
        passed_over: the counter of records that are not events.
        on_heartbeat: called with each heartbeat; if they are signed, not with a copy of an earlier one.
        is_signed: whether each heartbeat is of a watcher that has the key.
        heartbeats: the last heartbeat of each instance, by the record's key.
        history: counts the incidents of the topic for the page; None if there is no page.
    """

    passed_over: SkippedRecords
    on_heartbeat: Callable[[Heartbeat], None] = lambda _: None
    is_signed: bool = False
    heartbeats: dict[str, HeardBeat] = field(default_factory=dict)
    history: IncidentHistory | None = None
    _turn: Every[TimestampMs] = field(default_factory=lambda: Every(_PAUSE_MS))

    def events_of(
        self, records: Iterable[TopicRecord], *, is_history: bool = False
    ) -> Iterator[IncidentEvent | Overwritten]:
        """Yields what the ledger needs: events, and incidents whose record a bad record has overwritten.

        A heartbeat of the topic's history was not heard now, but when it was written.
        """
        for record in records:
            if self.history is not None:
                self.history.take(record)
            if isinstance(record, BadEventError):
                self.passed_over.take(record)
                if record.key is not None:
                    yield Overwritten(record.key)
            elif isinstance(record, Heartbeat):
                self._hear(record, is_history=is_history)
            else:
                yield record
        self.passed_over.report_when_due()

    def _hear(self, beat: Heartbeat, *, is_history: bool) -> None:
        """Takes a heartbeat. A signature stays valid, so anyone who may write the topic can write a copy of it."""
        now_ms, last = self.passed_over.now_ms(), self.heartbeats.pop(beat.key, None)
        written_ms, latest_ms = min(now_ms, beat.time_ms), last.latest_ms if last is not None else LONG_AGO
        at_ms = written_ms if is_history else now_ms
        self.heartbeats[beat.key] = HeardBeat(beat, at_ms, max(latest_ms, written_ms))
        if not self.is_signed or beat.time_ms > latest_ms:
            self.on_heartbeat(beat)
        if len(self.heartbeats) > _MOST:
            del self.heartbeats[next(iter(self.heartbeats))]

    def speaker(self, group: tuple[str, str], now_ms: TimestampMs) -> str | None:
        """The instance that speaks for a group: a cluster and the digest of topics; None if none was heard lately."""
        lately = [
            heard
            for heard in self.heartbeats.values()
            if heard.beat.speaks and heard.beat.group == group and now_ms - heard.at_ms < UNHEARD_MS
        ]
        last = max(lately, key=lambda heard: heard.at_ms, default=None)
        return last.beat.instance if last is not None else None

    def remove_expired_heartbeats(
        self, retention_ms: DurationMs, now_ms: TimestampMs, bury: Callable[[list[str]], None]
    ) -> None:
        """Writes tombstones for heartbeats that are older than the retention; checks every 10 minutes."""
        if not self._turn.take(now_ms):
            return
        if self.history is not None:
            self.history.forget(TimestampMs(now_ms - _KEPT_MS))
        old = [key for key, last in self.heartbeats.items() if last.beat.is_expired(retention_ms, now_ms)]
        if old:
            try:
                bury(old)
            except SinkError:
                return  # tried again at the next check
        for key in old:
            del self.heartbeats[key]


# Sends the heartbeat of this watch every few seconds while barriers are evaluated.
#
# Law: a heartbeat has what the watch has evaluated, and nothing else. A watch that evaluates nothing sends none, so
# that its last heartbeat grows old. Unproven partitions come from the coverage of the watch: one election changes no
# heartbeat. Delivery to Kafka is not awaited. A failed heartbeat is not retried; the next one replaces it.

_TOPICS_MS = DurationMs(60_000)


@dataclass(slots=True)
class HeartbeatTarget:
    """One sink of heartbeats, and the pause between two."""

    beat: Callable[[Heartbeat], None]
    turn: Every[TimestampMs]


@dataclass(slots=True)
class HeartbeatSender:
    """Builds heartbeats and sends them.

    Attributes:
        instance: the name of this watch.
        progress: returns the progress of the query; None while it is unknown.
        targets: the sinks of heartbeats.
        evidence: returns the missing evidence, after the batch of the heartbeat.
        is_ready: returns whether the watch is ready.
        undelivered: returns how many events the events topic has not taken.
        undecided: returns the open data that fresh reads have neither confirmed nor refuted, with the reasons.
        failing: returns the destinations that do not take their events.
        speaks: returns whether this instance publishes events.
        counted: how many partitions may be scanned, and how many only a census watches; None before they are counted.
        topics: how many partitions of each topic are watched; empty before `watched` was asked.
    """

    instance: str
    cluster_id: str
    cluster: Cluster
    options: SourceOptions
    progress: Callable[[], Progress | None]
    targets: Sequence[HeartbeatTarget]
    evidence: Callable[[], MissingEvidence]
    is_ready: Callable[[], bool]
    undelivered: Callable[[], int]
    undecided: Callable[[], Sequence[str]]
    failing: Callable[[], Sequence[FailingTarget]]
    speaks: Callable[[], bool] = lambda: True
    counted: tuple[int, int] | None = field(default=None, init=False)
    topics: Mapping[str, int] = field(default_factory=dict)
    _leaderless: dict[TopicPartition, str] = field(default_factory=dict)  # of the coordinators' log
    _counting: Every[TimestampMs] = field(default_factory=lambda: Every(_TOPICS_MS))

    def on_batch(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> None:
        """Sends a heartbeat to each sink that is due, if the micro-batch has evaluated a barrier."""
        count = any_count(emitted)
        due = [target for target in self.targets if target.turn.is_due(now_ms)]
        if count is None or not due:
            return
        heartbeat = self._heartbeat(count, emitted, now_ms)
        for target in due:
            if heartbeat.is_active(now_ms):  # else the first one after an outage would be the only one for a while
                target.turn.begin(now_ms)
            try:
                target.beat(heartbeat)
            except SinkError:
                continue  # the outbox of that sink reports the failure

    def _heartbeat(self, count: BucketCount, emitted: Sequence[Finding], now_ms: TimestampMs) -> Heartbeat:
        evidence = self.evidence()
        unproven = evidence.unproven
        named = unproven[:MOST_NAMES]
        left = {finding.partition: finding.from_offset for finding in emitted if isinstance(finding, ReadLimitReached)}
        progress = self.progress()
        scanned, by_census, beyond = self.watched(now_ms)
        undecided = self.undecided()
        return Heartbeat(
            instance=self.instance,
            version=__version__,
            cluster_id=self.cluster_id,
            time_ms=now_ms,
            evaluated_ms=count.data_listed_ms,
            barrier=count.barrier,
            scanned_partitions=scanned,
            census_partitions=by_census,
            beyond_partitions=beyond,
            beyond_names=tuple(map(str, progress.looked[:MOST_NAMES])) if progress is not None else (),
            unproven_partitions=len(unproven),
            unproven_names=tuple(map(str, named)),
            furthest_behind=progress.furthest_behind(left) if progress is not None else 0,
            unread_log_partitions=sum(map(is_log, unproven)),
            is_coordinator_read=evidence.is_log_read,
            coordinator_view=self.options.coordinator_access,
            undecided_spans=len(undecided),
            leaderless_names=tuple(
                f"{partition}: {self._leaderless[partition]}"[:MOST_NAME]
                for partition in named
                if partition in self._leaderless
            ),
            undecided_names=tuple(_cut(printable(text)) for text in undecided[:MOST_NAMES]),
            failing_targets=tuple(_cut(target.text(now_ms)) for target in self.failing()[:MOST_NAMES]),
            is_ready=self.is_ready(),
            undelivered_events=self.undelivered(),
            topics_digest=self.options.topics_digest,
            speaks=self.speaks(),
        )

    def watched(self, now_ms: TimestampMs) -> tuple[int, int, int]:
        """The numbers of partitions that are scanned, that only a census watches, and of these, beyond the budget."""
        self._count(now_ms)
        progress, (may_be_scanned, counted) = self.progress(), self.counted or (0, 0)
        beyond = min(len(progress.looked), may_be_scanned) if progress is not None else 0
        return may_be_scanned - beyond, counted + beyond, beyond

    def _count(self, now_ms: TimestampMs) -> None:
        """Counts the partitions, and reads what the metadata says about the coordinators' log, every minute."""
        if self._counting.take(now_ms):
            try:
                by_name = self.cluster.refresh().topics
            except BrokerError:
                return
            topics, log = by_name.values(), by_name.get(TRANSACTION_STATE_TOPIC)
            waits_for = log.waits_for() if log is not None else {}
            self._leaderless = {log_numbered(number): brokers for number, brokers in waits_for.items()}
            scanned = [topic for topic in topics if self.options.watches(topic)]
            counted = [topic for topic in topics if self.options.counts(topic)]
            self.topics = {topic.name: len(topic.partitions) for topic in (*scanned, *counted)}
            self.counted = (
                sum(len(topic.partitions) for topic in scanned),
                sum(len(topic.partitions) for topic in counted),
            )


def _cut(text: str) -> str:
    """The beginning, of as many bytes as a heartbeat takes: the answer of a server can have any characters."""
    return text.encode(errors="replace")[:MOST_NAME].decode(errors="ignore")
