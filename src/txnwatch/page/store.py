"""What the page knows: references to what the driver has anyway, replaced after each micro-batch.

`txnwatch page` has the same store, and fills it with what a watcher tells (`watcher_facts.py`).

Law: a micro-batch pays for one tuple of references. It encodes nothing, copies no list of transactions, and takes no
lock that a viewer can hold. The page thread reads attributes of `PageStore`, and each of them is replaced as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from txnwatch.page.shown_past import ShownPast
from txnwatch.page.truth import JUDGED_WITHIN_MS
from txnwatch.page.words import name
from txnwatch.state.audit.exposure_rows import ExposureCounts, PeriodicAudit
from txnwatch.state.model.findings import BucketCount, Finding, ListedOffsets, OpenTransactions
from txnwatch.state.model.incident import IncidentEvent, IncidentStatus
from txnwatch.state.model.values import (
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    Offset,
    TimestampMs,
    TopicPartition,
    elapsed,
    is_log,
)
from txnwatch.state.telling.changes import moment
from txnwatch.state.telling.commands import Origin
from txnwatch.state.text import cut, redacted

LIVES: Final = 200  # incidents whose events are kept
MOMENTS: Final = 20  # of one incident
LATENCIES: Final = 500
_LONGEST_WARNING: Final = 400


class Watched(NamedTuple):
    """The numbers of partitions that are scanned, that only a census watches, and of these, beyond the budget."""

    scanned: int
    census: int
    beyond: int = 0


class WatcherRow(NamedTuple):
    """A watcher that `txnwatch page` asks.

    Attributes:
        url: where it is asked, from the operator.
        is_shown: whether the page is made from its answer.
        problem: why its last answer is not used; None if it can be.
        took_ms: how long its last answer took.
        instance, version, view: what it says of itself; None without an answer.
        judged_ms: when its last evaluated barrier was listed, by the clock of the page of this cluster.
    """

    url: str
    is_shown: bool
    problem: str | None
    took_ms: DurationMs | None = None
    instance: str | None = None
    version: str | None = None
    view: CoordinatorAccess | None = None
    judged_ms: TimestampMs | None = None


class TargetRow(NamedTuple):
    """A destination of events.

    Attributes:
        waiting: how many events it has not taken.
        oldest_ms: the time of the oldest of them.
        problem: why the last delivery failed; None if it did not.
        is_stopped: whether it wants no more events.
    """

    name: str
    waiting: int
    oldest_ms: TimestampMs | None = None
    problem: str | None = None
    is_stopped: bool = False


class StartStep(IntEnum):
    """What a start does."""

    SPARK = 1
    PLAN = 2
    LOGS = 3


_SERVERS: Final = "HOST:PORT"  # a person replaces it


class SaidWarning(NamedTuple):
    """A warning of the log of the watcher that says why no micro-batch completes."""

    text: str
    at_ms: TimestampMs


NOT_WATCHED: Final = Watched(0, 0)


class Moment(NamedTuple):
    """An event in the life of an incident, as a short text."""

    at_ms: TimestampMs
    status: IncidentStatus
    text: str


class LifeShown(NamedTuple):
    """What has happened to an incident: texts, because events with long ids would take much memory.

    Attributes:
        is_whole: whether its first event is among the moments.
    """

    last: IncidentEvent
    moments: tuple[Moment, ...]
    is_whole: bool


def _lived(life: LifeShown | None, event: IncidentEvent) -> LifeShown:
    """The life with its next event."""
    before, moments = (life.last, life.moments) if life is not None else (None, ())
    is_whole = event.sequence == 1 if life is None else life.is_whole and len(moments) < MOMENTS
    now = Moment(event.time_ms, event.status, moment(event, before, name))
    return LifeShown(event, (*moments[1 - MOMENTS :], now), is_whole)


class Totals(NamedTuple):
    """The open transactions at the last barrier, all buckets together.

    Attributes:
        states: how many are in each state.
        oldest_ms: since when the oldest is open, by our clock; None if nothing is open.
    """

    barrier: BarrierNumber | None = None
    states: tuple[tuple[str, int], ...] = ()
    oldest_ms: TimestampMs | None = None

    @property
    def open(self) -> int:
        """How many transactions are open."""
        return sum(count for _, count in self.states)


NOTHING_OPEN: Final = Totals()


def _totals_of(counts: Sequence[BucketCount]) -> Totals:
    """The counts of all buckets as one."""
    states: Counter[str] = Counter()
    for count in counts:
        states.update(dict(count.states))
    oldest = [count.oldest_open_ms for count in counts if count.oldest_open_ms is not None]
    return Totals(counts[0].barrier, tuple(states.items()), min(oldest, default=None))


class Reach(NamedTuple):
    """What nothing is proven about: partitions and open data that are known by name, and how many more there are.

    Attributes:
        more_of_log: how many of the further ones are partitions of the coordinators' log.
        is_log_read: whether a part of that log is read to its end.
        undecided: open data that fresh reads have neither confirmed nor refuted, with the reasons.
    """

    named: Sequence[TopicPartition] = ()
    more: int = 0
    more_of_log: int = 0
    is_log_read: bool = False
    undecided: Sequence[str] = ()
    more_undecided: int = 0

    @property
    def undecided_spans(self) -> int:
        """How much open data may hang."""
        return len(self.undecided) + self.more_undecided

    @property
    def unproven(self) -> int:
        """How many there are."""
        return len(self.named) + self.more

    @property
    def of_log(self) -> int:
        """How many of them are partitions of the coordinators' log."""
        return sum(map(is_log, self.named)) + self.more_of_log

    def lacks(self, at: TopicPartition) -> bool | None:
        """Whether nothing is proven about a partition; None if that is not known."""
        return True if at in self.named else None if self.more else False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNow:
    """What is known of a cluster at one moment: the end of a micro-batch, or what its watcher has told.

    Attributes:
        judged_ms: when the last evaluated barrier was listed; None before the first one.
        judged_within_ms: how long ago that may be.
        batch_ms: from the listing of that barrier to its end; None if it is not known.
        behind: data partitions that were not read to the ends that were listed for that barrier; None if not known.
        totals: the open transactions at that barrier.
        lists: the open list of each bucket.
        by_census: the offsets of partitions that only a census watches, as each bucket has listed them.
        ends: the ends of partitions, as far as `lists` came with them.
        incidents: the last event of each incident that is open, or ended less than a day ago.
        undelivered: events that the events topic lacks.
        is_source_read: see `Facts`.
        targets: where events go, the topic first.
        speaks: whether this instance publishes events; None if that is not known.
        speaker: the instance that publishes them; None if none was heard lately.
        problem: why no watcher is believed now, in words; None if one is.
        problem_ms: since when none is.
        watchers: the watchers that are asked; empty if this process is the watcher.
        topics: how many partitions of each topic are watched, as the metadata had it less than a minute ago; None if
            that is not known.
    """

    judged_ms: TimestampMs | None = None
    judged_within_ms: DurationMs = JUDGED_WITHIN_MS
    batch_ms: DurationMs | None = None
    behind: int | None = None
    totals: Totals = NOTHING_OPEN
    lists: Sequence[OpenTransactions] = ()
    by_census: Sequence[ListedOffsets] = ()
    ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    incidents: Sequence[IncidentEvent] | None = None
    reach: Reach | None = None
    is_ready: bool | None = None
    watched: Watched = NOT_WATCHED
    undelivered: int | None = None
    is_source_read: bool = False
    targets: Sequence[TargetRow] = ()
    speaks: bool | None = None
    speaker: str | None = None
    problem: str | None = None
    problem_ms: TimestampMs | None = None
    watchers: Sequence[WatcherRow] = ()
    topics: Mapping[str, int] | None = None


NOTHING_EVALUATED: Final = KnownNow(is_source_read=True)  # a watch that has just started


@dataclass(slots=True)
class PageStore:
    """The references; the driver's thread writes, the page's thread reads.

    Attributes:
        origin: the cluster, its owners, and what the commands of this watch share; None until the cluster is known.
        topics_digest: of the settings that choose the topics.
        access: how the coordinators' view is known.
        instance: the name of this watch.
        is_of_ledger: whether the incidents are those of the ledger of this process, with commands of its own. Else
            they were read from where others may write, and their commands are not used.
        seen: what is known now.
        lives: what has happened to the latest incidents since this process was started, oldest first.
        latencies_ms: from the hang to the event, of the last incidents that this process has published.
        step: what the start does now, until the watch is ready; None before it.
        warning: the last one of the log that says why no micro-batch completes. Others are no reason.
        audited: what the watch has found when it audited last; None before that, and on a page of several clusters.
        told_exposures: on a page of several clusters, the numbers of these findings.
        history: what the events topic has told; None before it is read, and on a page that does not read it.
        on_change: is called after each change, in the thread that fills the store; must not wait.
        on_news: is called after it if an incident was opened or has ended: a picture does not wait for its turn then.
    """

    instance: str = ""
    origin: Origin | None = None
    access: CoordinatorAccess | None = None
    seen: KnownNow = NOTHING_EVALUATED
    lives: dict[str, LifeShown] = field(default_factory=dict)
    latencies_ms: tuple[DurationMs, ...] = ()
    topics_digest: str = ""
    is_of_ledger: bool = False
    step: StartStep | None = None
    warning: SaidWarning | None = None
    audited: PeriodicAudit | None = None
    told_exposures: ExposureCounts | None = None
    history: ShownPast | None = None
    on_change: Callable[[], None] = lambda: None
    on_news: Callable[[], None] = lambda: None
    _has_news: bool = False

    @property
    def exposures(self) -> ExposureCounts | None:
        """The numbers of the findings of the last audit; None before it."""
        return self.audited.told if self.audited is not None else self.told_exposures

    @property
    def commands(self) -> Origin | None:
        """What commands are made from; None if the cluster is not known. Unknown brokers have a place in it."""
        origin = self.origin
        return origin if origin is None or origin.bootstrap_servers else replace(origin, bootstrap_servers=_SERVERS)

    def take(self, emitted: Sequence[Finding], seen: KnownNow, now_ms: TimestampMs) -> None:
        """Takes the output of a micro-batch; without an evaluated barrier, the former one stays the last."""
        counts = tuple(finding for finding in emitted if isinstance(finding, BucketCount))
        if counts:
            lists = tuple(finding for finding in emitted if isinstance(finding, OpenTransactions))
            ends = tuple(finding for finding in emitted if isinstance(finding, ListedOffsets))
            listed_ms = counts[0].data_listed_ms
            batch_ms = elapsed(listed_ms, now_ms)
            seen = replace(
                seen,
                judged_ms=listed_ms,
                batch_ms=batch_ms,
                behind=counts[0].behind,
                totals=_totals_of(counts),
                lists=lists,
                by_census=ends,
            )
        else:
            last = self.seen
            seen = replace(
                seen,
                judged_ms=last.judged_ms,
                batch_ms=last.batch_ms,
                behind=last.behind,
                totals=last.totals,
                lists=last.lists,
                by_census=last.by_census,
            )
        self.replace(replace(seen, is_source_read=True))

    def warn(self, text: str, now_ms: TimestampMs) -> None:
        """Takes a warning that says why no micro-batch completes; any thread may call it."""
        self.warning = SaidWarning(cut(redacted(text), _LONGEST_WARNING), now_ms)
        self.on_change()

    def replace(self, seen: KnownNow) -> None:
        """Takes what is known now."""
        self.seen = seen
        self.on_change()
        if self._has_news:
            self._has_news = False
            self.on_news()

    @property
    def latency_p99_ms(self) -> DurationMs | None:
        """From the hang to the event, of 99 of 100 incidents; None if there was none."""
        latencies = sorted(self.latencies_ms)
        return latencies[len(latencies) * 99 // 100] if latencies else None

    def take_record(self, event: IncidentEvent) -> bool:
        """Takes the next event of an incident, whoever has published it; returns whether it says something new."""
        lives = dict(self.lives)
        life = lives.pop(event.incident_id, None)
        if life is not None and (
            life.last.sequence >= event.sequence  # a topic that is read again
            or replace(life.last, sequence=event.sequence) == event  # nothing but the sequence was believed
        ):
            return False
        lives[event.incident_id] = _lived(life, event)
        if len(lives) > LIVES:
            del lives[next(iter(lives))]
        self.lives = lives
        self._has_news |= event.status is not IncidentStatus.UPDATED
        return True

    def take_event(self, event: IncidentEvent) -> None:
        """Takes an event that this process has published; what is known with it follows."""
        if self.take_record(event) and event.status is IncidentStatus.OPENED:
            self.latencies_ms = (*self.latencies_ms[1 - LATENCIES :], event.detection_latency_ms)
