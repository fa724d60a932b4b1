"""DescribeProducers of many partitions, each from its leader; an error concerns only its own partition."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.state.model.problem import Problem
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.fan_out import ask_for_each
from txnwatch.streaming.client.metadata import NO_LEADER


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
    """The producers of each partition as its known leader describes them, or the problem."""
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    answers: dict[TopicPartition, tuple[ActiveProducer, ...] | Problem] = {}
    for partition in partitions:
        info = cluster.known.info(partition)
        if info is None or info.leader is None:
            answers[partition] = NO_LEADER
        else:
            by_leader.setdefault(info.leader, []).append(partition)
    found = ask_for_each(cluster, by_leader, messages.describe_producers_request, messages.described)
    return answers | {at: Problem.from_error(one) if isinstance(one, BrokerError) else one for at, one in found.items()}
