"""Whether this user may read topics, as the leaders of their partitions answer."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead


def refused_read(cluster: Cluster, topics: Iterable[TopicInfo]) -> list[str]:
    """The missing READ rights: an empty Fetch of one partition of each topic, whose leader checks the right first."""
    first = [TopicPartition(topic.name, min(topic.partitions)) for topic in topics if topic.partitions]
    ends = cluster.list_offsets(first)
    reads = [
        RangeRead(
            partition=partition,
            topic_id=cluster.known.topics[partition.topic].topic_id,
            start=end.offset,
            end=end.offset,
            last_epoch=None,
            must_check=True,
            new_fold=PartitionFold,
        )
        for partition in first
        if isinstance(end := ends[partition], ListedOffset)
    ]
    read_ranges(cluster, reads, patience_s=0.0)
    return [notice.detail for read in reads if read.is_denied for notice in read.notices]
