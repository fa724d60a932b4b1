"""Partitions of a real broker as the detector sees them, beside the answer of their leader.

Law: reading, folding and joining are the product's (read_ranges, PartitionFold, bucket.process); when to read, and to
heal what was lost, is what lister and planner would do. `difference` is for partitions that are read to the end
and have no gap: for others the job itself reports that it proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from support.facts import DictStore
from txnwatch.state.detection import bucket
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import Barrier, Fact, NoticeKind
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log import partition_fold as fold
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.census_schedule import Asked, Census, take_census

_POLICY = DetectionPolicy()


class LiveWatcher:
    """What the state knows of some partitions.

    Attributes:
        positions: how far each partition is read.
        unhealed: partitions of which something was lost, without a census since.
        comparisons: how many partitions were compared.
        healings: how many had a census after a loss.
        most_open: the most that was open in a partition that was compared.
    """

    def __init__(self, cluster: Cluster, partitions: Iterable[TopicPartition]) -> None:
        self._cluster = cluster
        self.positions = dict.fromkeys(partitions, 0)
        self.unhealed: set[TopicPartition] = set()
        self.comparisons = 0
        self.healings = 0
        self.most_open = 0
        self._number = 0
        self._store = DictStore()
        self._bucket = BucketState()

    def read(self, ends: Mapping[TopicPartition, int]) -> None:
        """Reads on to these ends."""
        facts = self._facts({partition: (self.positions[partition], end) for partition, end in ends.items()})
        self._process(facts)
        self.positions.update(ends)

    def heal(self) -> None:
        """Two censuses of what needs it, and a barrier after them: what they do not show is over then."""
        asked = {
            partition: Asked(self._cluster.known.topics[partition.topic].topic_id, self.positions[partition])
            for partition in self.unhealed
        }
        if asked:
            self.healings += len(asked)
            self.unhealed.clear()
            for _ in range(2):
                self._process(list(take_census(self._cluster, Census(asked, wall_clock_ms()))))
            self._process([])

    def _facts(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> list[Fact]:
        reads = [
            RangeReading(
                Range(partition, self._cluster.known.topics[partition.topic].topic_id, start, end),
                fold.PartitionFold,
            )
            for partition, (start, end) in ranges.items()
        ]
        read_ranges(self._cluster, reads, patience_s=10.0)
        facts: list[Fact] = []
        for read in reads:
            facts.extend(read.notices)
            facts.extend(read.fold.facts(read.partition, read.topic_id, 0))
            if any(notice.kind is NoticeKind.LOST for notice in read.notices):
                self.unhealed.add(read.partition)
            assert read.fold.is_done or read.partition in self.unhealed
        return facts

    def _process(self, facts: list[Fact]) -> None:
        self._number += 1
        barrier = Barrier(self._number, self._number, self._number)
        bucket.process(self._bucket, self._store, [*facts, barrier], _POLICY, reports_partitions=True)

    def open(self, partition: TopicPartition) -> dict[int, tuple[int, int]]:
        """{producer id: (start offset, epoch)} of everything open on a partition."""
        found = {}
        for producer_id in self._bucket.agenda:
            producer = self._store.get(producer_id)
            span = producer.spans.get(partition) if producer is not None else None
            if span is not None:
                found[producer_id] = span.start_offset, span.epoch
        return found

    def difference(self, readings: Mapping[TopicPartition, PartitionReading]) -> str | None:
        """How the state differs from DescribeProducers and from the last stable offset."""
        for partition, reading in readings.items():
            if self.positions[partition] < reading.high_watermark or partition in self.unhealed:
                continue
            ours = self.open(partition)
            rows = [row for row in reading.producers if row.txn_start_offset is not None]
            theirs = {row.producer_id: (row.txn_start_offset, row.producer_epoch) for row in rows}
            if ours != theirs:
                return f"{partition}: we hold {ours}, its leader {theirs}"
            first = min((start for start, _ in ours.values()), default=reading.high_watermark)
            # Below the log's start it sticks there; in the middle of a batch Kafka 4.3.1 returns its beginning.
            reported, log_start = reading.last_stable_offset, reading.log_start_offset
            if reported != first and not first <= reported <= log_start:
                return (
                    f"{partition}: we have {first} as last stable offset, its leader {reported} (starts at {log_start})"
                )
            self.comparisons += 1
            self.most_open = max(self.most_open, len(ours))
        return None
