"""DescribeProducers of many partitions, each from its leader; an error concerns only its own partition."""

from __future__ import annotations

from collections.abc import Iterable

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import ActiveProducer
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import NO_LEADER


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | str]:
    """The producers of each partition as its known leader describes them, or the error."""
    by_leader: dict[int, list[TopicPartition]] = {}
    answers: dict[TopicPartition, tuple[ActiveProducer, ...] | str] = {}
    for partition in partitions:
        info = cluster.known.info(partition)
        if info is None or info.leader == NO_LEADER:
            answers[partition] = "no leader"
        else:
            by_leader.setdefault(info.leader, []).append(partition)
    requests = {leader: messages.describe_producers_request(asked) for leader, asked in by_leader.items()}
    for leader, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            answers.update(dict.fromkeys(by_leader[leader], str(answer)))
        else:
            answers.update(messages.described(answer))
            for partition in by_leader[leader]:
                answers.setdefault(partition, "missing from the answer")
    return answers
