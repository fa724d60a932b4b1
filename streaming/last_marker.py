"""The last marker of a producer below an offset, read from the partition: how a hang would have ended depends on it."""

from __future__ import annotations

from txnwatch.state.facts import NoticeKind
from txnwatch.state.ids import TopicPartition
from txnwatch.state.transaction import Marker
from txnwatch.streaming.cluster import EARLIEST, Cluster
from txnwatch.streaming.fetch import read_ranges
from txnwatch.streaming.fold import PartitionFold
from txnwatch.streaming.range_read import RangeRead

_AT_MOST = 100_000
_PATIENCE_S = 5.0


def last_marker_below(cluster: Cluster, partition: TopicPartition, producer_id: int, below: int) -> Marker | None:
    """The producer's last marker in the last hundred thousand offsets below one; None if there is none, or unread."""
    earliest = cluster.list_offsets([partition], timestamp=EARLIEST)[partition]
    topic = cluster.known.topics.get(partition.topic)
    if earliest.error is not None or topic is None:
        return None
    start = max(earliest.offset, below - _AT_MOST)
    if start >= below:
        return None
    read = RangeRead(partition, topic.topic_id, start, below, -1, must_check=False, new_fold=PartitionFold)
    read_ranges(cluster, [read], patience_s=_PATIENCE_S)
    if any(notice.kind is not NoticeKind.LOST for notice in read.notices):
        return None
    facts = read.fold.facts(partition, topic.topic_id, 0)
    return next((fact.last_marker for fact in facts if fact.producer_id == producer_id), None)
