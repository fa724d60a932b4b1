"""ListOffsets: the request for the partitions of one leader, and the answer of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, LeaderEpoch, TopicPartition
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.client.connection import Connection, error_name
from txnwatch.streaming.client.fan_out import Brokers, RequestOf, ask_for_each
from txnwatch.streaming.client.metadata import NO_LEADER, Metadata

LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class ListedOffset(NamedTuple):
    """One partition's answer to ListOffsets; `leader_epoch` is the epoch of the leader's log at `offset`.

    If `error` is set, the other fields have no meaning.
    """

    offset: Offset
    leader_epoch: LeaderEpoch
    error: str | None = None
    leader: BrokerId = BrokerId(-1)


def list_offsets(
    brokers: Brokers,
    known: Metadata,
    partitions: Iterable[TopicPartition],
    *,
    timestamp: int,
    isolation: int,
    timeout_s: float | None = None,
) -> dict[TopicPartition, ListedOffset]:
    """Asks each partition's leader for an offset, under the known leader epoch; one answer per partition."""
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    epochs: dict[TopicPartition, LeaderEpoch] = {}
    answers: dict[TopicPartition, ListedOffset] = {}
    for partition in partitions:
        info = known.info(partition)
        if info is None or info.leader == NO_LEADER:
            why = "NO_LEADER" if info is not None else known.why_absent(partition)
            answers[partition] = _failed(why)
        else:
            by_leader.setdefault(info.leader, []).append(partition)
            epochs[partition] = info.leader_epoch

    def request(asked: Sequence[TopicPartition]) -> RequestOf:
        return _request([(partition, epochs[partition]) for partition in asked], timestamp, isolation)

    for partition, found in ask_for_each(brokers, by_leader, request, _listed, timeout_s).items():
        answers[partition] = _failed(str(found)) if isinstance(found, BrokerError) else found
    return answers


def _failed(error: str) -> ListedOffset:
    return ListedOffset(Offset(-1), LeaderEpoch(-1), error)


def _listed(response: Any, leader: BrokerId) -> dict[TopicPartition, ListedOffset]:
    return {
        TopicPartition(topic.name, partition.partition_index): ListedOffset(
            partition.offset,
            partition.leader_epoch,
            error_name(partition.error_code) if partition.error_code else None,
            leader,
        )
        for topic in response.topics
        for partition in topic.partitions
    }


def _request(asked: list[tuple[TopicPartition, LeaderEpoch]], timestamp: int, isolation: int) -> RequestOf:
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
