"""Asks a cluster for what `txnwatch audit` judges. Every request only reads, and no two ask the same.

With B brokers: what each broker supports, from the start of its connection; Metadata, 1, and 1 more for topics that
the log names and that are not shown; Fetch of the coordinators' log, B or more; DescribeProducers of the topics that
the log does not name, B; DescribeConfigs of each broker, of which one also returns the settings of up to 500 topics, B;
DescribeAcls, 1. docs/audit.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
from txnwatch.streaming.admin.kafka_settings import ConfigOf, Settings, configs_request, settings_in
from txnwatch.streaming.admin.transaction_requests import Filters, describe_producers, list_filtered
from txnwatch.streaming.audit.acl_rules import read_rules
from txnwatch.streaming.audit.coordinator_history import IdHistories, read_ids
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.client.hidden_topics import hidden_topics
from txnwatch.streaming.wire.primitives import present

_TOPICS_AT_ONCE = 500
_NAMED = 3


def gather(cluster: Cluster, max_log_bytes: int | None, is_wanted: Callable[[str], object] | None = None) -> AuditFacts:
    """The facts; what cannot be asked is in `missing`. With None the coordinators' log is not read.

    Raises:
        BrokerError: no broker answers.
    """
    topics, racks = _metadata(cluster)
    ids, missing = read_ids(cluster, max_log_bytes) if max_log_bytes is not None else IdHistories(None, ())
    if TRANSACTION_STATE_TOPIC not in topics and max_log_bytes is not None:
        ids, missing = _without_log(cluster, missing)
    named = {place for audited in (ids or {}).values() for place in audited.partitions}
    transactional, not_described = _transactional(cluster, topics, named)
    if is_wanted is not None:
        transactional = {place for place in transactional if is_wanted(place.topic)}
    hidden = hidden_from_audit(cluster, {place.topic for place in transactional} - topics.keys())
    judged = {place.topic for place in transactional} | ({TRANSACTION_STATE_TOPIC} & topics.keys())
    of_brokers, settings = _settings(cluster, sorted(judged & topics.keys()))
    brokers = {node: replace(_shown(cluster, node, of_brokers[node]), rack=racks.get(node)) for node in of_brokers}
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
        missing=(*missing, *not_described, *hidden, *acls.missing),
        holders=holders_of(topics),
    )


def _without_log(cluster: Cluster, missing: tuple[NotAudited, ...]) -> IdHistories:
    """No broker shows the log: it is hidden, or no transaction was ever begun, and then no id is missing."""
    is_unused = list_filtered(cluster, Filters()).is_unused
    return IdHistories({}, ()) if is_unused else IdHistories(None, missing)


# Brokers.


def _shown(cluster: Cluster, node: BrokerId, settings: Settings) -> AnswerOfBroker:
    """What a broker has shown when its connection began; its settings."""
    try:
        shown = cluster.node(node).shown
    except BrokerError as exc:
        return AnswerOfBroker(problem=Problem.from_error(exc), settings_problem=settings.problem)
    epoch = getattr(shown, "finalized_features_epoch", None)
    is_known = epoch is not None and epoch >= 0
    finalized = {feature.name: feature.max_version_level for feature in shown.finalized_features or ()}
    problem = settings.problem
    return AnswerOfBroker(
        versions={api.api_key: (api.min_version, api.max_version) for api in shown.api_keys},
        supported={feature.name: feature.max_version for feature in shown.supported_features or ()},
        finalized=finalized if is_known else None,
        settings=settings.values,
        settings_problem=problem.with_right("DESCRIBE_CONFIGS on the cluster") if problem is not None else None,
    )


# Topics.


def _metadata(cluster: Cluster) -> tuple[dict[str, AuditedTopic], dict[BrokerId, str | None]]:
    """Every topic that is shown, and the racks of the brokers."""
    answer = cluster.whole_metadata()
    topics = {
        topic.name: AuditedTopic(
            topic.name,
            {
                partition.partition_index: ReplicasOfPartition(
                    present(partition.leader_id),
                    tuple(map(BrokerId, partition.replica_nodes)),
                    tuple(map(BrokerId, partition.isr_nodes)),
                )
                for partition in topic.partitions
            },
        )
        for topic in answer.topics
        if topic.name is not None and not topic.error_code
    }
    return topics, {BrokerId(broker.node_id): broker.rack or None for broker in answer.brokers}


def _transactional(
    cluster: Cluster, topics: Mapping[str, AuditedTopic], named: set[TopicPartition]
) -> tuple[set[TopicPartition], tuple[NotAudited, ...]]:
    """The partitions with transactional data: those that the log names, and of other topics those that leaders show."""
    named_topics = {place.topic for place in named} | {TRANSACTION_STATE_TOPIC}
    asked = [
        topic.place(number) for name, topic in topics.items() if name not in named_topics for number in topic.partitions
    ]
    transactional, problems = set(named), []
    for place, described in describe_producers(cluster, asked).items():
        if isinstance(described, Problem):
            problems.append((str(place), str(described)))
        elif any(
            producer.txn_start_offset is not None or producer.coordinator_epoch is not None for producer in described
        ):
            transactional.add(place)
    by_reason = grouped(problems)
    missing = (NotAudited(f"producers of {some(places, _NAMED)}", why) for why, places in by_reason.items())
    return transactional, tuple(missing)


def hidden_from_audit(cluster: Cluster, topics: Collection[str]) -> tuple[NotAudited, ...]:
    """Those of some topics that transactions write to and Metadata does not show; a deleted one is left out."""
    hidden = hidden_topics(cluster, topics) if topics else {}
    by_reason = grouped((name, str(why)) for name, why in hidden.items())
    return tuple(
        NotAudited(f"topics {some(sorted(names), _NAMED)}", f"the coordinators' log names them: {why}")
        for why, names in by_reason.items()
    )


_OfTopic = Mapping[str, SetValue] | Problem


def _settings(cluster: Cluster, names: Sequence[str]) -> tuple[dict[BrokerId, Settings], dict[str, _OfTopic]]:
    """The settings of each broker, and those of each topic, or why they are not known.

    Each broker has its own settings, and any broker has those of all topics: so the first topics are asked for in the
    request to one broker, and the others, or those of a broker that does not answer, of any broker.
    """
    first = next(iter(cluster.known.brokers), None)

    def request(connection: Connection, node: BrokerId) -> Any:
        asked = configs_request(connection, ConfigOf.BROKER, [str(node)], BROKER_SETTINGS)
        if node == first:
            asked.resources += _asked_of_topics(connection, names[:_TOPICS_AT_ONCE]).resources
        return asked

    answers = cluster.ask({node: partial(request, node=node) for node in cluster.known.brokers}, cluster.timeout_s)
    of_brokers = {node: settings_in(answer) for node, answer in answers.items()}
    of_topics = dict(_of_topics(answers[first])) if first is not None else {}
    left = [name for name in names if name not in of_topics]
    for begin in range(0, len(left), _TOPICS_AT_ONCE):
        part = left[begin : begin + _TOPICS_AT_ONCE]
        try:
            connection = cluster.any_connection()
            of_topics |= dict(_of_topics(cluster.call(connection, _asked_of_topics(connection, part))))
        except BrokerError as exc:
            of_topics |= dict.fromkeys(part, Problem.from_error(exc))
    return of_brokers, of_topics


def _asked_of_topics(connection: Connection, names: Sequence[str]) -> Any:
    return configs_request(connection, ConfigOf.TOPIC, names, TOPIC_SETTINGS)


def _of_topics(answer: Any) -> Iterator[tuple[str, _OfTopic]]:
    for result in answer.results if not isinstance(answer, BrokerError) else ():
        if result.resource_type != ConfigOf.TOPIC:
            continue
        problem = problem_of(result.error_code)
        yield (
            result.resource_name,
            problem.with_right("DESCRIBE_CONFIGS on the topic")
            if problem is not None
            else {
                config.name: SetValue(config.value, config.config_source)
                for config in result.configs
                if config.value is not None
            },
        )


def _with_settings(topic: AuditedTopic, settings: _OfTopic | None, transactional: set[TopicPartition]) -> AuditedTopic:
    numbers = frozenset(number for number in topic.partitions if topic.place(number) in transactional)
    if isinstance(settings, Problem):
        return replace(topic, transactional=numbers, settings_problem=settings)
    return replace(topic, transactional=numbers, settings=settings or {})
