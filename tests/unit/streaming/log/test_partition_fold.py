"""One range of one partition into facts: the leader's rules, batch by batch."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_control_batch, a_marker, an_old_entry
from txnwatch.state.model.errors import WireError
from txnwatch.state.model.facts import ProducerSeen
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold

ORDERS = TopicPartition("orders", 0)
DELETE_HORIZON = 0x40


def fold(*batches: bytes, start: int = 0, end: int = 1000) -> PartitionFold:
    folded = PartitionFold(start, end)
    folded.feed(b"".join(batches))
    return folded


def facts(folded: PartitionFold) -> dict[int, ProducerSeen]:
    return {fact.producer_id: fact for fact in folded.facts(ORDERS, "id", 5)}


def open_offset(*batches: bytes) -> int | None:
    return facts(fold(*batches))[7].open_offset


OPEN: dict[str, tuple[list[bytes], int | None]] = {
    "data": ([a_batch(3)], 3),
    "data, data": ([a_batch(3), a_batch(4)], 3),
    "data, marker": ([a_batch(3), a_marker(4)], None),
    "data, marker, data": ([a_batch(3), a_marker(4), a_batch(5)], 5),
    "data, data of a newer epoch": ([a_batch(3), a_batch(4, producer_epoch=1)], 3),
    "data, marker of the next epoch": ([a_batch(3), a_marker(4, producer_epoch=1)], None),
    "data, marker of an older epoch": ([a_batch(3, producer_epoch=2), a_marker(4, producer_epoch=1)], None),
    "data, emptied control batch": ([a_batch(3), a_control_batch([], 4)], 3),
    "data, another producer's marker": ([a_batch(3), a_marker(4, producer_id=8)], 3),
    "an emptied data batch still opens": ([a_batch(3, records=[], last_offset_delta=0)], 3),
    "compressed data": ([a_batch(3, codec=4)], 3),
    "a marker alone": ([a_marker(4)], None),
}


@pytest.mark.parametrize(("batches", "expected"), OPEN.values(), ids=OPEN.keys())
def test_the_fold_shows_the_open_data_at_the_end_of_the_range(batches: list[bytes], expected: int | None) -> None:
    assert open_offset(*batches) == expected


@pytest.mark.parametrize(
    "batch",
    [a_batch(3, transactional=False), a_batch(3, producer_id=-1), an_old_entry(3), a_control_batch([], 3)],
    ids=["not transactional", "no producer id", "magic 1", "emptied control batch"],
)
def test_batches_without_transactions_give_no_facts(batch: bytes) -> None:
    folded = fold(batch)
    assert facts(folded) == {}
    assert folded.position == 4


def test_a_fact_has_everything_the_state_needs() -> None:
    folded = fold(
        a_batch(3, producer_epoch=1, base_timestamp=100),
        a_marker(4, producer_epoch=2, commit=False, coordinator_epoch=6, timestamp=200),
        a_marker(5, producer_epoch=2, commit=True, coordinator_epoch=7, timestamp=300),
        a_batch(6, count=4, producer_epoch=2, base_timestamp=350, max_timestamp=400, leader_epoch=9),
    )
    (fact,) = folded.facts(ORDERS, "id", 5)
    assert (fact.first_offset, fact.first_epoch) == (3, 1)
    assert fact.first_marker is not None
    assert fact.last_marker is not None
    assert (fact.first_marker.offset, fact.first_marker.outcome, fact.first_marker.coordinator_epoch) == (4, "abort", 6)
    assert (fact.last_marker.offset, fact.last_marker.outcome, fact.last_marker.timestamp_ms) == (5, "commit", 300)
    assert (fact.open_offset, fact.open_epoch, fact.epoch) == (6, 2, 2)
    assert (fact.last_offset, fact.last_timestamp_ms) == (9, 400)
    assert fact.closed_offset is None, "the last marker closed nothing"
    assert (fact.range_start, fact.range_end, fact.listed_ms) == (0, 10, 5)
    assert folded.leader_epoch == 9


CLOSED: dict[str, tuple[list[bytes], int | None]] = {
    "no marker": ([a_batch(3)], None),
    "data and more data": ([a_batch(3), a_batch(4), a_marker(5)], 3),
    "data from before the range": ([a_marker(4)], None),
    "two transactions": ([a_batch(3), a_marker(4), a_batch(5), a_marker(6)], 5),
    "a marker without data": ([a_batch(3), a_marker(4), a_marker(5)], None),
    "data that is open": ([a_batch(3), a_marker(4), a_batch(5)], 3),
}


@pytest.mark.parametrize(("batches", "closed"), CLOSED.values(), ids=CLOSED.keys())
def test_the_fold_shows_what_the_last_marker_closed(batches: list[bytes], closed: int | None) -> None:
    assert facts(fold(*batches))[7].closed_offset == closed


def test_a_delete_horizon_is_not_a_timestamp() -> None:
    (fact,) = fold(a_batch(3, attributes=DELETE_HORIZON)).facts(ORDERS, "id", 5)
    assert fact.last_timestamp_ms is None


def test_a_batch_belongs_to_the_range_of_its_base_offset() -> None:
    batches = (a_batch(0, count=10), a_batch(10, count=10, producer_id=8))
    first, second = fold(*batches, start=0, end=5), fold(*batches, start=5, end=20)
    assert facts(first).keys() == {7}
    assert facts(second).keys() == {8}
    assert first.is_done
    assert not fold(a_batch(0, count=5), start=0, end=9).is_done


def test_offsets_that_compaction_took_do_not_keep_a_range_from_being_done() -> None:
    folded = fold(a_batch(0), a_batch(50), end=10)
    assert (folded.position, folded.is_done) == (10, True)


def test_a_batch_cut_off_at_the_end_of_a_response_is_left_for_the_next() -> None:
    whole = a_batch(0) + a_batch(1)
    for size in range(len(whole)):
        folded = PartitionFold(0, 10)
        folded.feed(whole[:size])
        assert folded.position == (1 if size >= len(a_batch(0)) else 0)


def test_the_position_is_that_of_the_batch_that_cannot_be_decoded() -> None:
    bad = bytearray(a_batch(1))
    bad[16] = 9
    folded = PartitionFold(0, 10)
    with pytest.raises(WireError, match="magic"):
        folded.feed(a_batch(0) + bytes(bad))
    assert folded.position == 1


def test_episodes_are_kept_only_when_asked_for() -> None:
    batches = a_batch(3) + a_marker(4, commit=False) + a_batch(5) + a_marker(6, commit=True) + a_batch(7)
    plain, asked = PartitionFold(0, 10), PartitionFold(0, 10, keep_episodes=True)
    plain.feed(batches)
    asked.feed(batches)
    assert plain.episodes == []
    assert [(e.start_offset, e.marker.offset, e.marker.outcome) for e in asked.episodes] == [
        (3, 4, "abort"),
        (5, 6, "commit"),
    ]


@pytest.mark.parametrize(
    ("listed", "batches", "expected"),
    [
        (None, [a_batch(3)], False),
        (2, [a_batch(3, leader_epoch=2)], False),
        (2, [a_batch(3, leader_epoch=3)], False),
        (2, [a_batch(3, leader_epoch=1)], True),
        (2, [a_batch(3, leader_epoch=1), a_batch(4, leader_epoch=2)], True),
        (2, [a_batch(3, leader_epoch=1), a_marker(4), a_batch(5, leader_epoch=2)], False),
        (2, [a_batch(3, leader_epoch=1), a_marker(4)], False),
    ],
)
def test_data_of_an_earlier_leader_than_the_listed_one_may_be_older(
    listed: int | None, batches: list[bytes], *, expected: bool
) -> None:
    (found,) = fold(*batches).facts(ORDERS, "id", 5, listed)
    assert found.may_be_older is expected
