"""Lists the ends of all partitions: first D (all data partitions), then T (all of `__transaction_state`).

Law: T is requested only after D is complete, because the proof depends on that order (state/detection/proof.py). An end
is the leader's answer to ListOffsets(LATEST, read_uncommitted) under its current epoch. After a failover the leader
answers OFFSET_NOT_AVAILABLE until its high watermark is reliable. The high watermark of a Fetch has no such guarantee.

Apart: the planner, which gets the lists, is pure.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Protocol

from txnwatch.state.model.clocks import ClockBase
from txnwatch.state.model.errors import BrokerError, CheckpointError
from txnwatch.state.model.facts import StandsAt
from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, ListedOffset
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BarrierNumber,
    CoordinatorAccess,
    DurationMs,
    Offset,
    Problem,
    TimestampMs,
    TopicPartition,
    is_data,
    is_log,
    log_numbered,
)
from txnwatch.streaming.admin.kafka_settings import ScanInterval
from txnwatch.streaming.client import cluster as ends
from txnwatch.streaming.client.clock import clock_base, wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.census_schedule import Census, SnapshotSchedule, behind_at
from txnwatch.streaming.source.driver_file import NextBarrierDue, read_driver_file
from txnwatch.streaming.source.offsets import LookedAt, Position, SourceOffset, is_begun
from txnwatch.streaming.source.options import EARLIEST, LATEST, Offsets, SourceOptions
from txnwatch.streaming.source.planner import (
    GrantedRequests,
    Limits,
    ListedPartition,
    Listing,
    RereadRequest,
    is_of_census,
    plan,
    to_describe,
    to_read_again,
)
from txnwatch.streaming.source.scan_budget import Extent, ScanBudget
from txnwatch.streaming.source.standing_looks import StandingLooks

# Where the reading of a partition begins.
#
# Law: a data partition may be read from any offset up to its last stable offset, because no open transaction begins
# below that. So an earlier start changes no verdict about what is open; it shows more transactions that have ended.


class ListOffsets(Protocol):
    """The request to the leaders of partitions."""

    def __call__(
        self, partitions: Collection[TopicPartition], timestamp: int = ..., isolation: int = ...
    ) -> Mapping[TopicPartition, ListedOffset | Problem]:
        """An answer for each partition."""


def start_offsets(
    previous: SourceOffset, listed: Mapping[TopicPartition, str], wanted: Offsets, ask: ListOffsets
) -> dict[TopicPartition, Offset]:
    """The start offsets of partitions that are not read yet; none for a partition whose leader does not answer.

    Partitions that exist at the start begin at `wanted`; `latest` is the last stable offset. A partition that was
    looked at begins there, too. Partitions found later, and `__transaction_state`, begin at their log start.

    Args:
        previous: the last offset.
        listed: the partitions of this round, with their topic ids.
        wanted: the option `startingOffsets`.
        ask: requests offsets from the leaders.
    """
    starts: dict[TopicPartition, Offset] = {}
    by_start: dict[_Start, list[TopicPartition]] = {start: [] for start in _Start}
    for partition, topic_id in listed.items():
        position = previous.positions.get(partition)
        if is_begun(position) and position.topic_id == topic_id:
            continue
        if isinstance(wanted, dict) and partition in wanted and (previous.barrier == 0 or position is not None):
            starts[partition] = wanted[partition]
        else:
            by_start[_start(partition, previous, wanted)].append(partition)
    starts.update(_found(ask(by_start[_Start.LOG_START], timestamp=ends.EARLIEST)))
    starts.update(_found(ask(by_start[_Start.LAST_STABLE], isolation=ends.READ_COMMITTED)))
    return starts


class _Start(Enum):
    LOG_START = auto()
    LAST_STABLE = auto()


def _start(partition: TopicPartition, previous: SourceOffset, wanted: Offsets) -> _Start:
    is_new = previous.barrier > 0 and partition not in previous.positions
    if partition in previous.looked:
        return _Start.LAST_STABLE
    return _Start.LOG_START if is_log(partition) or wanted == EARLIEST or is_new else _Start.LAST_STABLE


def _found(answers: Mapping[TopicPartition, ListedOffset | Problem]) -> dict[TopicPartition, Offset]:
    return {partition: at.offset for partition, at in answers.items() if isinstance(at, ListedOffset)}


# One listing: the ends of all data partitions, and after them the ends of the coordinators' log.

# Metadata is about 30 to 60 bytes per partition, and a broker builds all of it again for each request.
MANY_PARTITIONS = 10_000
FIRST_REFRESH_S, LONGEST_REFRESH_S = 0.5, 30.0
_SHARE_OF_AWAY = 8  # while a leader does not answer, a new one is found this share of that time later at most
_NEVER_SHOWN = ""  # the topic id of a partition that is known only by its name


class Lister:
    """Lists ends and plans offsets. It lives in the driver's source process as long as the query runs.

    Attributes:
        looked_s, idle_until_s: when the metadata was refreshed, and until when a barrier may be skipped (monotonic).
        away: the partitions whose leaders have not answered at the last barrier.
        absences: how often in a row a topic that is read was missing from the metadata.
        granted: the requests of the job that are being served.
        schedule: decides which partitions are described.
        censuses: the census that is planned for the last barrier.
    """

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        now_ms: Callable[[], TimestampMs] = wall_clock_ms,
        base: Callable[[], ClockBase] = clock_base,
    ) -> None:
        self.options = options
        self._cluster = cluster
        self.now_ms = now_ms
        self._clock_base = base
        self.looked_s = -math.inf
        self.away: set[TopicPartition] = set()
        self._settled_pause_s = 0.0
        self._away_before: set[TopicPartition] = set()
        self._away_since_s = 0.0
        self.idle_until_s = 0.0
        self.absences: Counter[str] = Counter()
        self.granted = GrantedRequests()
        self.limits = Limits(options.max_offsets_per_trigger)
        self.schedule = SnapshotSchedule(options)
        self.looks = StandingLooks()
        is_from_latest = options.starting_offsets == LATEST
        self.budget = ScanBudget(options.max_bytes_per_second, options.is_first, wants_backlog=not is_from_latest)
        self._scan_interval = ScanInterval()
        self.censuses: dict[BarrierNumber, Census | None] = {}

    def next_offset(self, previous: SourceOffset, *, limited: bool = True) -> SourceOffset | None:
        """The offset one barrier after `previous`; None if no broker answered, or if the barrier can be skipped.

        Raises:
            CheckpointError: `previous` was read from another cluster, or with another view of the coordinators.
        """
        check_access(previous, self.options)
        wanted = read_driver_file(self.options.driver_file)
        requests = wanted.requests
        self.budget.learn(wanted.volumes)
        due = self.granted.due(previous, requests)
        is_settled = not (
            self._need_barrier(requests, due) or self.schedule.has_absences or any(self.absences.values())
        )
        listing = self._listing(previous, to_describe(due, previous), is_settled=is_settled)
        if listing is None:
            return None
        limits = self.limits if limited else Limits()
        following = plan(previous, listing, limits, to_read_again(due))
        due = {request for request in due if request.partition not in self.away}
        self.granted.count(following, due, requests)
        asked = [request.partition for request in due if is_of_census(request)] + sorted(self.looks.due)
        asked += following.let_go
        census = self.schedule.next_census(previous, following, asked)
        is_idle = census is None and not self._need_barrier(requests, due) and time.monotonic() < self.idle_until_s
        if is_idle and can_skip(previous, following, wanted.next_due):
            return None
        self._take_extents(following, requests)
        self.idle_until_s = time.monotonic() + IDLE_S
        self.censuses = {following.barrier: census}
        return following

    def _need_barrier(self, requests: Iterable[RereadRequest], due: Collection[RereadRequest]) -> bool:
        """Whether one of the requests needs the next barriers.

        Without an answer of the leader no barrier serves it. A census that has failed comes again after its pause.
        """
        return any(
            request.partition not in self.away
            and request.partition not in self.schedule.missing
            and (request in due or request.why is not CensusReason.FAILED)
            for request in requests
        )

    def look_where_it_stands(
        self, previous: SourceOffset, answers: Mapping[TopicPartition, ListedPartition]
    ) -> dict[TopicPartition, StandsAt]:
        """Where the last stable offset stands, of the partitions that are not read to their ends.

        It is listed before T. So what begins there, and what a census shows to begin there, was open then.
        """
        watched = {at: self.schedule.watched[at] for at in self.schedule.unscanned}
        listed = {
            at: end for at, end in (self._ask(watched) if watched else {}).items() if isinstance(end, ListedOffset)
        }
        for at, position in behind_at(previous).items():
            answer = answers.get(at)
            watched[at] = position.topic_id
            if answer is not None and answer.end is not None and answer.topic_id == position.topic_id:
                listed[at] = answer.end
        moved = self.looks.moved(listed)
        stable = self._ask(moved, isolation=ends.READ_COMMITTED) if moved else {}
        return self._begun_there(self.looks.take(listed, stable, watched, BarrierNumber(previous.barrier + 1)))

    def _begun_there(self, standing: Mapping[TopicPartition, StandsAt]) -> dict[TopicPartition, StandsAt]:
        """Those at whose last stable offset a transaction begins.

        A last stable offset is never below the start of the log. At the start, the transaction that stands may have
        begun below it, and another one there: that one may end, and the offset still stands.
        """
        starts = self._ask(standing, timestamp=ends.EARLIEST) if standing else {}
        return {
            at: stands_at
            for at, stands_at in standing.items()
            if isinstance(start := starts[at], ListedOffset)
            and (start.offset < stands_at.offset or stands_at.offset == 0)
        }

    def take_throttled(self) -> dict[str, DurationMs]:
        """How long brokers have throttled the listing since the last call, by the kind of request."""
        return self._cluster.take_throttled()

    def census_of(self, barrier: BarrierNumber) -> Census | None:
        """The census planned for a batch; None for a batch that is replayed after a restart."""
        return self.censuses.get(barrier)

    def _listing(self, previous: SourceOffset, named: set[TopicPartition], *, is_settled: bool) -> Listing | None:
        if not self.look_around(previous, {partition.topic for partition in named}, is_settled=is_settled):
            return None
        cluster_id = self._cluster.known.cluster_id
        if previous.cluster_id not in {"", cluster_id}:
            raise CheckpointError(
                f"the checkpoint was written for cluster {previous.cluster_id}, but the brokers answer for cluster "
                f"{cluster_id}: check --bootstrap-server, or give this cluster its own --checkpoint directory"
            )
        scan_interval_ms = self._scan_interval.largest_ms(self._cluster, time.monotonic())
        looked = self._looked(previous)
        data = [partition for partition in self._data_partitions() if partition not in looked]
        # By the same metadata as `data`, or a topic that is shown again in between would count as deleted.
        unanswered = {**self.missing(previous, is_data), **self._hidden(previous, named)}
        starts = self._starts(previous, [*data, *self._coordinator_partitions()])
        answers = self._answers(self._ask(data), starts)
        looked |= _not_yet_scanned(previous, answers)
        answers = {partition: answer for partition, answer in answers.items() if partition not in looked}
        data_listed_ms = self.now_ms()
        self.schedule.look_at(self._cluster.known, looked)
        standing = self.look_where_it_stands(previous, answers)
        log_partitions = self._coordinator_partitions() or self._look_for_coordinator()
        if log_partitions is None:
            return None
        answers.update(self._answers(self._with_connections(self._ask(log_partitions)), starts))
        answers.update(self.missing(previous, is_log))
        answers.update(unanswered)
        if answers and not any(answer.end is not None for answer in answers.values()):
            return None
        access = self.options.coordinator_access
        listed_ms, base = self.now_ms(), self._clock_base()
        return Listing(cluster_id, answers, data_listed_ms, listed_ms, scan_interval_ms, access, base, standing, looked)

    def _looked(self, previous: SourceOffset) -> dict[TopicPartition, LookedAt]:
        """The partitions that are beyond the budget, and those that were and whose topic is missing now."""
        topics = self._cluster.known.topics
        listed = {partition: topics[partition.topic].topic_id for partition in self._data_partitions()}
        missing = {
            at: look
            for at, look in previous.looked.items()
            if self.is_missing(at.topic) and self.options.wants(at.topic)
        }
        return {**missing, **self.budget.looked(previous, listed)}

    def _take_extents(self, following: SourceOffset, requests: Iterable[RereadRequest]) -> None:
        """Gives what there is to read after a listing to the budget, if it wants it.

        A task that has stopped at a limit has left a rest, which the job requests.
        """
        now_s = time.monotonic()
        if self.budget.is_due(now_s):
            rests = to_read_again(requests)
            scanned = {
                at: Extent(min(position.offset, rests.get(at, position.offset)), position.listed)
                for at, position in following.read_positions.items()
                if is_data(at)
            }
            self.budget.take({**self.looks.extents, **scanned}, now_s)

    def look_around(self, previous: SourceOffset, names: set[str], *, is_settled: bool = True) -> bool:
        """Refreshes the metadata if it is due or lacks a topic of `names`. Returns whether there is any metadata.

        The interval grows with the number of partitions. It stays short while a topic is missing, or while the job
        requests a re-read or a census, because a re-created topic causes such requests. If another leader does not
        answer, the metadata is refreshed at once: it may have moved. Then pauses grow with the time of its absence.
        """
        now, metadata = time.monotonic(), self._cluster.metadata
        self._begin_barrier(now)
        pause_s = self._settled_pause_s if is_settled else self.options.metadata_refresh_s
        pause_s = min(pause_s, self._pause_for_away_s(now))
        if metadata is not None and now < self.looked_s + pause_s and names <= metadata.topics.keys():
            return True
        try:
            read_topics = {partition.topic for partition in (*previous.positions, *previous.looked)}
            metadata = self._cluster.refresh(names | read_topics)
        except BrokerError:
            return self._cluster.metadata is not None
        self.looked_s = now
        usual_s = self.options.metadata_refresh_s
        partitions = sum(len(topic.partitions) for topic in metadata.topics.values())
        self._settled_pause_s = max(usual_s, min(usual_s * partitions / MANY_PARTITIONS, LONGEST_REFRESH_S))
        read: dict[str, set[str]] = {}
        for at, entry in (*previous.positions.items(), *previous.looked.items()):
            read.setdefault(at.topic, set()).add(entry.topic_id)
        self.absences = Counter({name: self.absences[name] for name in read})
        for name, topic_ids in read.items():
            topic = metadata.topics.get(name)
            if topic is not None and not topic.is_hidden and topic_ids <= {topic.topic_id, _NEVER_SHOWN}:
                self.absences.pop(name, None)
            elif topic is not None and topic.is_hidden:
                self.absences[name] = 1  # not read, and never counted as deleted
            else:
                self.absences[name] += 1
                self.looked_s = -math.inf
        return True

    def _begin_barrier(self, now_s: float) -> None:
        """Keeps whose leaders did not answer at the last barrier; if these are others, their absence begins now."""
        if self.away - self._away_before:
            self._away_since_s = now_s
        self._away_before, self.away = self.away, set()

    def _pause_for_away_s(self, now_s: float) -> float:
        """How long the metadata is not refreshed because of leaders that do not answer."""
        if not self._away_before:
            return math.inf
        away_s = now_s - self._away_since_s
        return max(FIRST_REFRESH_S, away_s / _SHARE_OF_AWAY) if away_s > 0.0 else 0.0

    def is_missing(self, name: str) -> bool:
        """Whether a topic that is read is missing or was replaced, but this is not yet certain.

        Brokers learn of changes at different times, and each refresh asks another broker. So only several absences in a
        row mean that a topic is deleted. `__transaction_state` never counts as deleted, because nothing can be proven
        without it: only a new topic of the same name replaces it.
        """
        count = self.absences.get(name, 0)
        topic = self._cluster.known.topics.get(name)
        if topic is not None and topic.is_hidden:
            return True  # `absences` changes only with a refresh, and may not have this topic yet
        is_shown = topic is not None and bool(topic.partitions)
        return 0 < count < ABSENCES_OF_A_DELETED_TOPIC or (
            count > 0 and name == TRANSACTION_STATE_TOPIC and not is_shown
        )

    def missing(
        self, previous: SourceOffset, is_kind: Callable[[TopicPartition], bool]
    ) -> dict[TopicPartition, ListedPartition]:
        """Watched partitions of missing topics, of a kind: they stay, without an answer."""
        return {
            partition: ListedPartition(at.topic_id, None)
            for partition, at in previous.positions.items()
            if is_kind(partition) and self.is_missing(partition.topic)
            if not is_data(partition) or self.options.wants(partition.topic)
        }

    def _hidden(self, previous: SourceOffset, named: set[TopicPartition]) -> dict[TopicPartition, ListedPartition]:
        """Participants of transactions that this user may not describe: they are listed without an answer."""
        topics = self._cluster.known.topics
        ids = {partition.topic: at.topic_id for partition, at in previous.positions.items()}
        return {
            partition: ListedPartition(ids.get(partition.topic, _NEVER_SHOWN), None)
            for partition in named
            if partition.topic in topics and topics[partition.topic].is_hidden and self.options.wants(partition.topic)
        }

    def _look_for_coordinator(self) -> list[TopicPartition] | None:
        """Looks for a new `__transaction_state`, after D was listed; None if no broker answers.

        Partitions found here have no start offset yet. So they are not begun, and stale, until the next round.
        """
        if self.options.coordinator_access is not CoordinatorAccess.LOG:
            return []
        try:
            topic = self._cluster.named([TRANSACTION_STATE_TOPIC]).get(TRANSACTION_STATE_TOPIC)
            if topic is not None and topic.partitions:
                self._cluster.refresh()
                self.looked_s = -math.inf  # this answer was not compared with what is read
        except BrokerError:
            return None
        return self._coordinator_partitions()

    def _data_partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, partition)
            for topic in self._cluster.known.topics.values()
            if self.options.watches(topic) and not self.is_missing(topic.name)
            for partition in topic.partitions
        ]

    def _coordinator_partitions(self) -> list[TopicPartition]:
        topic = self._cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
        is_read = self.options.coordinator_access is CoordinatorAccess.LOG
        if not is_read or topic is None or self.is_missing(topic.name):
            return []
        return [log_numbered(number) for number in topic.partitions]

    def _ask(
        self, partitions: Iterable[TopicPartition], timestamp: int = ends.LATEST, isolation: int = ends.READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        answers = self._cluster.list_offsets(
            partitions, timestamp=timestamp, isolation=isolation, timeout_s=self.options.list_timeout_s
        )
        self.away.update(partition for partition, answer in answers.items() if isinstance(answer, Problem))
        return answers

    def _with_connections(
        self, listed: Mapping[TopicPartition, ListedOffset | Problem]
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        """The answers of the coordinators' log, each with the connection that its leader has answered on."""
        return {
            partition: answer
            if isinstance(answer, Problem)
            else answer._replace(connection=self._cluster.connection_to_keep(answer.leader))
            for partition, answer in listed.items()
        }

    def _starts(self, previous: SourceOffset, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        topics = self._cluster.known.topics
        listed = {partition: topics[partition.topic].topic_id for partition in partitions}
        return start_offsets(previous, listed, self.options.starting_offsets, self._ask)

    def _answers(
        self, listed: Mapping[TopicPartition, ListedOffset | Problem], starts: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, ListedPartition]:
        return {
            partition: ListedPartition(
                self._cluster.known.topics[partition.topic].topic_id, _end(answer), starts.get(partition)
            )
            for partition, answer in listed.items()
        }


def _not_yet_scanned(
    previous: SourceOffset, answers: Mapping[TopicPartition, ListedPartition]
) -> dict[TopicPartition, LookedAt]:
    """Partitions whose scan should begin again, and whose leader has not answered: they are looked at until it has."""
    return {
        at: look
        for at, look in previous.looked.items()
        if at in answers
        and answers[at].topic_id == look.topic_id
        and (answers[at].end is None or answers[at].start is None)
    }


def check_access(offset: SourceOffset, options: SourceOptions) -> None:
    """Checks the view of the coordinators: a barrier of one view proves nothing about the state of another.

    Raises:
        CheckpointError: the offset was written with another view.
    """
    if offset.barrier > 0 and offset.coordinator_access is not options.coordinator_access:
        raise CheckpointError(
            f"the checkpoint was written with the coordinator view {offset.coordinator_access}, and this run has the "
            f"view {options.coordinator_access}: start with a new --checkpoint directory"
        )


def _end(answer: ListedOffset | Problem) -> ListedOffset | None:
    """The listed end; without a leader epoch, a truncation could not be detected."""
    if isinstance(answer, Problem) or answer.leader_epoch is None:
        return None
    return answer


# Decides which barriers to skip: on an idle cluster, one barrier every few seconds is enough.
#
# Why skipping is safe: a barrier can give a new result only through new facts, or because time has passed.
#
# New facts are impossible if every partition answers, ends at the same offset under the same leader epoch as before and
# is read to that end, and if no census is due and no re-read is requested.
#
# Time is covered by the agenda of each bucket: the state names the next time at which it must run. That time is "at
# once" for everything that waits for a barrier and not for a time: an open span that no live transaction holds, a gap,
# a partition whose leader did not answer. So the two checks of a proof are never delayed. The driver adds when the
# ledger must run: at once while a candidate or an event waits, else for the next check of an open incident. It writes
# the time and the number of the barrier together with the requests of the batch. If any of this information is missing,
# the barrier takes place.
#
# At least every `IDLE_S` a barrier takes place, because heartbeats, metrics and events of other instances need it.

IDLE_S = 5.0


def can_skip(previous: SourceOffset, following: SourceOffset, next_due: NextBarrierDue | None) -> bool:
    """Whether the barrier of `following` can be skipped. The caller checks that no census and no request is due."""
    if next_due is None or next_due.barrier != previous.barrier or next_due.due_ms <= following.coordinator_listed_ms:
        return False
    return _is_unchanged(previous, following)


def _is_unchanged(previous: SourceOffset, following: SourceOffset) -> bool:
    if (
        following.clock_set_by_ms
        or following.begun
        or following.reread
        or following.gone
        or previous.begun
        or previous.reread
        or following.looked != previous.looked
    ):
        return False  # what the last batch began to read counts as read only at the next barrier
    is_whole = all(
        isinstance(at, Position) and not at.is_stale and at.offset == at.listed for at in following.positions.values()
    )
    following_shared = (following.cluster_id, following.backlog_end, following.scan_interval_ms)
    previous_shared = (previous.cluster_id, previous.backlog_end, previous.scan_interval_ms)
    return is_whole and following_shared == previous_shared and following.positions == previous.positions
