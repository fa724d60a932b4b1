"""What one micro-batch costs in counts, which no machine changes: state calls, rows and bytes follow what changes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any
from unittest import mock

import pytest
from msgspec import structs

from bench import buckets
from bench.buckets import BUCKETS, START_MS, batch_of, open_facts
from support.fake_brokers import Speaker
from txnwatch.state.detection.open_transactions import EMIT_EVERY, FOLLOWED, HOLDING
from txnwatch.state.model.facts import Fact, LastStable, OpenDescribed, ProducerSeen, TransactionSeen
from txnwatch.state.model.serializer import encode
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client import cluster
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.rows import pack_facts

FEW, MANY, STANDING = 32, 640, 1_000
CALLS_OF_AN_IDLE_BUCKET = 1  # its head is read
CALLS_OF_A_CHANGED_BUCKET = 3  # its head is read and written, and an entry of its log is written
SELDOM = 2  # calls per batch of all buckets: an open list that is shown for the first time, a snapshot
ROWS_OF_ALL_BUCKETS = 2  # what is unproven, and the open lists, each of which is emitted every EMIT_EVERY batches
ROW_BYTES, LISTED_BYTES, BLOCKED_BYTES = 64, 64, 18
LIST_BYTES = 2  # that the size of a list takes more if it has more than 15 values
TOPIC_ID, CLUSTER_ID = "kQ0zgMvXRXOhhFkSbkEUrw", "MkU3OEVBNTcwNTJENDM2Qk"

measure = cache(buckets.measure)


@pytest.mark.parametrize(
    "census", ["", "three others", "all"], ids=["no census", "a census of others", "a census of all"]
)
def test_state_calls_do_not_follow_what_is_open(census: str) -> None:
    few, many = measure(FEW, census=census).calls, measure(MANY, census=census).calls
    assert few == many <= CALLS_OF_AN_IDLE_BUCKET * BUCKETS + SELDOM


def test_a_batch_without_changes_only_reads_the_heads() -> None:
    assert measure(0).calls == CALLS_OF_AN_IDLE_BUCKET * BUCKETS


def test_state_calls_follow_the_buckets_and_not_what_changes_in_them() -> None:
    few, many = measure(0, FEW).calls, measure(0, MANY).calls
    assert few <= many <= CALLS_OF_A_CHANGED_BUCKET * BUCKETS + SELDOM


SMALL = {"idle": (0, 0), "few change": (0, FEW), "many change": (0, MANY)}


@pytest.mark.parametrize("sizes", SMALL.values(), ids=SMALL.keys())
def test_a_batch_sends_the_driver_one_small_row_of_each_bucket(sizes: tuple[int, int]) -> None:
    found = measure(*sizes)
    assert found.rows <= BUCKETS + ROWS_OF_ALL_BUCKETS
    assert found.row_bytes <= ROW_BYTES * BUCKETS


def test_a_batch_sends_no_more_to_the_driver_once_the_open_lists_are_full() -> None:
    full, twice = (measure(size) for size in (FOLLOWED * BUCKETS, 2 * FOLLOWED * BUCKETS))
    assert full.rows == twice.rows == measure(FEW).rows <= BUCKETS + ROWS_OF_ALL_BUCKETS + 1
    assert twice.row_bytes <= full.row_bytes * 1.02
    lists = LISTED_BYTES * FOLLOWED * BUCKETS * 2 / EMIT_EVERY  # in turn, and when they have changed
    assert full.row_bytes <= ROW_BYTES * BUCKETS + lists


def test_the_places_of_holders_cost_as_many_bytes_as_those_of_the_oldest() -> None:
    """Each transaction holds a partition of its own."""

    def on_its_own_partition(number: int, now_ms: int) -> tuple[Fact, ...]:
        owner, data = open_facts(number, now_ms)
        assert isinstance(owner, TransactionSeen)
        assert isinstance(data, ProducerSeen)
        at = TopicPartition("orders", number)
        view = structs.replace(owner.view, participants=frozenset({at}))
        return structs.replace(owner, view=view), structs.replace(data, partition=at)

    with mock.patch.object(buckets, "open_facts", on_its_own_partition):
        found = buckets.measure(2 * (FOLLOWED + HOLDING) * BUCKETS)
    assert found.rows <= BUCKETS + ROWS_OF_ALL_BUCKETS + 1
    assert found.calls <= CALLS_OF_AN_IDLE_BUCKET * BUCKETS + SELDOM
    lists = LISTED_BYTES * (FOLLOWED + HOLDING) * BUCKETS * 2 / EMIT_EVERY  # in turn, and when they have changed
    assert LISTED_BYTES * FOLLOWED * BUCKETS / EMIT_EVERY < found.row_bytes <= ROW_BYTES * BUCKETS + lists


def test_last_stable_offsets_that_stand_cost_a_list_now_and_then() -> None:
    standing = [LastStable(TopicPartition("orders", number), TOPIC_ID, number) for number in range(STANDING)]

    def with_standing(batch: int, *others: Any) -> list[Fact]:
        return [*batch_of(batch, *others), *standing]

    with mock.patch.object(buckets, "batch_of", with_standing):
        found = buckets.measure(0)
    assert found.calls < CALLS_OF_AN_IDLE_BUCKET * BUCKETS + 1
    assert found.rows <= BUCKETS + ROWS_OF_ALL_BUCKETS
    lists = BLOCKED_BYTES * STANDING * 2 / EMIT_EVERY  # in turn, and when they have changed
    assert found.row_bytes <= ROW_BYTES * BUCKETS + lists


def an_offset(partitions: int) -> int:
    """The bytes of a source offset in the middle of a large cluster's life."""
    ends = {TopicPartition("orders", number): 10**9 + number for number in range(partitions)}
    positions = {partition: Position(TOPIC_ID, end, 12, end, 3) for partition, end in ends.items()}
    return len(json.dumps(SourceOffset(CLUSTER_ID, 10**6, START_MS, START_MS, positions).to_json()))


def test_the_offset_of_a_batch_has_a_few_bytes_for_each_partition() -> None:
    assert an_offset(0) <= 288
    assert an_offset(1_000) - an_offset(0) <= 44 * 1_000


def a_request(partitions: int) -> int:
    """The bytes of the request for the ends of one leader's partitions."""
    asked = [(TopicPartition("orders", number), 12) for number in range(partitions)]
    request = cluster.offsets_request(asked, cluster.LATEST, cluster.READ_UNCOMMITTED)(Speaker())
    return len(request.encode())


def test_a_barrier_sends_a_few_bytes_for_each_partition() -> None:
    assert a_request(1) <= 64
    assert a_request(1_001) - a_request(1) <= 18 * 1_000


def packed(is_open: int, changing: int, census: str = "") -> tuple[int, int]:
    """Rows and bytes of a later batch."""
    rows = list(pack_facts(batch_of(5, is_open, changing, census), BUCKETS))
    return len(rows), sum(len(row[-1]) for row in rows)


@pytest.mark.parametrize("is_open", [FEW, MANY])
def test_a_census_sends_each_open_transaction_to_the_state_once(is_open: int) -> None:
    (described,) = (fact for fact in batch_of(5, 1, 0, "all") if isinstance(fact, OpenDescribed))
    (rows_of_none, shared_bytes), (rows, all_bytes) = packed(0, 0, "all"), packed(is_open, 0, "all")
    assert rows == rows_of_none == BUCKETS
    assert 0 <= all_bytes - shared_bytes - is_open * len(encode(described)) <= LIST_BYTES * BUCKETS


def test_a_bucket_gets_one_row_whatever_changes() -> None:
    rows_of_few, bytes_of_few = packed(0, FEW)
    rows_of_many, bytes_of_many = packed(0, MANY)
    assert rows_of_few == rows_of_many == BUCKETS
    assert bytes_of_many <= bytes_of_few * MANY / FEW
