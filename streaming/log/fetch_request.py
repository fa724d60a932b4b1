"""The Fetch request for some ranges of one leader."""

from __future__ import annotations

from typing import Any

from kafka.protocol.consumer import FetchRequest

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.fan_out import RequestOf
from txnwatch.streaming.client.metadata import topic_id_uuid
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.wire.absent import NONE, encoded
from txnwatch.streaming.wire.fetch_response import HIGHEST_VERSION

MAX_BYTES = 16 << 20
PARTITION_MAX_BYTES = (1 << 20, 8 << 20)
MAX_WAIT_MS = 100
_TOPIC_IDS_SINCE, _DIVERGING_EPOCH_SINCE = 13, 12


def fetch_size(connection: Connection, max_bytes: int) -> int:
    """How many bytes one Fetch asks for."""
    return min(MAX_BYTES, max_bytes, connection.pace.size)


def fetch_request(cluster: Cluster, reads: list[RangeRead], max_bytes: int) -> RequestOf:
    """Builds the Fetch of one leader for a connection: each range from its position on, under the known epoch."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(FetchRequest, highest=HIGHEST_VERSION, lowest=4)
        size = fetch_size(connection, max_bytes)
        per_partition = min(size, max(PARTITION_MAX_BYTES[0], min(PARTITION_MAX_BYTES[1], size // len(reads))))
        topics: dict[tuple[str, str], list[Any]] = {}
        for read in reads:
            topics.setdefault((read.partition.topic, read.topic_id), []).append(
                FetchRequest.FetchTopic.FetchPartition(
                    version=version,
                    partition=read.partition.partition,
                    current_leader_epoch=_leader_epoch(cluster, read.partition),
                    fetch_offset=read.fold.position,
                    last_fetched_epoch=encoded(read.last_fetched_epoch if version >= _DIVERGING_EPOCH_SINCE else None),
                    log_start_offset=NONE,
                    partition_max_bytes=per_partition,
                )
            )
        return FetchRequest(
            version=version,
            replica_id=NONE,
            max_wait_ms=MAX_WAIT_MS if any(not read.fold.is_done for read in reads) else 0,
            min_bytes=1,
            max_bytes=size,
            isolation_level=0,
            session_id=0,
            session_epoch=NONE,
            topics=[_topic(version, name, topic_id, parts) for (name, topic_id), parts in topics.items()],
            forgotten_topics_data=[],
            rack_id="",
        )

    return build


def _topic(version: int, name: str, topic_id: str, partitions: list[Any]) -> Any:
    named = {"topic_id": topic_id_uuid(topic_id)} if version >= _TOPIC_IDS_SINCE else {"topic": name}
    return FetchRequest.FetchTopic(version=version, partitions=partitions, **named)


def _leader_epoch(cluster: Cluster, partition: TopicPartition) -> int:
    info = cluster.known.info(partition)
    return encoded(info.leader_epoch if info is not None else None)
