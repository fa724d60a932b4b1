"""What a watch reports in its log: each change once, and each end of it once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import BucketCount, Finding, PartitionAlarm, RequestsThrottled, ViewHealed
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import (
    LONG_AGO,
    NO_TIME,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    CoordinatorAccess,
    DurationMs,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import undetected_text
from txnwatch.state.text import Said, some
from txnwatch.streaming.checks.preflight import ChosenView
from txnwatch.streaming.client.clock import wall_clock_ms

# Reports once that brokers throttle txnwatch by a quota, and once more when that has stopped for 30 s.

_OVER_AFTER_MS = DurationMs(30_000)
_THROTTLED = "throttled"


@dataclass(slots=True)
class Throttling:
    """Sums the throttle times and reports the start and the end of throttling.

    Attributes:
        log: receives the messages.
        asked: returns how long the driver's own requests were throttled since the last call, by kind of request.
    """

    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    asked: Callable[[], Mapping[str, DurationMs]] = dict
    _last_ms: TimestampMs = LONG_AGO
    _sum_ms: Counter[str] = field(default_factory=Counter)
    _said: Said[str] = field(default_factory=Said)

    def on_batch(self, emitted: Iterable[Finding]) -> list[Finding]:
        """Adds up the throttle times of a batch; returns the batch with those of the driver's own requests."""
        everything = list(emitted)
        ours = tuple(self.asked().items())
        if ours:
            everything.append(RequestsThrottled(ours))
        now_ms = self.now_ms()
        for finding in everything:
            if isinstance(finding, RequestsThrottled):
                self._sum_ms.update(dict(finding.throttled_ms))
                self._last_ms = now_ms
        if self._sum_ms and self._said.is_new(_THROTTLED):
            self.log.warning(
                f"brokers throttle txnwatch by a quota ({self._requests()}): a partition that falls behind is "
                "watched by census until it is read; the metric txnwatch_throttled_seconds_total has the total"
            )
        elif now_ms - self._last_ms >= _OVER_AFTER_MS and self._said.is_over(_THROTTLED):
            self.log.info(f"brokers no longer throttle txnwatch; in total: {self._requests()}")
            self._sum_ms.clear()
        return everything

    def _requests(self) -> str:
        return ", ".join(f"{request} for {length / 1000:.1f} s" for request, length in sorted(self._sum_ms.items()))


# Reports findings that an operator should know and that are not incidents: gaps, and a wrong copy of a log.
#
# Law: every finding is counted. A topic that this user may not read has another gap in every micro-batch that finds new
# data there. So of the notices of one kind about one partition, at most one a minute is written: the first one at once,
# and after a minute the last one, with the number of those that were not.

PAUSE_MS = DurationMs(60_000)
_Key = tuple[NoticeKind, TopicPartition]


class _Waiting(NamedTuple):
    """The last notice that was not written, and the number of those before it."""

    last: PartitionNotice
    others: int


@dataclass(slots=True)
class FindingLines:
    """Writes the warnings about findings.

    Attributes:
        counts: the number of findings of each kind, with those that were not written.
    """

    log: Log
    counts: Counter[str]
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _written_ms: dict[_Key, TimestampMs] = field(default_factory=dict)
    _waiting: dict[_Key, _Waiting] = field(default_factory=dict)

    def on_batch(self, emitted: Sequence[Finding]) -> None:
        """Counts the findings of one micro-batch, and writes the warnings that are due."""
        for finding in emitted:
            match finding:
                case PartitionAlarm(notice):
                    self.counts[f"partitions {notice.kind}"] += 1
                    key = notice.kind, notice.partition
                    before = self._waiting.get(key)
                    self._waiting[key] = _Waiting(notice, before.others + 1 if before is not None else 0)
                case ViewHealed():
                    self.counts[f"view mismatches ({finding.mismatch})"] += 1
                    self.log.warning(
                        f"producer id {finding.producer_id} on {finding.partition} from {finding.start_offset}: "
                        f"{finding.mismatch} at its leader, but not in our copy of the log; the leader is right"
                    )
        now_ms = self.now_ms()
        for key in [key for key in self._waiting if self._is_due(key, now_ms)]:
            self._written_ms[key] = now_ms
            self._write(self._waiting.pop(key))

    def _is_due(self, key: _Key, now_ms: TimestampMs) -> bool:
        written_ms = self._written_ms.get(key)
        return written_ms is None or not 0 <= now_ms - written_ms < PAUSE_MS

    def _write(self, waiting: _Waiting) -> None:
        last = waiting.last
        where = "" if last.kind is NoticeKind.HIDDEN else f" [{last.from_offset}, {last.to_offset})"
        more = f" ({waiting.others} more since the last line)" if waiting.others else ""
        self.log.warning(f"{last.kind} {last.partition}{where}: {last.detail}{more}")


# Reports missing evidence once, after it has persisted for 30 s.
#
# A shorter absence is only an election, or a topic that is created or deleted.

PERSISTENT_MS = DurationMs(30_000)
_NAMED = 3


@dataclass(slots=True)
class PersistentAlert:
    """One kind of missing evidence, by partition.

    Attributes:
        what: the problem of the partitions, as text.
        log: receives a warning when partitions have had the problem for 30 s, and a message when none has it any more.
    """

    what: str
    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _since_ms: dict[TopicPartition, TimestampMs] = field(default_factory=dict)
    _said: Said[TopicPartition] = field(default_factory=Said)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that have had the problem for 30 s."""
        return self._said.problems

    def update(self, partitions: set[TopicPartition]) -> None:
        """Sets the partitions that have the problem now."""
        now_ms = self.now_ms()
        self._since_ms = {partition: self._since_ms.get(partition, now_ms) for partition in partitions}
        persistent = {partition for partition, since_ms in self._since_ms.items() if now_ms - since_ms >= PERSISTENT_MS}
        new, over = self._said.update(persistent)
        if new:
            self.log.warning(f"partitions {self.what}, so nothing is proven there: {some(sorted(persistent), _NAMED)}")
        elif over and not persistent:
            self.log.info(f"resolved: partitions {self.what}")


# Reports the coordinator view of a watch at its start: what is not detected, and which missing right is the reason.


def report_view(log: Log, view: ChosenView, longest_timeout_ms: DurationMs | None, problem: str | None) -> None:
    """Names the view; a view other than the log is a warning. `problem` is why the longest timeout is not known."""
    if view.access is CoordinatorAccess.LOG:
        log.info(
            f"coordinator view: {view.access}: {TRANSACTION_STATE_TOPIC} is read, and every verdict can be detected"
        )
        return
    because = f" ({'; '.join(view.reasons)})" if view.reasons else ""
    log.warning(f"coordinator view: {view.access}{because}: {undetected_text(view.access)}")
    if view.access is CoordinatorAccess.NONE and longest_timeout_ms is None:
        why = problem or "no broker shows transaction.max.timeout.ms"
        log.warning(f"nothing is reported at all: {why}; set --max-transaction-timeout-ms")


# What all buckets have alike in the output of a micro-batch: the barrier, the time of the listing, and the clocks.


def any_count(emitted: Iterable[Finding]) -> BucketCount | None:
    """The counts of one bucket; None if the micro-batch has evaluated none."""
    return next((finding for finding in emitted if isinstance(finding, BucketCount)), None)


# Reports once for each broker that its clock certainly differs from this machine's clock, and once that it agrees.
#
# No verdict depends on the difference, because an age is measured by one clock. But a coordinator whose clock is set
# ends transactions too early or too late, and times in the logs of the machines do not match.

REPORTED_MS = DurationMs(10_000)
_AGREES_MS = REPORTED_MS // 2  # less than what is reported, so that a clock near the limit gives two lines at most


@dataclass(slots=True)
class ClockDifferences:
    """The brokers whose clocks are reported as different.

    Attributes:
        log: receives a warning when a clock differs by 10 s or more, and a message when it agrees within 5 s again.
    """

    log: Log
    _said: Said[BrokerId] = field(default_factory=Said)

    def on_batch(self, emitted: Iterable[Finding]) -> None:
        """Takes the output of one micro-batch: all buckets have the same bounds on the clocks."""
        count = any_count(emitted)
        if count is None:
            return
        for broker, clock in count.clocks:
            difference_ms = _least_difference_ms(clock)
            is_ahead = difference_ms > 0
            if abs(difference_ms) >= REPORTED_MS and self._said.is_new(broker, is_ahead):
                where = "ahead of" if is_ahead else "behind"
                self.log.warning(
                    f"the clock of broker {broker} is at least {abs(difference_ms) // 1000} s {where} the clock of "
                    "this machine; verdicts stay right, but a coordinator uses its clock for the timeouts of "
                    "transactions; synchronize the clocks (NTP); the metric txnwatch_broker_clock_offset_seconds has "
                    "the difference"
                )
            elif abs(difference_ms) < _AGREES_MS and self._said.is_over(broker):
                self.log.info(f"the clock of broker {broker} agrees with the clock of this machine again")


def _least_difference_ms(clock: Clock) -> DurationMs:
    """The smallest difference that the bounds allow: positive if the broker's clock is ahead, 0 if it may agree."""
    if clock.lowest_ms > 0:
        return clock.lowest_ms
    if clock.highest_ms is not None and clock.highest_ms < 0:
        return clock.highest_ms
    return NO_TIME


# Reports once that micro-batches have been slow for 30 s, and once that they have been quick again for 30 s.
#
# A hang is proven by two barriers, so it is reported two micro-batches after the write at the earliest.

SLOW_MS = DurationMs(2_000)  # a hang is then reported after 4 s or more; with quick micro-batches, after about 1 s


@dataclass(slots=True)
class SlowBatches:
    """Compares the duration of each micro-batch with `SLOW_MS`: from the listing of the partitions to its output.

    Attributes:
        log: receives a warning when all micro-batches of 30 s were slow, and a message when none of 30 s was.
    """

    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _said: Said[str] = field(default_factory=Said)
    _differs_since_ms: TimestampMs | None = None

    def on_batch(self, emitted: Iterable[Finding]) -> None:
        """Takes the output of one micro-batch; without an evaluated bucket, its duration is not known."""
        count = any_count(emitted)
        if count is None:
            return
        now_ms = self.now_ms()
        took_ms = elapsed(count.data_listed_ms, now_ms)
        is_slow = took_ms >= SLOW_MS
        if is_slow is bool(self._said.problems):
            self._differs_since_ms = None
            return
        if self._differs_since_ms is None:
            self._differs_since_ms = count.data_listed_ms
        if elapsed(self._differs_since_ms, now_ms) >= PERSISTENT_MS:
            self._differs_since_ms = None
            self._report(took_ms, is_slow=is_slow)

    def _report(self, took_ms: DurationMs, *, is_slow: bool) -> None:
        if is_slow and self._said.is_new("slow"):
            self.log.warning(
                f"micro-batches are slow: for {PERSISTENT_MS / 1000:.0f} s, each has taken {SLOW_MS / 1000:.0f} s or "
                f"more, the last one {took_ms / 1000:.1f} s, so hangs are reported later; a disk is slow, the machine "
                "is busy, or a broker answers slowly; the metric txnwatch_batch_duration_seconds has all durations"
            )
        elif not is_slow and self._said.is_over("slow"):
            self.log.info(f"micro-batches take less than {SLOW_MS / 1000:.0f} s again")
