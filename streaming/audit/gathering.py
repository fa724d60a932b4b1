"""Asks a cluster for what `txnwatch audit` judges. Every request only reads, and their number is bounded.

With B brokers and T topics with transactional data: ApiVersions and DescribeConfigs of each broker, 2 B; Metadata, 1;
the coordinators' log, ListOffsets 2 B and its Fetches; DescribeProducers of the topics that the log does not name, B;
DescribeConfigs of the T topics, 1 for 500; DescribeAcls, 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from txnwatch.state.audit.audit_facts import (
    AnswerOfBroker,
    AuditedTopic,
    AuditFacts,
    NotAudited,
    ReplicasOfPartition,
    SetValue,
    holders_of,
)
from txnwatch.state.audit.broker_checks import BROKER_SETTINGS
from txnwatch.state.audit.topic_checks import TOPIC_SETTINGS
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    Problem,
    TopicPartition,
)
from txnwatch.state.text import grouped, some
from txnwatch.streaming.admin.kafka_settings import ConfigOf, configs_request, settings_of
from txnwatch.streaming.admin.transaction_requests import Filters, describe_producers, list_filtered
from txnwatch.streaming.audit.acl_rules import read_rules
from txnwatch.streaming.audit.coordinator_history import IdHistories, read_ids
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.wire.primitives import present

_TOPICS_AT_ONCE = 500
_NAMED = 3


def gather(cluster: Cluster, max_log_bytes: int | None, is_wanted: Callable[[str], object] | None = None) -> AuditFacts:
    """The facts; what cannot be asked is in `missing`. With None the coordinators' log is not read.

    Raises:
        BrokerError: no broker answers.
    """
    brokers = _brokers(cluster)
    topics, racks = _metadata(cluster)
    brokers = {node: replace(broker, rack=racks.get(node)) for node, broker in brokers.items()}
    ids, missing = read_ids(cluster, max_log_bytes) if max_log_bytes is not None else IdHistories(None, ())
    if TRANSACTION_STATE_TOPIC not in topics and max_log_bytes is not None:
        ids, missing = _without_log(cluster, missing)
    named = {place for one in (ids or {}).values() for place in one.partitions}
    transactional, not_described = _transactional(cluster, topics, named)
    if is_wanted is not None:
        transactional = {place for place in transactional if is_wanted(place.topic)}
    judged = {place.topic for place in transactional} | ({TRANSACTION_STATE_TOPIC} & topics.keys())
    settings = _topic_settings(cluster, sorted(judged & topics.keys()))
    acls = read_rules(cluster)
    return AuditFacts(
        brokers=brokers,
        topics={
            name: _with_settings(topic, settings.get(name), transactional)
            for name, topic in topics.items()
            if name in judged
        },
        now_ms=wall_clock_ms(),
        ids=ids,
        has_all_ids=not missing,
        rules=acls.rules,
        is_open=acls.is_open,
        missing=(*missing, *not_described, *acls.missing),
        holders=holders_of(topics),
    )


def _without_log(cluster: Cluster, missing: tuple[NotAudited, ...]) -> IdHistories:
    """No broker shows the log: it is hidden, or no transaction was ever begun, and then no id is missing."""
    is_unused = list_filtered(cluster, Filters()).is_unused
    return IdHistories({}, ()) if is_unused else IdHistories(None, missing)


# Brokers.


def _brokers(cluster: Cluster) -> dict[BrokerId, AnswerOfBroker]:
    known = cluster.known.brokers
    settings = settings_of(cluster, known, BROKER_SETTINGS)
    answers = cluster.ask(dict.fromkeys(known, _api_versions), cluster.timeout_s)
    found = {}
    for node, answer in answers.items():
        values, problem = settings[node]
        needs = problem.with_right("DESCRIBE_CONFIGS on the cluster") if problem is not None else None
        found[node] = replace(_answered(answer), settings=values, settings_problem=needs)
    return found


def _api_versions(connection: Connection) -> ApiVersionsRequest:
    """Version 4 also shows features whose lowest level is 0; before it they are left out."""
    version = connection.require_version(ApiVersionsRequest, highest=4)
    return ApiVersionsRequest(version=version, client_software_name="txnwatch", client_software_version="0")


def _answered(answer: Any) -> AnswerOfBroker:
    if isinstance(answer, BrokerError):
        return AnswerOfBroker(problem=Problem.from_error(answer))
    problem = problem_of(answer.error_code)
    if problem is not None:
        return AnswerOfBroker(problem=problem)
    epoch = getattr(answer, "finalized_features_epoch", None)
    is_known = epoch is not None and epoch >= 0
    finalized = {one.name: one.max_version_level for one in answer.finalized_features or ()}
    return AnswerOfBroker(
        versions={one.api_key: (one.min_version, one.max_version) for one in answer.api_keys},
        supported={one.name: one.max_version for one in answer.supported_features or ()},
        finalized=finalized if is_known else None,
    )


# Topics.


def _metadata(cluster: Cluster) -> tuple[dict[str, AuditedTopic], dict[BrokerId, str | None]]:
    """Every topic that is shown, and the racks of the brokers."""
    connection = cluster.any_connection()
    version = connection.require_version(MetadataRequest, highest=12, lowest=1)
    answer = cluster.call(connection, MetadataRequest(version=version, topics=None, allow_auto_topic_creation=False))
    topics = {
        topic.name: AuditedTopic(
            topic.name,
            {
                one.partition_index: ReplicasOfPartition(
                    present(one.leader_id),
                    tuple(map(BrokerId, one.replica_nodes)),
                    tuple(map(BrokerId, one.isr_nodes)),
                )
                for one in topic.partitions
            },
        )
        for topic in answer.topics
        if topic.name is not None and not topic.error_code
    }
    return topics, {BrokerId(one.node_id): one.rack or None for one in answer.brokers}


def _transactional(
    cluster: Cluster, topics: Mapping[str, AuditedTopic], named: set[TopicPartition]
) -> tuple[set[TopicPartition], tuple[NotAudited, ...]]:
    """The partitions with transactional data: those that the log names, and of other topics those that leaders show."""
    known = {place.topic for place in named} | {TRANSACTION_STATE_TOPIC}
    asked = [topic.place(number) for name, topic in topics.items() if name not in known for number in topic.partitions]
    found, problems = set(named), []
    for place, described in describe_producers(cluster, asked).items():
        if isinstance(described, Problem):
            problems.append((str(place), str(described)))
        elif any(one.txn_start_offset is not None or one.coordinator_epoch is not None for one in described):
            found.add(place)
    by_reason = grouped(problems)
    missing = (NotAudited(f"producers of {some(places, _NAMED)}", why) for why, places in by_reason.items())
    return found, tuple(missing)


_Settings = Mapping[str, SetValue] | Problem


def _topic_settings(cluster: Cluster, names: Sequence[str]) -> dict[str, _Settings]:
    """The settings of each topic, or why they are not known."""
    found: dict[str, _Settings] = {}
    for begin in range(0, len(names), _TOPICS_AT_ONCE):
        part = names[begin : begin + _TOPICS_AT_ONCE]
        try:
            found |= dict(_settings_at_once(cluster, part))
        except BrokerError as exc:
            found |= dict.fromkeys(part, Problem.from_error(exc))
    return found


def _settings_at_once(cluster: Cluster, names: Iterable[str]) -> Iterator[tuple[str, _Settings]]:
    connection = cluster.any_connection()
    answer = cluster.call(connection, configs_request(connection, ConfigOf.TOPIC, names, TOPIC_SETTINGS))
    for result in answer.results:
        problem = problem_of(result.error_code)
        yield (
            result.resource_name,
            problem.with_right("DESCRIBE_CONFIGS on the topic")
            if problem is not None
            else {one.name: SetValue(one.value, one.config_source) for one in result.configs if one.value is not None},
        )


def _with_settings(topic: AuditedTopic, settings: _Settings | None, transactional: set[TopicPartition]) -> AuditedTopic:
    numbers = frozenset(number for number in topic.partitions if topic.place(number) in transactional)
    if isinstance(settings, Problem):
        return replace(topic, transactional=numbers, settings_problem=settings)
    return replace(topic, transactional=numbers, settings=settings or {})
