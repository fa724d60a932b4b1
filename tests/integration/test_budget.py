"""A read that a budget stops, against a real broker: the rest is reported, and read on until nothing is missing."""

from __future__ import annotations

import math
import time

import pytest

from support.raw_log import range_of
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from txnwatch.state.model.facts import NoticeKind
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import NO_LIMIT, Budget, read_ranges

PATIENCE_S = 10.0
LARGE, SMALL = 60, 3


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response brings a batch or two, so that reading takes many of them."""
    monkeypatch.setattr(fetch, "PARTITION_MAX_BYTES", (200, 200))
    monkeypatch.setattr(fetch, "MAX_BYTES", 400)


@pytest.mark.usefixtures("small_answers")
def test_small_ranges_are_read_whole_and_the_large_one_in_parts(cluster: Cluster) -> None:
    large, small = create_topic(cluster, unique("budget"), partitions=2)
    producer = RawProducer(cluster, unique("budget")).init()
    for partition, batches in ((large, LARGE), (small, SMALL)):
        for _ in range(batches):
            producer.produce(partition, transactional=False)
    offsets: list[int] = []
    rounds = 0
    while len(offsets) < LARGE:
        begin = len(offsets)
        reads = [range_of(cluster, large, begin, LARGE), range_of(cluster, small, 0, SMALL)]
        read_ranges(cluster, reads, patience_s=PATIENCE_S, budgets=[Budget(reads, max_bytes=1500)])
        assert (reads[1].fold.offsets, reads[1].notices) == (list(range(SMALL)), []), "the small one is read whole"
        offsets += reads[0].fold.offsets
        rounds += 1
        if len(offsets) < LARGE:
            (notice,) = reads[0].notices
            assert (notice.kind, notice.from_offset, notice.to_offset) == (NoticeKind.LEFT, len(offsets), LARGE)
    assert offsets == list(range(LARGE))
    assert rounds > 2


def test_time_that_is_up_leaves_the_rest_but_not_before_an_answer(cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("budget"))
    producer = RawProducer(cluster, unique("budget")).init()
    for _ in range(10):
        producer.produce(partition, [b"x" * 200_000], transactional=False)
    read = range_of(cluster, partition, 0, 10)
    read_ranges(cluster, [read], patience_s=PATIENCE_S, budgets=[Budget([read], NO_LIMIT, time.monotonic())])
    assert 0 < read.fold.position <= 10
    again = range_of(cluster, partition, read.fold.position, 10)
    read_ranges(cluster, [again], patience_s=PATIENCE_S, budgets=[Budget([again], NO_LIMIT, math.inf)])
    assert [*read.fold.offsets, *again.fold.offsets] == list(range(10))
