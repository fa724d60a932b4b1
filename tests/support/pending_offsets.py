"""Offsets of a group that are pending for ever: a transaction's last commit of offsets arrives after its end."""

from __future__ import annotations

import struct

from support.offset_producer import OffsetProducer
from support.topics import unique
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    SpanStart,
    TopicPartition,
    coordinator_partition,
)
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.late_write import await_end

COMMITTED, LATE = 1, 2


def offsets_partition(cluster: Cluster, group: str) -> TopicPartition:
    """The partition of `__consumer_offsets` that has the offsets of a group."""
    count = len(cluster.refresh().topics[CONSUMER_OFFSETS_TOPIC].partitions)
    return TopicPartition(CONSUMER_OFFSETS_TOPIC, coordinator_partition(group, count))


def late_offsets(cluster: Cluster, group: str, *sources: TopicPartition) -> tuple[OffsetProducer, SpanStart]:
    """Commits an offset of each source in a transaction, and another one after its end: the second one hangs."""
    client = OffsetProducer(cluster, unique("stream"))
    client.init()
    client.add_offsets(group)
    for source in sources:
        client.commit_offset(group, source, COMMITTED)
    client.end(commit=True)
    where = offsets_partition(cluster, group)
    await_end(cluster, client, where)
    for source in sources:
        client.commit_offset(group, source, LATE)
    row = ClusterAdmin(cluster).read_partitions([where])[where].open_transaction(client.producer_id)
    assert row is not None
    return client, SpanStart(where, client.producer_id, row.start_offset)


def an_offset_key(group: str, topic: str, partition: int, *, version: int = 1) -> bytes:
    """A key of `__consumer_offsets` about a committed offset, written down from Kafka's schema."""
    texts = (struct.pack(">h", len(text.encode())) + text.encode() for text in (group, topic))
    return struct.pack(">h", version) + b"".join(texts) + struct.pack(">i", partition)
