"""ListOffsets: the request for the partitions of one leader, and the answer of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import ListOffsetsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, LeaderEpoch, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import Offset, TimestampMs
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.client.fan_out import Brokers, RequestOf, ask_for_each
from txnwatch.streaming.client.metadata import Metadata
from txnwatch.streaming.wire.absent import NONE, encoded, present

LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_NO_LEADER = Problem("NO_LEADER")
_NO_OFFSET = Problem("the leader returned no offset")


class ListedOffset(NamedTuple):
    """One partition's answer to ListOffsets.

    Attributes:
        leader_epoch: the epoch of the leader's log at `offset`; None if the leader did not return it.
        leader: the broker that answered.
    """

    offset: Offset
    leader_epoch: LeaderEpoch | None
    leader: BrokerId


def list_offsets(
    brokers: Brokers,
    known: Metadata,
    partitions: Iterable[TopicPartition],
    *,
    timestamp: int,
    isolation: int,
    timeout_s: float | None = None,
) -> dict[TopicPartition, ListedOffset | Problem]:
    """Asks each partition's leader for an offset, under the known leader epoch; one answer or problem per partition."""
    found = _ask(brokers, known, partitions, timestamp, isolation, timeout_s)
    return {partition: _NO_OFFSET if one is None else one for partition, one in found.items()}


def offsets_since(
    brokers: Brokers, known: Metadata, partitions: Iterable[TopicPartition], since_ms: TimestampMs
) -> dict[TopicPartition, ListedOffset | Problem | None]:
    """The first offset of each partition with a timestamp at or after a time; None if there is none."""
    return _ask(brokers, known, partitions, since_ms, READ_UNCOMMITTED, None)


def _ask(
    brokers: Brokers,
    known: Metadata,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    isolation: int,
    timeout_s: float | None,
) -> dict[TopicPartition, ListedOffset | Problem | None]:
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    epochs: dict[TopicPartition, LeaderEpoch | None] = {}
    answers: dict[TopicPartition, ListedOffset | Problem | None] = {}
    for partition in partitions:
        info = known.info(partition)
        if info is None or info.leader is None:
            answers[partition] = _NO_LEADER if info is not None else known.why_absent(partition)
        else:
            by_leader.setdefault(info.leader, []).append(partition)
            epochs[partition] = info.leader_epoch

    def request(asked: Sequence[TopicPartition]) -> RequestOf:
        return offsets_request([(partition, epochs[partition]) for partition in asked], timestamp, isolation)

    for partition, found in ask_for_each(brokers, by_leader, request, _listed, timeout_s).items():
        answers[partition] = Problem.from_error(found) if isinstance(found, BrokerError) else found
    return answers


def _listed(response: Any, leader: BrokerId) -> dict[TopicPartition, ListedOffset | Problem | None]:
    return {
        TopicPartition(topic.name, partition.partition_index): _answer(partition, leader)
        for topic in response.topics
        for partition in topic.partitions
    }


def _answer(partition: Any, leader: BrokerId) -> ListedOffset | Problem | None:
    problem, offset = problem_of(partition.error_code), present(partition.offset)
    if problem is not None or offset is None:
        return problem
    return ListedOffset(offset, present(partition.leader_epoch), leader)


def offsets_request(
    asked: list[tuple[TopicPartition, LeaderEpoch | None]], timestamp: int, isolation: int
) -> RequestOf:
    """Builds the request for a connection; `asked` has each partition and the leader epoch that we know of it."""

    def build(connection: Connection) -> ListOffsetsRequest:
        version = connection.require_version(ListOffsetsRequest, highest=8, lowest=4)
        topics: dict[str, list[Any]] = {}
        for partition, leader_epoch in asked:
            topics.setdefault(partition.topic, []).append(
                ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                    version=version,
                    partition_index=partition.partition,
                    current_leader_epoch=encoded(leader_epoch),
                    timestamp=timestamp,
                )
            )
        return ListOffsetsRequest(
            version=version,
            replica_id=NONE,
            isolation_level=isolation,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(version=version, name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    return build
