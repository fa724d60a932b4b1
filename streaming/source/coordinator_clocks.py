"""Bounds of the brokers' clocks, and elections since the listing, from the coordinator records of one batch.

state/model/broker_clocks.py has the rules of the clocks.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from txnwatch.state.model.broker_clocks import Clock, both
from txnwatch.state.model.ids import BrokerId
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.offsets import Position, SourceOffset


def clocks_of(
    end: SourceOffset, previous_listed_ms: TimestampMs, followed: Container[int], reads: Iterable[RangeRead]
) -> dict[BrokerId, Clock]:
    """The bounds of each leader's clock, from the partitions of `__transaction_state` that it leads.

    Only `followed` partitions give an upper bound: their new records did not exist at `previous_listed_ms`.
    """
    found: dict[BrokerId, Clock] = {}
    for read in reads:
        fold, at = read.fold, end.positions[read.partition]
        if not isinstance(fold, TransactionFold) or fold.stamps is None or not isinstance(at, Position):
            continue
        if fold.stamps.leader_epoch != at.epoch:
            continue
        is_new = fold.log_partition in followed
        highest_ms = fold.stamps.lowest_ms - previous_listed_ms if is_new else None
        clock = Clock(fold.stamps.last_ms - end.coordinator_listed_ms, highest_ms, end.coordinator_listed_ms)
        found[at.leader] = both(found.get(at.leader), clock)
    return found


def elected_since(end: SourceOffset, reads: Iterable[RangeRead]) -> frozenset[int]:
    """Partitions of `__transaction_state` with a record of a later leader epoch than that of their listed end.

    A log that an election has cut below its listed end can reach that end again only with such records.
    """
    found: set[int] = set()
    for read in reads:
        fold, at = read.fold, end.positions[read.partition]
        if not isinstance(fold, TransactionFold) or fold.stamps is None or not isinstance(at, Position):
            continue
        if fold.stamps.leader_epoch > at.epoch:
            found.add(fold.log_partition)
    return frozenset(found)
