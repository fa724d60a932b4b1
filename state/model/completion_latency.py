"""How long transactions take to end, from the coordinators' log alone: durations in, small sums out.

Law: the timestamp of a record is when it was appended. The `lastUpdate` inside Complete* is not: the coordinator takes
it when Prepare* is committed, before it sends the first marker. Together they split the time to the end: Prepare*
appended -> committed (the append), committed -> Complete* appended (all markers), and the total. If the coordinator
moved in between, its successor takes `lastUpdate` again, so only the total is reported, as a failover.

A fold takes the durations within its range and returns sums, never single transactions. For a transaction that was
prepared before the range, the state completes the duration, because it keeps the time of Prepare*. All times are one
broker's clock, or two after a failover; a negative duration counts as zero. Records from before reading began are not
included.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from operator import add
from typing import NamedTuple

from txnwatch.state.model.transaction import CoordinatorView, TransactionState
from txnwatch.state.model.values import NO_TIME, CoordinatorEpoch, DurationMs, TimestampMs, plain_members

BOUNDS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)


@plain_members
class Stage(StrEnum):
    """Which duration was measured."""

    APPEND = "append"  # Prepare* appended -> committed; the target state is Prepare*
    MARKERS = "markers"  # Prepare* committed -> Complete* appended: every marker was written
    COMPLETION = "completion"  # Prepare* appended -> Complete* appended
    FAILOVER = "failover"  # the same, only if the coordinator moved in between


class Latencies(NamedTuple):
    """A histogram of durations.

    Attributes:
        stage: append, markers, completion or failover: which duration was measured.
        target_state: the state at the end of the duration.
        sum_ms: the sum of the durations.
        counts: the number of durations up to 5, 10, 25, 50, 100, 250, 500, 1,000, 2,500, 5,000, 10,000, 30,000, 60,000
            and 300,000 ms (BOUNDS_MS), and above; not cumulative.
    """

    stage: Stage
    target_state: TransactionState
    sum_ms: DurationMs
    counts: tuple[int, ...]


class Completion(NamedTuple):
    """A Complete* record.

    Attributes:
        state: CompleteCommit or CompleteAbort.
        record_timestamp_ms: when the record was appended.
        last_update_ms: the field `lastUpdate` of the record.
        coordinator_epoch: the leader epoch under which the record was appended.
    """

    state: TransactionState
    record_timestamp_ms: TimestampMs
    last_update_ms: TimestampMs
    coordinator_epoch: CoordinatorEpoch


_PREPARED_AS = {
    TransactionState.COMPLETE_COMMIT: TransactionState.PREPARE_COMMIT,
    TransactionState.COMPLETE_ABORT: TransactionState.PREPARE_ABORT,
}


@dataclass(slots=True)
class Tally:
    """Collects durations, by stage and target state."""

    _sums: dict[tuple[Stage, TransactionState], DurationMs] = field(default_factory=dict)
    _counts: dict[tuple[Stage, TransactionState], list[int]] = field(default_factory=dict)

    def add(self, latencies: Iterable[Latencies]) -> None:
        """Adds sums that were collected elsewhere."""
        for stage, state, sum_ms, counts in latencies:
            key = (stage, state)
            self._sums[key] = self._sums.get(key, NO_TIME) + sum_ms
            so_far = self._counts.get(key)
            self._counts[key] = list(counts) if so_far is None else list(map(add, so_far, counts))

    def finish(self, prepared: CoordinatorView, end: Completion) -> None:
        """Adds the durations of one transaction; none if the record does not end the prepared transaction."""
        target = _PREPARED_AS.get(end.state)
        if target is not prepared.state:
            return
        whole_ms = end.record_timestamp_ms - prepared.record_timestamp_ms
        self._take(Stage.COMPLETION, end.state, whole_ms)
        if end.coordinator_epoch != prepared.coordinator_epoch:
            self._take(Stage.FAILOVER, end.state, whole_ms)
            return
        self._take(Stage.APPEND, target, end.last_update_ms - prepared.record_timestamp_ms)
        self._take(Stage.MARKERS, end.state, end.record_timestamp_ms - end.last_update_ms)

    def _take(self, stage: Stage, state: TransactionState, duration_ms: DurationMs) -> None:
        key = (stage, state)
        took_ms = max(NO_TIME, duration_ms)
        counts = self._counts.setdefault(key, [0] * (len(BOUNDS_MS) + 1))
        counts[bisect_left(BOUNDS_MS, took_ms)] += 1
        self._sums[key] = self._sums.get(key, NO_TIME) + took_ms

    def latencies(self) -> tuple[Latencies, ...]:
        """All durations collected so far."""
        return tuple(self._histograms())

    def _histograms(self) -> Iterator[Latencies]:
        for (stage, state), counts in sorted(self._counts.items()):
            yield Latencies(stage, state, self._sums[stage, state], tuple(counts))
