"""Where the reading of each partition begins: at the log start, or at the last stable offset."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.client.cluster import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from txnwatch.streaming.source import options
from txnwatch.streaming.source.lister import start_offsets
from txnwatch.streaming.source.offsets import LookedAt, NotBegun, Position, SourceOffset
from txnwatch.streaming.source.options import Offsets

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
LOG_START, LAST_STABLE, END = 10, 50, 80
READ = Position("id", 60, 3, 60, 1)


class Leaders:
    """Leaders of partitions with the same offsets; `silent` do not answer a request for this (timestamp, isolation)."""

    def __init__(self, *silent: tuple[int, int]) -> None:
        self.silent = silent
        self.asked: list[TopicPartition] = []

    def __call__(
        self, partitions: Collection[TopicPartition], timestamp: int = LATEST, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, ListedOffset | Problem]:
        self.asked.extend(partitions)
        offset = {(EARLIEST, READ_UNCOMMITTED): LOG_START, (LATEST, READ_COMMITTED): LAST_STABLE}.get(
            (timestamp, isolation), END
        )
        is_silent = (timestamp, isolation) in self.silent
        answer = Problem("NOT_LEADER_OR_FOLLOWER") if is_silent else ListedOffset(offset, 3, 1)
        return dict.fromkeys(partitions, answer)


def start_of(
    partition: TopicPartition,
    *,
    known: Position | NotBegun | None = None,
    barrier: int = 0,
    wanted: Offsets = options.LATEST,
    leaders: Leaders | None = None,
    looked: LookedAt | None = None,
) -> int | None:
    positions = {} if known is None else {partition: known}
    previous = SourceOffset("cluster", barrier, 1, 1, positions, looked={partition: looked} if looked else {})
    found = start_offsets(previous, {partition: "id"}, wanted, leaders or Leaders())
    assert found.keys() <= {partition}
    return found.get(partition)


def test_data_begins_where_nothing_below_is_open() -> None:
    assert start_of(ORDERS) == LAST_STABLE


def test_the_coordinators_log_is_read_from_its_start() -> None:
    assert start_of(LOG) == LOG_START


def test_a_partition_found_later_is_read_from_its_start() -> None:
    assert start_of(ORDERS, barrier=4) == LOG_START
    assert start_of(ORDERS, barrier=4, known=NotBegun("id")) == LAST_STABLE


def test_the_option_decides_where_the_first_start_begins() -> None:
    assert start_of(ORDERS, wanted=options.EARLIEST) == LOG_START
    assert start_of(ORDERS, wanted={ORDERS: 7}) == 7
    assert start_of(PAYMENTS, wanted={ORDERS: 7}) == LAST_STABLE


@pytest.mark.parametrize("wanted", [options.LATEST, options.EARLIEST, {ORDERS: 7}])
def test_a_scan_that_begins_again_begins_where_nothing_below_is_open(wanted: Offsets) -> None:
    assert start_of(ORDERS, barrier=4, wanted=wanted, looked=LookedAt("id", 10, 3)) == LAST_STABLE


def test_a_partition_that_is_read_has_no_start_unless_it_was_created_anew() -> None:
    leaders = Leaders()
    assert start_of(ORDERS, barrier=4, known=READ, leaders=leaders) is None
    assert leaders.asked == []
    assert start_of(ORDERS, barrier=4, known=Position("older", 60, 3, 60, 1)) == LAST_STABLE


def test_without_an_answer_reading_does_not_begin() -> None:
    assert start_of(ORDERS, leaders=Leaders((LATEST, READ_COMMITTED))) is None
    assert start_of(LOG, leaders=Leaders((EARLIEST, READ_UNCOMMITTED))) is None
