"""The ListOffsets request for the partitions of one leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.protocol.consumer import ListOffsetsRequest

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.client.connection import Connection


def list_offsets_request(
    asked: list[tuple[TopicPartition, int]], timestamp: int, isolation: int
) -> Callable[[Connection], Any]:
    """Builds the request for a connection; `asked` has each partition and the leader epoch that we know of it."""

    def build(connection: Connection) -> ListOffsetsRequest:
        version = connection.require_version(ListOffsetsRequest, highest=8, lowest=4)
        topics: dict[str, list[Any]] = {}
        for partition, leader_epoch in asked:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    version=version,
                    partition_index=partition.partition,
                    current_leader_epoch=leader_epoch,
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            version=version,
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(version=version, name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    return build
