"""History: what was folded below a cut is kept, and what could not be had is a row."""

from __future__ import annotations

from support.batches import a_batch, a_marker
from support.facts import ORDERS, PAYMENTS
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset
from txnwatch.streaming.source.rows import Row, episode_rows
from txnwatch.streaming.source.tasks import unlisted


def range_of(end: int) -> RangeReading:
    return RangeReading(Range(ORDERS, "id", 0, end, 3), lambda *at: PartitionFold(*at, keep_episodes=True))


def transaction(offset: int) -> bytes:
    """A batch and its marker."""
    return bytes(a_batch(offset, producer_id=7) + a_marker(offset + 1, producer_id=7))


def episodes(rows: list[Row]) -> list[int]:
    finished = [row["finished_transaction"] for row in rows if row["kind"] == "finished_transaction"]
    return [found["episode"]["start_offset"] for found in finished]


def missing(rows: list[Row]) -> list[tuple[str, int, int]]:
    notices = [row["partition_notice"] for row in rows if row["kind"] == "partition_notice"]
    return [(found["kind"], found["from_offset"], found["to_offset"]) for found in notices]


def test_episodes_from_before_a_loss_by_retention_are_kept() -> None:
    read = range_of(10)
    read.fold.feed(transaction(0))
    read.lost(6, "retention")
    read.fold.feed(transaction(6) + transaction(8))
    rows = list(episode_rows([read], (), {}))
    assert episodes(rows) == [0, 6, 8]
    assert missing(rows) == [("lost", 2, 6)]
    assert not read.needs_fetch


def test_episodes_below_a_truncation_are_returned_once() -> None:
    read = range_of(6)
    read.fold.feed(transaction(0) + transaction(2) + a_batch(4, producer_id=7))
    read.truncated(4, "cut", 1)
    assert (read.fold.position, read.last_epoch) == (0, 3), "from the range's beginning, which both logs have"
    read.fold.feed(transaction(0) + transaction(2) + transaction(4))
    rows = list(episode_rows([read], (), {}))
    assert episodes(rows) == [0, 2, 4]
    assert missing(rows) == [("truncated", 4, 5)]


def test_a_cut_below_the_range_is_read_from_there() -> None:
    read = RangeReading(Range(ORDERS, "id", 8, 9, 3, must_check=True), PartitionFold)
    read.truncated(4, "cut", 2)
    assert (read.fold.position, read.last_epoch, read.must_check) == (4, 2, False)


def test_an_unreadable_range_is_a_row_of_its_partition() -> None:
    read = range_of(10)
    read.fold.feed(transaction(0))
    read.gap("CORRUPT_MESSAGE")
    rows = list(episode_rows([read], (), {}))
    assert (episodes(rows), missing(rows)) == ([0], [("gap", 2, 10)])


def test_a_partition_that_did_not_answer_is_a_row_and_so_is_a_log_in_the_facts() -> None:
    log = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    silent = NotBegun("id")
    end = SourceOffset("c", 1, 0, 0, {ORDERS: Position("id", 5, 0, 5, leader=1), PAYMENTS: silent, log: silent})
    reported = unlisted(end)
    assert [notice.partition for notice in reported] == [log, PAYMENTS]
    (row,) = episode_rows([], reported[1:], {})
    assert row["partition_notice"]["partition"] == PAYMENTS._asdict()


def test_the_owner_and_the_time_are_beside_the_episode_and_unknown_ones_are_null() -> None:
    read = range_of(20)
    read.fold.feed(
        a_batch(0, producer_id=7, base_timestamp=1_000, max_timestamp=1_200)
        + a_batch(1, producer_id=7, base_timestamp=5_000)
        + a_marker(2, producer_id=7, timestamp=9_000)
        + a_batch(3, producer_id=8, base_timestamp=9_500)
        + a_marker(4, producer_id=8, timestamp=9_000)
        + a_batch(5, producer_id=7, base_timestamp=-1)
        + a_marker(6, producer_id=7, timestamp=9_000)
    )
    rows = [row["finished_transaction"] for row in episode_rows([read], (), {7: "app"}) if row["kind"] != "read_range"]
    found = [(row["transactional_id"], row["open_ms"], row["episode"]["first_timestamp_ms"]) for row in rows]
    assert found == [("app", 7_800, 1_200), (None, None, 9_500), ("app", None, None)]


def test_a_range_ends_where_it_was_read_to_and_a_later_query_begins_at_what_is_open() -> None:
    read = range_of(10)
    read.fold.feed(transaction(0) + a_batch(2, producer_id=9) + transaction(3))
    (row,) = (row["read_range"] for row in episode_rows([read], (), {}) if row["kind"] == "read_range")
    assert (row["from_offset"], row["to_offset"], row["open_from"]) == (0, 5, 2)
    read.fold.feed(a_marker(5, producer_id=9))
    (row,) = (row["read_range"] for row in episode_rows([read], (), {}) if row["kind"] == "read_range")
    assert (row["to_offset"], row["open_from"]) == (6, 6)
