"""The coverage of a watch: the partitions without evidence, reported when they persist or change.

Law: a leader election alone is not reported. Missing evidence counts once it has persisted for 30 s. Evidence that is
missing since the start counts at once: nothing was ever proven about that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from txnwatch.state.detection.proof import Look
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import (
    BucketCount,
    CensusReason,
    CensusRequest,
    CensusResult,
    Finding,
    PartitionAlarm,
    Unproven,
)
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import (
    AT_ONCE,
    LONG_AGO,
    TRANSACTION_STATE_TOPIC,
    CoordinatorAccess,
    DurationMs,
    TimestampMs,
    TopicPartition,
    is_log,
)
from txnwatch.state.model.verdicts import undetected_text
from txnwatch.state.text import Said, some
from txnwatch.streaming.checks.preflight import BrokerTimeout
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.watch.alerts import PERSISTENT_MS, PersistentAlert

# The missing evidence of a watch: the value that the heartbeat and the metrics take from the coverage.


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """The evidence that is missing at one barrier.

    Attributes:
        unproven: partitions about which nothing has been proven for 30 s, or never since the start, and hidden ones;
            those of the coordinators' log come first.
        undescribed: partitions whose leaders did not describe their producers in the last census that asked them.
        unproven_by_census: the undescribed partitions that are unproven for that reason.
        is_log_read: whether a part of the coordinators' log was read to its end within the last 30 s; if not, nothing
            is proven.
    """

    unproven: tuple[TopicPartition, ...] = ()
    undescribed: frozenset[TopicPartition] = frozenset()
    unproven_by_census: frozenset[TopicPartition] = frozenset()
    is_log_read: bool = False


def is_log_missing(emitted: Iterable[Finding]) -> bool:
    """Whether there is open data, but no broker shows the coordinators' log."""
    counts = (finding for finding in emitted if isinstance(finding, BucketCount))
    return any(dict(finding.waiting).get(Look.COORDINATOR_NOT_SHOWN) for finding in counts)


def _log_first(partitions: set[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Sorts partitions for reports: those of the coordinators' log come first, because more depends on them."""
    return tuple(sorted(partitions, key=lambda partition: (not is_log(partition), partition)))


# Partitions whose leaders did not describe their producers, from the results of the census.
#
# A partition that has failed counts as not described until a census describes it, or until a round does not ask for it:
# then it is deleted. Until then it is requested again (`CensusReason.FAILED`). The state remembers the scanned ones.


@dataclass(slots=True)
class Undescribed:
    """The partitions that are not described.

    Attributes:
        alert: reports those that have not been described for 30 s.
        has_result: whether any census result has come.
    """

    alert: PersistentAlert
    has_result: bool = False
    _scanned: frozenset[TopicPartition] = frozenset()
    _others: frozenset[TopicPartition] = frozenset()
    _never: frozenset[TopicPartition] = frozenset()

    def on_barrier(self, emitted: Sequence[Finding]) -> None:
        """Updates the partitions with the output of one barrier."""
        self._scanned = frozenset(
            finding.partition
            for finding in emitted
            if isinstance(finding, CensusRequest) and finding.why is CensusReason.FAILED
        )
        for finding in emitted:
            if isinstance(finding, CensusResult):
                self._take(finding)
        self._never &= self.partitions

    def _take(self, result: CensusResult) -> None:
        kept = frozenset[TopicPartition]() if result.is_round else self._others.difference(result.described)
        self._others = kept.union(result.failed) - self._scanned
        if not self.has_result:
            self._never = self.partitions
        self.has_result = True
        self.alert.update(set(self.partitions))

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the last census that has asked for them did not describe."""
        return self._scanned | self._others

    @property
    def unproven(self) -> frozenset[TopicPartition]:
        """Those about which nothing is proven: partitions that are undescribed for 30 s, or since the first census."""
        return self.partitions & (self.alert.partitions | self._never)


# The coverage.

_NAMED = 3
_SHOWN = "that the brokers show to this user"
_NO_LOG = (
    f"there is transactional data, but no broker shows {TRANSACTION_STATE_TOPIC}: nothing is proven; the "
    "topic is deleted, or hidden from this user or by a proxy"
)


@dataclass(slots=True)
class Coverage:
    """The partitions that one watch has no evidence about, and whether the watch is ready.

    Attributes:
        log: receives one message for each change that an operator should know.
        is_ready: whether every partition of the coordinators' log has been read to its end once, or some have and no
            further one for 30 s; and whether a census has come, if one is configured, or has not come for 30 s.
        progress: returns the progress of the query; None while it is unknown.
        awaits_census: whether a census is configured.
        access: how the coordinators' view is known.
        watched: returns the numbers of partitions that are scanned and that only a census watches; None if unknown.
    """

    log: Log
    is_ready: bool = False
    progress: Callable[[], Progress | None] = lambda: None
    awaits_census: bool = False
    access: CoordinatorAccess = CoordinatorAccess.LOG
    watched: Callable[[], tuple[int, int] | None] = lambda: None
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _unproven_now: frozenset[TopicPartition] = frozenset()
    _hidden: frozenset[TopicPartition] = frozenset()
    _never: set[TopicPartition] = field(default_factory=set)
    _said: Said[str] = field(default_factory=Said)
    _is_log_shown: bool = False
    _started_ms: TimestampMs | None = None
    _log_progress_ms: TimestampMs = LONG_AGO
    _log_read_ms: TimestampMs | None = None
    _undescribed: Undescribed = field(init=False)
    _unproven: PersistentAlert = field(init=False)

    def __post_init__(self) -> None:
        undescribed = PersistentAlert("not described by their leaders", self.log, self.now_ms)
        self._undescribed = Undescribed(undescribed)
        self._unproven = PersistentAlert("not listed, or not read to their ends", self.log, self.now_ms)

    def on_batch(self, emitted: Sequence[Finding]) -> None:
        """Updates the coverage with the output of one micro-batch."""
        is_missing = is_log_missing(emitted)
        self._report_log(is_missing=is_missing)
        self._hidden = frozenset(_hidden(emitted))
        judged = next((finding for finding in emitted if isinstance(finding, Unproven)), None)
        if judged is None:
            return
        now_ms = self.now_ms()
        self._unproven_now = frozenset(judged.partitions)
        self._unproven.update(set(self._unproven_now))
        self._undescribed.on_barrier(emitted)
        self._look_at_start(now_ms, is_log_shown=not is_missing)
        if not is_missing:
            self._look_at_log(now_ms)

    def _look_at_start(self, now_ms: TimestampMs, *, is_log_shown: bool) -> None:
        """Updates the partitions that are unproven since the first barrier; for the log, the first that showed it."""
        if self._started_ms is None:
            self._started_ms = now_ms
            self._never.update(partition for partition in self._unproven_now if not is_log(partition))
        if is_log_shown and not self._is_log_shown:
            self._is_log_shown, self._log_progress_ms = True, now_ms
            self._never.update(filter(is_log, self._unproven_now))
        if any(is_log(partition) for partition in self._never - self._unproven_now):
            self._log_progress_ms = now_ms
        self._never &= self._unproven_now

    def _look_at_log(self, now_ms: TimestampMs) -> None:
        if self._is_part_of_log_read():
            self._log_read_ms = now_ms
        if self.is_ready or self._log_read_ms is None or self._started_ms is None:
            return
        is_census_due = self.awaits_census and not self._undescribed.has_result
        is_log_read = not any(map(is_log, self._never)) or now_ms - self._log_progress_ms >= PERSISTENT_MS
        self.is_ready = is_log_read and (not is_census_due or now_ms - self._started_ms >= PERSISTENT_MS)

    def _is_part_of_log_read(self) -> bool:
        if not any(map(is_log, self._unproven_now)):
            return True
        progress = self.progress()
        return progress is not None and any(is_log(at) for at in progress.ends.keys() - self._unproven_now)

    def _report_log(self, *, is_missing: bool) -> None:
        if is_missing and self._said.is_new(_NO_LOG):
            self.log.warning(_NO_LOG)
        elif not is_missing and self._said.is_over(_NO_LOG):
            self.log.info(f"{TRANSACTION_STATE_TOPIC} is shown again, or no data is open any more")

    @property
    def evidence(self) -> MissingEvidence:
        """The missing evidence, for the heartbeat and the metrics."""
        by_census = self._undescribed.unproven
        undescribed = self._unproven_now & (self._unproven.partitions | self._never)
        return MissingEvidence(
            unproven=_log_first({*undescribed, *self._hidden, *by_census}),
            undescribed=self._undescribed.partitions,
            unproven_by_census=by_census,
            is_log_read=self._log_read_ms is not None and self.now_ms() - self._log_read_ms < PERSISTENT_MS,
        )

    @property
    def reach(self) -> str:
        """What is being watched, as text for the report that the watch is ready."""
        missing = self._unproven_now | self._hidden | self._undescribed.unproven
        data = sorted(partition for partition in missing if not is_log(partition))
        log = sorted(filter(is_log, missing))
        watched = self.watched()
        if watched == (0, 0):
            return f"no transaction is being watched: no topic {_SHOWN} matches --topics or --census-topics"
        lacks = [f"nothing is proven on {_partitions(data)}: {some(data, _NAMED)}"] if data else []
        if watched is not None and not watched[0]:
            lacks.append(f"no topic {_SHOWN} matches --topics: all are watched by census only")
        if log:
            lacks.append(
                f"nothing is proven about the transactional ids in {_partitions(log)} of the coordinators' log that "
                f"cannot be read: {some(log, _NAMED)}"
            )
        if self.access is not CoordinatorAccess.LOG:
            lacks.append(f"the coordinator view is {self.access}: {undetected_text(self.access)}")
        if not lacks:
            return "every transaction is being watched"
        return f"transactions are being watched, but {', and '.join(lacks)}"


def _hidden(emitted: Sequence[Finding]) -> list[TopicPartition]:
    """Partitions that transactions name and that no broker shows; those that the planner knows are in `Unproven`."""
    partitions = []
    for finding in emitted:
        match finding:
            case PartitionAlarm(notice) if notice.kind is NoticeKind.HIDDEN:
                partitions.append(notice.partition)
            case CensusRequest(partition, CensusReason.HIDDEN):
                partitions.append(partition)
    return partitions


def _partitions(partitions: Sequence[TopicPartition]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"


# The longest timeout that a transaction may have, which the coordinator view `none` needs.
#
# Law: the limit never becomes shorter. A transaction that began under a longer limit keeps its own timeout. The brokers
# are asked again in time: data must be open for the whole limit before it is late, so a longer limit is known before.

_PAUSE_MS = DurationMs(60_000)


@dataclass(frozen=True, slots=True)
class LongestTimeout:
    """The longest timeout that all brokers allow; any of them can be a coordinator.

    Attributes:
        ms: the timeout; None if it is not known, or does not limit a transaction.
        is_unlimited: whether no timeout limits a transaction.
        problem: the reason for None.
    """

    ms: DurationMs | None
    is_unlimited: bool = False
    problem: str | None = None


_UNKNOWN = LongestTimeout(None)


@dataclass(slots=True)
class TimeoutLimit:
    """The limit of the setting, or else of the brokers.

    Attributes:
        fixed_ms: the setting `max_transaction_timeout_ms`; the brokers are not asked if it is set.
        known: the limit; without a value if a broker did not show it, or if transactions have none.
    """

    fixed_ms: DurationMs | None
    known: LongestTimeout = _UNKNOWN
    _due_ms: TimestampMs = AT_ONCE
    _change: str | None = None

    @property
    def ms(self) -> DurationMs | None:
        """The limit; None if it is not known, or if no timeout limits a transaction."""
        return self.fixed_ms if self.fixed_ms is not None else self.known.ms

    def read(self, timeouts: Callable[[], list[BrokerTimeout]]) -> None:
        """Reads the limit for the start of a watch: every broker must show it."""
        if self.fixed_ms is None:
            self.known = longest_timeout(timeouts())

    def refresh(self, timeouts: Callable[[], list[BrokerTimeout]], now_ms: TimestampMs) -> None:
        """Reads it again if that is due. A broker that does not show it now changes nothing."""
        if self.fixed_ms is not None or now_ms < self._due_ms:
            return
        self._due_ms = now_ms + min(_PAUSE_MS, self.known.ms or _PAUSE_MS)
        before, self.known = self.known, self._extended(timeouts())
        if self.known.ms != before.ms:
            self._change = f"the longest timeout of a transaction: {_shown(before)} before, {_shown(self.known)} now"

    def take_change(self) -> str | None:
        """What has changed since the last call: the query needs the new limit."""
        change, self._change = self._change, None
        return change

    def _extended(self, timeouts: list[BrokerTimeout]) -> LongestTimeout:
        if self.known.is_unlimited:
            return self.known
        if self.known.ms is None or any(timeout.is_unlimited for timeout in timeouts):
            return longest_timeout(timeouts)
        return LongestTimeout(max([self.known.ms, *(timeout.ms for timeout in timeouts if timeout.ms is not None)]))


def longest_timeout(timeouts: Sequence[BrokerTimeout]) -> LongestTimeout:
    """The longest of the timeouts, if every broker shows one and none allows transactions without one."""
    obstacle = next(
        (timeout for timeout in sorted(timeouts, key=lambda timeout: not timeout.is_unlimited) if timeout.problem), None
    )
    if obstacle is not None:
        return LongestTimeout(None, obstacle.is_unlimited, obstacle.problem)
    return LongestTimeout(max((timeout.ms for timeout in timeouts if timeout.ms is not None), default=None))


def _shown(limit: LongestTimeout) -> str:
    return f"{limit.ms} ms" if limit.ms is not None else "no limit" if limit.is_unlimited else "unknown"
