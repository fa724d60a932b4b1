"""The rights of this user on topics. They are queried, not tried: Metadata answers with the allowed operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.problem import Problem
from txnwatch.streaming.client.answers import the_one
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.error_names import problem_of

# Kafka's class AclOperation
READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 7, 8, 10
Operations = frozenset[int] | None


def topic_operations(cluster: Cluster) -> dict[str, Operations]:
    """What this user may do with each topic that it may describe; None if the broker does not report it."""
    try:
        connection = cluster.any_connection()
        version = connection.version(MetadataRequest, highest=12)
        if version is None or version < 8:
            return {}
        request = MetadataRequest(
            version=version,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        )
        topics: Iterable[Any] = cluster.call(connection, request).topics
        return {
            topic.name: operations_of(topic.authorized_operations)
            for topic in topics
            if not topic.error_code and topic.name is not None  # null only answers a request by topic id
        }
    except BrokerError:
        return {}


def create_problem(cluster: Cluster, topic: str) -> Problem | None:
    """Why a topic cannot be created; the request only validates."""
    try:
        connection = cluster.any_connection()
        version = connection.require_version(CreateTopicsRequest, highest=5, lowest=4)
        wanted = CreateTopicsRequest.CreatableTopic(
            version=version, name=topic, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(version=version, topics=[wanted], timeout_ms=5_000, validate_only=True)
        answer = the_one(cluster.call(connection, request).topics)
    except BrokerError as exc:
        return Problem.from_error(exc)
    return problem_of(answer.error_code)


def operations_of(allowed: set[int] | None) -> Operations:
    """The operations of an answer, as a value."""
    return None if allowed is None else frozenset(allowed)
