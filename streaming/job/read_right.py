"""Whether this user may describe and read topics, as the brokers answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead


def hidden_topic(cluster: Cluster, names: Collection[str]) -> str | None:
    """The first of these topics that this user may not describe, as text; None if there is none."""
    if not names:
        return None
    topics = cluster.metadata_from(cluster.any_connection().endpoint, names).topics
    hidden = next((topic.name for topic in topics.values() if topic.is_hidden), None)
    return f"topic {hidden}: expected the rights DESCRIBE and READ, found neither" if hidden is not None else None


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
    return [f"topic {read.partition.topic}: {one.detail}" for read in reads if read.is_denied for one in read.notices]
