"""The bytes of the coordinators' log: a record has the size of the newest ones, because compaction removes offsets."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from support.batches import a_batch, a_record
from support.problems import a_problem
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, TopicPartition
from txnwatch.streaming.checks.checkup import WINDOW_MS, LogBytes, coordinator_log_bytes
from txnwatch.streaming.client.cluster import EARLIEST, LATEST
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.log import lookups
from txnwatch.streaming.log.range_reading import RangeReading

FIRST, SECOND = (TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in range(2))
NOW_MS = 10 * WINDOW_MS
REFUSED = a_problem("CLUSTER_AUTHORIZATION_FAILED")
SMALL, LARGE = b"v" * 50, b"v" * 5_000
BATCH = len(a_batch(0, records=[a_record(key=b"k", value=SMALL)]))


def batches(offsets: Iterable[int], value: bytes = SMALL) -> dict[int, bytes]:
    """One-record batches at these offsets; compaction has removed the offsets between them."""
    return {at: a_batch(at, records=[a_record(key=b"k", value=value)]) for at in offsets}


class Log:
    """As much of a Cluster as the estimate needs: a log of two partitions, led by one broker.

    Attributes:
        since: the first offset of the last hour; None if there is none.
        sizes: the sizes that the leader shows; `problem` is its error code.
    """

    timeout_s = 1.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches = {FIRST: batches(range(900, 1_000)), SECOND: batches([])}
        self.since: dict[TopicPartition, int | Problem | None] = {FIRST: 640, SECOND: None}
        self.ends: dict[TopicPartition, int | Problem] = {FIRST: 1_000, SECOND: 0}
        self.starts = {FIRST: 0, SECOND: 0}
        self.sizes = {FIRST: 30_000, SECOND: 500}
        self.problem = 0
        partitions = {one.partition: PartitionInfo(1, 0) for one in self.batches}
        topic = TopicInfo(TRANSACTION_STATE_TOPIC, "id", partitions)
        self.known = Metadata("c", {1: "one"}, {topic.name: topic})  # type: ignore[dict-item]
        monkeypatch.setattr(lookups, "read_ranges", self.read)

    def list_offsets(self, partitions: Iterable[TopicPartition], *, timestamp: int = LATEST) -> dict[Any, Any]:
        found = self.starts if timestamp == EARLIEST else self.ends
        return {one: listed(found[one]) for one in partitions}

    def offsets_since(self, partitions: Iterable[TopicPartition], since_ms: int) -> dict[Any, Any]:
        assert since_ms == NOW_MS - WINDOW_MS
        return {one: listed(self.since[one]) for one in partitions}

    def read(self, _: object, reads: Iterable[RangeReading], **__: object) -> None:
        for read in reads:
            read.fold.feed(b"".join(raw for at, raw in self.batches[read.partition].items() if at >= read.start))

    def ask(self, *_: object) -> dict[int, Any]:
        replicas = [
            SimpleNamespace(partition_index=one.partition, partition_size=size, is_future_key=False)
            for one, size in self.sizes.items()
        ]
        topic = SimpleNamespace(name=TRANSACTION_STATE_TOPIC, partitions=replicas)
        result = SimpleNamespace(error_code=self.problem, topics=[] if self.problem else [topic])
        return {1: SimpleNamespace(results=[result])}


def listed(found: int | Problem | None) -> ListedOffset | Problem | None:
    return ListedOffset(found, 0, 1) if isinstance(found, int) else found  # type: ignore[arg-type]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def estimate(log: Any) -> LogBytes:
    return coordinator_log_bytes(log, NOW_MS)


def test_each_offset_of_the_last_hour_has_the_size_of_a_newest_record(log: Log) -> None:
    assert estimate(log) == LogBytes(BATCH * 360 / 3_600, 30_500)
    log.batches[SECOND], log.ends[SECOND], log.since[SECOND] = batches(range(10), LARGE), 10, 4
    large = len(log.batches[SECOND][0])
    assert estimate(log).per_second == pytest.approx((BATCH * 360 + large * 6) / 3_600)


def test_offsets_that_compaction_has_removed_do_not_make_a_record_smaller(log: Log) -> None:
    log.batches[FIRST] = batches([*range(0, 900, 100), 950, 999])
    assert estimate(log).per_second == pytest.approx(BATCH * 360 / 3_600)


def test_only_the_newest_records_count(log: Log) -> None:
    log.batches[FIRST] = {**batches(range(800, 900), LARGE), **batches(range(900, 1_000))}
    assert estimate(log).per_second == pytest.approx(BATCH * 360 / 3_600)


def test_deleted_records_of_the_last_hour_are_not_counted(log: Log) -> None:
    log.starts[FIRST] = 990
    assert estimate(log).per_second == pytest.approx(BATCH * 10 / 3_600)


@pytest.mark.parametrize("place", ["since", "ends"])
def test_a_partition_that_is_not_listed_is_counted_as_unread(log: Log, place: str) -> None:
    getattr(log, place)[SECOND] = a_problem("NOT_LEADER_OR_FOLLOWER")
    assert estimate(log) == LogBytes(BATCH * 360 / 3_600, 30_500, unread=1)


def test_a_partition_whose_records_cannot_be_read_is_counted_as_unread(log: Log) -> None:
    log.batches[FIRST] = {}
    assert estimate(log) == LogBytes(0.0, 30_500, unread=1)


def test_a_size_that_is_not_shown_is_no_size_of_zero(log: Log) -> None:
    del log.sizes[SECOND]
    assert estimate(log) == LogBytes(BATCH * 360 / 3_600, None)
    log.problem = 31
    found = estimate(log)
    assert found.size is None
    assert found.problem is not None
    assert found.problem.is_denied


def test_a_log_that_does_not_exist_has_no_bytes(log: Log) -> None:
    log.known.topics.clear()
    assert estimate(log) == LogBytes(0.0, 0)
