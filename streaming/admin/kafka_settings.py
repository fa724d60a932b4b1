"""Settings of Kafka, from DescribeConfigs: those of brokers, topics and groups, and the coordinators' scan interval.

Access rules are asked for here, too (DescribeAcls).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeAclsRequest, DescribeConfigsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import BrokerId, DurationMs, Problem
from txnwatch.state.model.verdicts import DEFAULT_SCAN_INTERVAL_MS
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection, problem_of, the_one


class ConfigOf(IntEnum):
    """What DescribeConfigs returns the settings of: the resource types of Kafka."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


def configs_request(
    connection: Connection, of: ConfigOf, resources: Iterable[str], names: Sequence[str]
) -> DescribeConfigsRequest:
    """Asks for the settings with these names, of several resources of one kind."""
    version = connection.require_version(DescribeConfigsRequest, highest=4, lowest=1)
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            version=version, resource_type=of, resource_name=resource, configuration_keys=list(names)
        )
        for resource in resources
    ]
    return DescribeConfigsRequest(version=version, resources=asked, include_synonyms=False, include_documentation=False)


# Topics.


class TopicSetting(NamedTuple):
    """The value of a setting for one topic as a broker has it; `source` is a number of Kafka's class ConfigSource."""

    value: str
    source: int


def topic_settings(cluster: Cluster, topics: Iterable[str], name: str) -> dict[str, TopicSetting]:
    """One setting of each topic; a topic that could not be read is missing."""
    try:
        connection = cluster.any_connection()
        return topic_settings_in(
            cluster.call(connection, configs_request(connection, ConfigOf.TOPIC, topics, [name])), name
        )
    except BrokerError:
        return {}


def topic_settings_in(response: Any, name: str) -> dict[str, TopicSetting]:
    """Each topic's setting; topics with an error and topics without a value are left out."""
    return {
        result.resource_name: TopicSetting(config.value, config.config_source)
        for result in response.results
        if not result.error_code
        for config in result.configs
        if config.name == name and config.value is not None
    }


# Brokers.


class Settings(NamedTuple):
    """One broker's settings by name; `problem` is set if there are none."""

    values: dict[str, str]
    problem: Problem | None = None


def settings_of(cluster: Cluster, nodes: Iterable[BrokerId], names: Sequence[str]) -> dict[BrokerId, Settings]:
    """The settings of each broker; all brokers are asked in parallel."""
    requests = {
        node: partial(configs_request, of=ConfigOf.BROKER, resources=[str(node)], names=names) for node in nodes
    }
    return {node: settings_in(answer) for node, answer in cluster.ask(requests, cluster.timeout_s).items()}


def settings_in(answer: Any) -> Settings:
    """The settings of the one broker in an answer, which may also have those of topics."""
    if isinstance(answer, BrokerError):
        return Settings({}, Problem.from_error(answer))
    try:
        result = the_one([result for result in answer.results if result.resource_type != ConfigOf.TOPIC])
    except BrokerError as exc:
        return Settings({}, Problem.from_error(exc))
    problem = problem_of(result.error_code)
    if problem is not None:
        return Settings({}, problem)
    return Settings({config.name: config.value for config in result.configs if config.value is not None})


# The longest timeout that a broker allows.

LONGEST_TIMEOUT = "transaction.max.timeout.ms"


def longest_timeout(cluster: Cluster, node: BrokerId) -> DurationMs | Problem:
    """LONGEST_TIMEOUT of a broker, or why it is not known."""
    settings = settings_of(cluster, [node], [LONGEST_TIMEOUT])[node]
    text = settings.values.get(LONGEST_TIMEOUT, "")
    return DurationMs(int(text)) if text.isdecimal() else settings.problem or Problem("it does not return it")


# How often coordinators look for expired transactions.

SCAN_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_INTERVAL = re.compile(r"[0-9]{1,10}")
_LARGEST_INTERVAL_MS = (1 << 31) - 1
_AGAIN_S, _AFTER_SILENCE_S = 3_600.0, 60.0


@dataclass(slots=True)
class ScanInterval:
    """How often the coordinators look for expired transactions; asked of every broker at the start, then hourly.

    Any broker can be a coordinator, so if the brokers differ, the largest value counts. A broker that does not answer
    keeps its last value, and all are asked again after 60 s. If no broker has ever answered, the value is None and the
    default counts.
    """

    _known_ms: dict[BrokerId, DurationMs] = field(default_factory=dict)
    _due_s: float = 0.0

    def largest_ms(self, cluster: Cluster, now_s: float) -> DurationMs | None:
        """The largest value; asks the brokers if that is due at `now_s`, a monotonic time."""
        brokers = cluster.known.brokers
        if now_s >= self._due_s and brokers:
            answers = settings_of(cluster, brokers, [SCAN_INTERVAL])
            values = {node: ms for node, settings in answers.items() if (ms := _scan_interval_in(settings)) is not None}
            self._known_ms = {node: ms for node, ms in self._known_ms.items() if node in brokers}
            self._known_ms |= values
            self._due_s = now_s + (_AGAIN_S if len(values) == len(brokers) else _AFTER_SILENCE_S)
        return max(self._known_ms.values(), default=None)


def _scan_interval_in(settings: Settings) -> DurationMs | None:
    """The interval of one broker; None if the broker returned none, or one that Kafka does not allow."""
    text = settings.values.get(SCAN_INTERVAL, "")
    if _INTERVAL.fullmatch(text) is None or not 0 < int(text) <= _LARGEST_INTERVAL_MS:
        return None
    return DurationMs(int(text))


def scan_interval_warning(cluster: Cluster) -> str | None:
    """A warning that `late` rests on a default because a broker does not return its interval; None if all do."""
    answers = settings_of(cluster, cluster.known.brokers, [SCAN_INTERVAL])
    why = next(
        (f"broker {node}: {settings.problem}" for node, settings in answers.items() if settings.problem is not None),
        None,
    )
    if why is None:
        return None
    return (
        f"not every broker returns {SCAN_INTERVAL} ({why}); if none does, `late` uses the default of "
        f"{DEFAULT_SCAN_INTERVAL_MS} ms: grant DESCRIBE_CONFIGS on the cluster, or set --coordinator-scan-interval-ms"
    )


# The access rules (ACLs) about a resource, whoever they allow or deny.

ANY, MATCH = 1, 2
_HIGHEST_OF_ACLS = 3


def describe_acls(cluster: Cluster, resource: int, name: str | None, pattern: int) -> Any:
    """The answer of a broker to DescribeAcls, of any principal, host, operation and permission.

    Raises:
        BrokerError: no broker answers, or none knows the request.
    """
    connection = cluster.any_connection()
    version = connection.require_version(DescribeAclsRequest, highest=_HIGHEST_OF_ACLS, lowest=1)
    request = DescribeAclsRequest(
        version=version,
        resource_type_filter=resource,
        resource_name_filter=name,
        pattern_type_filter=pattern,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return cluster.call(connection, request)
