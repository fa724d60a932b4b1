"""Bounds of the brokers' clocks, and elections since the listing, from the coordinator records of one batch.

state/model/broker_clocks.py has the rules of the clocks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from txnwatch.state.model.broker_clocks import Clock, both
from txnwatch.state.model.ids import BrokerId
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.transaction_fold import Stamps, TransactionFold
from txnwatch.streaming.source.offsets import Position, SourceOffset


def clocks_of(
    end: SourceOffset, previous_listed_ms: TimestampMs, followed: Container[int], reads: Iterable[RangeRead]
) -> dict[BrokerId, Clock]:
    """The bounds of each leader's clock, from the partitions of `__transaction_state` that it leads.

    Only `followed` partitions give an upper bound: their new records did not exist at `previous_listed_ms`.
    """
    found: dict[BrokerId, Clock] = {}
    for log_partition, stamps, at in _stamped(end, reads):
        if stamps.leader_epoch != at.epoch:
            continue
        highest_ms = stamps.lowest_ms - previous_listed_ms if log_partition in followed else None
        clock = Clock(stamps.last_ms - end.coordinator_listed_ms, highest_ms, end.coordinator_listed_ms)
        found[at.leader] = both(found.get(at.leader), clock)
    return found


def elected_since(end: SourceOffset, reads: Iterable[RangeRead]) -> frozenset[int]:
    """Partitions of `__transaction_state` with a record of a later leader epoch than that of their listed end.

    A log that an election has cut below its listed end can reach that end again only with such records.
    """
    return frozenset(
        log_partition for log_partition, stamps, at in _stamped(end, reads) if stamps.leader_epoch > at.epoch
    )


def _stamped(end: SourceOffset, reads: Iterable[RangeRead]) -> Iterator[tuple[int, Stamps, Position]]:
    """The partitions of `__transaction_state` with records in this batch: their last stamps, and their listing."""
    for read in reads:
        fold, at = read.fold, end.positions[read.partition]
        if isinstance(fold, TransactionFold) and fold.stamps is not None and isinstance(at, Position):
            yield fold.log_partition, fold.stamps, at
