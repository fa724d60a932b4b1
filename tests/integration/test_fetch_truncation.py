"""A log that an unclean election cuts is seen to be cut (KIP-320), and read again from where both logs agree."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.raw_log import range_of
from support.raw_producer import RawProducer
from support.servers import connect, whole
from support.topics import await_leader, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_reading import RangeReading
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
KEPT, CUT = 6, 14  # offsets both replicas had, and offsets that were read from the one that died


@dataclass
class CutLog:
    """Partitions of which [0, CUT) was read under `epoch`, and of which the new leader has only [0, KEPT)."""

    cluster: Cluster
    partitions: list[TopicPartition]
    epoch: int = -1

    def __post_init__(self) -> None:
        # While the brokers are whole; a cut log does not continue the sequences of who wrote the part that is gone.
        self._producers = [RawProducer(self.cluster, unique("unclean")).init() for _ in range(4)]

    def write(self, batches: int, *partitions: TopicPartition) -> int:
        """A producer that has not written yet writes batches of two records; returns where the logs end then."""
        producer, base = self._producers.pop(), 0
        for partition in partitions:
            for _ in range(batches):
                base = producer.produce(partition, [b"one", b"two"], transactional=False)
        return base + 2

    def range(self, partition: TopicPartition, start: int, end: int) -> RangeReading:
        """A range as a micro-batch has it that sees a risen leader epoch."""
        return range_of(self.cluster, partition, start, end, last_epoch=self.epoch, must_check=True)


@pytest.fixture(scope="module")
def cut(kafka3: EmbeddedKafka) -> Iterator[CutLog]:
    with contextlib.closing(connect(kafka3)) as cluster:
        partitions = create_topic(cluster, unique("unclean"), replicas=[[2, 3]] * 3, config=UNCLEAN)
        log = CutLog(cluster, partitions)
        for partition in partitions:
            await_leader(cluster, partition, 2)
        assert log.write(KEPT // 2, *partitions) == KEPT
        kafka3.broker(3).kill()
        assert log.write((CUT - KEPT) // 2, *partitions) == CUT, "acknowledged by every replica in sync: by one"
        reads = [range_of(cluster, partition, 0, CUT) for partition in partitions]
        read_ranges(cluster, reads, patience_s=10.0)
        assert [read.fold.offsets for read in reads] == [list(range(CUT))] * 3
        log.epoch = reads[0].fold.leader_epoch
        kafka3.broker(2).kill()
        kafka3.start_broker(3)
        for partition in partitions:
            await_leader(cluster, partition, 3)
        eventually(
            lambda: {getattr(end, "offset", None) for end in cluster.list_offsets(partitions).values()} == {KEPT},
            15.0,
            "the new leader's logs to be shorter",
        )
        yield log
    whole(kafka3)


def notices(read: RangeReading) -> list[tuple[str, int, int]]:
    return [(notice.kind, notice.from_offset, notice.to_offset) for notice in read.notices]


def test_a_log_that_ends_before_what_was_read_is_truncated(cut: CutLog) -> None:
    read = cut.range(cut.partitions[0], CUT, KEPT)
    read_ranges(cut.cluster, [read], patience_s=0.5)
    assert notices(read) == [(NoticeKind.TRUNCATED, KEPT, CUT)]
    assert read.fold.offsets == []
    assert not read.needs_fetch


def test_an_end_listed_before_the_cut_is_a_gap_until_the_log_has_it_again(cut: CutLog) -> None:
    read = cut.range(cut.partitions[0], CUT, CUT)
    read_ranges(cut.cluster, [read], patience_s=0.5)
    assert notices(read) == [(NoticeKind.TRUNCATED, KEPT, CUT), (NoticeKind.GAP, KEPT, CUT)]


def test_a_log_that_is_longer_than_what_was_read_is_still_seen_to_differ_and_read_again(cut: CutLog) -> None:
    partition = cut.partitions[1]
    end = cut.write(6, partition)
    assert end > CUT, "its end alone shows nothing"
    read = cut.range(partition, CUT, end)
    read_ranges(cut.cluster, [read], patience_s=10.0)
    assert notices(read) == [(NoticeKind.TRUNCATED, KEPT, CUT)]
    assert f"diverges after offset {KEPT}" in read.notices[0].detail
    assert read.fold.offsets == list(range(KEPT, end)), "from where both logs agree, nothing twice, nothing left out"
    assert read.fold.leader_epoch > cut.epoch


def test_offsets_that_both_logs_have_are_not_read_again(cut: CutLog) -> None:
    partition = cut.partitions[2]
    end = cut.write(1, partition)
    read = cut.range(partition, KEPT, end)
    read_ranges(cut.cluster, [read], patience_s=10.0)
    assert notices(read) == []
    assert read.fold.offsets == list(range(KEPT, end))
