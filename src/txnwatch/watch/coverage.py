"""The coverage of a watch: the partitions without evidence, reported when they persist or change.

Law: a leader election alone is not reported. Missing evidence counts once it has persisted for 30 s. Evidence that is
missing since the start counts at once: nothing was ever proven about that partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from txnwatch.state.model.coordinator_access import CoordinatorAccess
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import CensusReason, CensusRequest, Finding, PartitionAlarm, Unproven
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import LONG_AGO, NO_TIME, DurationMs, TimestampMs
from txnwatch.state.model.undetected import undetected_text
from txnwatch.state.text.lists import some
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.job.progress import Progress
from txnwatch.watch.missing_evidence import MissingEvidence, is_log_missing, is_of_log, log_first
from txnwatch.watch.persistent_alerts import PERSISTENT_MS, PersistentAlert
from txnwatch.watch.undescribed_partitions import Undescribed

_NAMED = 3
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
        census_interval_ms: the pause between two rounds of the census; None without a census.
        access: how the coordinators' view is known.
    """

    log: Log
    is_ready: bool = False
    progress: Callable[[], Progress | None] = lambda: None
    census_interval_ms: DurationMs | None = None
    access: CoordinatorAccess = CoordinatorAccess.LOG
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _unproven_now: frozenset[TopicPartition] = frozenset()
    _hidden: frozenset[TopicPartition] = frozenset()
    _never: set[TopicPartition] = field(default_factory=set)
    _is_log_missing: bool = False
    _is_log_shown: bool = False
    _started_ms: TimestampMs | None = None
    _log_progress_ms: TimestampMs = LONG_AGO
    _log_read_ms: TimestampMs | None = None
    _undescribed: Undescribed = field(init=False)
    _unproven: PersistentAlert = field(init=False)

    def __post_init__(self) -> None:
        undescribed = PersistentAlert("not described by their leaders", self.log, self.now_ms)
        self._undescribed = Undescribed(undescribed, self.census_interval_ms or NO_TIME)
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
        self._undescribed.on_barrier(emitted, now_ms)
        self._look_at_start(now_ms, is_log_shown=not is_missing)
        if not is_missing:
            self._look_at_log(now_ms)

    def _look_at_start(self, now_ms: TimestampMs, *, is_log_shown: bool) -> None:
        """Updates the partitions that are unproven since the first barrier; for the log, the first that showed it."""
        if self._started_ms is None:
            self._started_ms = now_ms
            self._never.update(partition for partition in self._unproven_now if not is_of_log(partition))
        if is_log_shown and not self._is_log_shown:
            self._is_log_shown, self._log_progress_ms = True, now_ms
            self._never.update(filter(is_of_log, self._unproven_now))
        if any(is_of_log(partition) for partition in self._never - self._unproven_now):
            self._log_progress_ms = now_ms
        self._never &= self._unproven_now

    def _look_at_log(self, now_ms: TimestampMs) -> None:
        if self._is_part_of_log_read():
            self._log_read_ms = now_ms
        if self.is_ready or self._log_read_ms is None or self._started_ms is None:
            return
        is_census_due = self.census_interval_ms is not None and not self._undescribed.has_result
        is_log_read = not any(map(is_of_log, self._never)) or now_ms - self._log_progress_ms >= PERSISTENT_MS
        self.is_ready = is_log_read and (not is_census_due or now_ms - self._started_ms >= PERSISTENT_MS)

    def _is_part_of_log_read(self) -> bool:
        if not any(map(is_of_log, self._unproven_now)):
            return True
        progress = self.progress()
        return progress is not None and any(is_of_log(at) for at in progress.ends.keys() - self._unproven_now)

    def _report_log(self, *, is_missing: bool) -> None:
        if is_missing and not self._is_log_missing:
            self.log.warning(_NO_LOG)
        elif self._is_log_missing and not is_missing:
            self.log.info(f"{TRANSACTION_STATE_TOPIC} is shown again, or no data is open any more")
        self._is_log_missing = is_missing

    @property
    def evidence(self) -> MissingEvidence:
        """The missing evidence, for the heartbeat and the metrics."""
        by_census = self._undescribed.unproven
        undescribed = self._unproven_now & (self._unproven.partitions | self._never)
        return MissingEvidence(
            unproven=log_first({*undescribed, *self._hidden, *by_census}),
            undescribed=self._undescribed.partitions,
            unproven_by_census=by_census,
            is_log_read=self._log_read_ms is not None and self.now_ms() - self._log_read_ms < PERSISTENT_MS,
        )

    @property
    def reach(self) -> str:
        """What is being watched, as text for the report that the watch is ready."""
        missing = self._unproven_now | self._hidden | self._undescribed.unproven
        data = sorted(partition for partition in missing if not is_of_log(partition))
        log = sorted(filter(is_of_log, missing))
        lacks = [f"nothing is proven on {_partitions(data)}: {some(data, _NAMED)}"] if data else []
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
    found = []
    for finding in emitted:
        match finding:
            case PartitionAlarm(notice) if notice.kind is NoticeKind.HIDDEN:
                found.append(notice.partition)
            case CensusRequest(partition, CensusReason.HIDDEN):
                found.append(partition)
    return found


def _partitions(partitions: Sequence[TopicPartition]) -> str:
    return "1 partition" if len(partitions) == 1 else f"{len(partitions)} partitions"
