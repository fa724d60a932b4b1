"""Where a log begins and ends now, for one-time reads of all of it or of a part.

A log that could not be listed is a problem, and a part that could not be read has a notice. The caller decides what
they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from txnwatch.state.model.ids import LeaderEpoch, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import FIRST_OFFSET, Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.list_offsets import EARLIEST
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_read import Fold, RangeRead

_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Extent:
    """Where a partition's log begins and ends now, [start, end), and its leader epoch if the leader returned it."""

    partition: TopicPartition
    topic_id: str
    start: Offset
    end: Offset
    leader_epoch: LeaderEpoch | None = None

    def part(
        self, new_fold: Callable[[Offset, Offset], Fold], start: Offset = FIRST_OFFSET, end: Offset | None = None
    ) -> RangeRead:
        """A read of what the log has of [start, end); by default of all of it."""
        last = self.end if end is None else min(end, self.end)
        first = min(max(start, self.start), last)
        return RangeRead(self.partition, self.topic_id, first, last, None, must_check=False, new_fold=new_fold)


def list_extents(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Extent | Problem]:
    """The extent of each partition, in the given order."""
    starts = cluster.list_offsets(partitions, timestamp=EARLIEST)
    ends = cluster.list_offsets(partitions)
    found: dict[TopicPartition, Extent | Problem] = {}
    for partition in partitions:
        start, end, topic = starts[partition], ends[partition], cluster.known.topics.get(partition.topic)
        topic_id = topic.topic_id if topic is not None else ""
        if isinstance(start, Problem):
            found[partition] = start
        elif isinstance(end, Problem):
            found[partition] = end
        else:
            found[partition] = Extent(partition, topic_id, start.offset, end.offset, end.leader_epoch)
    return found


def read_parts(cluster: Cluster, parts: Iterable[RangeRead], until: float = math.inf) -> list[RangeRead]:
    """Reads parts of logs in parallel, each to its end, to a notice with the reason, or until the time `until`."""
    reads = list(parts)
    read_ranges(cluster, reads, patience_s=_PATIENCE_S, until=until)
    return reads
