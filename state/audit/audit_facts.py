"""What `txnwatch audit` knows of a cluster: typed answers of brokers. A value that is hidden is never a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct

from txnwatch.state.audit.releases import TRANSACTION_VERSION, Release, Versions, has_zookeeper, is_4_0_0, release_of
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    ModelValue,
    Offset,
    Problem,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class AnswerOfBroker:
    """What one broker answers.

    Attributes:
        versions: the lowest and the highest version of each request, by its key.
        supported: the highest level of each feature that the broker supports.
        finalized: the levels of the cluster's features; None if the broker does not know them.
        settings: those that the broker returned; `settings_problem` is why there are none.
        rack: None if it is not set.
    """

    versions: Versions = field(default_factory=dict)
    supported: Mapping[str, int] = field(default_factory=dict)
    finalized: Mapping[str, int] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    problem: Problem | None = None
    settings_problem: Problem | None = None
    rack: str | None = None

    def number(self, setting: str) -> int | None:
        """The value of a setting that is a whole number, not below zero; None if it is not known."""
        text = self.settings.get(setting, "")
        return int(text) if text.isdecimal() else None

    @property
    def release(self) -> Release | None:
        """The minor release; None if it is not known."""
        return release_of(self.versions, self.supported) if self.problem is None else None

    @property
    def is_4_0_0(self) -> bool:
        """Whether the broker is Kafka 4.0.0, and not a later patch release."""
        return self.release == Release(4, 0) and is_4_0_0(self.versions)

    @property
    def supports_2(self) -> bool:
        """Whether the broker supports transaction.version 2."""
        return self.supported.get(TRANSACTION_VERSION, 0) >= 2


class SetValue(NamedTuple):
    """The value of a topic's setting, and where it is set: a number of Kafka's ConfigSource."""

    value: str
    source: int


class ReplicasOfPartition(NamedTuple):
    """Who leads a partition, who has it, and who is in sync."""

    leader: BrokerId | None
    replicas: tuple[BrokerId, ...]
    in_sync: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class AuditedTopic:
    """One topic.

    Attributes:
        transactional: the partitions with data of transactions, as their leaders or the coordinators' log show it.
        settings: by name; `settings_problem` is why there are none.
    """

    name: str
    partitions: Mapping[int, ReplicasOfPartition]
    transactional: frozenset[int] = frozenset()
    settings: Mapping[str, SetValue] = field(default_factory=dict)
    settings_problem: Problem | None = None

    def value(self, setting: str) -> str | None:
        """The value of a setting; None if it is not known."""
        set_value = self.settings.get(setting)
        return set_value.value if set_value is not None else None

    def number(self, setting: str) -> int | None:
        """The value of a setting that is a whole number; None if it is not known."""
        text = self.value(setting)
        return int(text) if text is not None and text.lstrip("-").isdecimal() else None

    def place(self, number: int) -> TopicPartition:
        """One partition."""
        return TopicPartition(self.name, number)


def holders_of(topics: Mapping[str, AuditedTopic]) -> frozenset[BrokerId]:
    """The brokers that have replicas of some topics."""
    return frozenset(node for topic in topics.values() for of in topic.partitions.values() for node in of.replicas)


class LoggedState(ModelValue, frozen=True):
    """One record about a transactional id in the coordinators' log."""

    offset: Offset
    timestamp_ms: TimestampMs
    state: TransactionState
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: DurationMs
    start_ms: TimestampMs | None
    updated_ms: TimestampMs
    client_version: int | None  # of transaction.version; None if the record is too old to have it


# Settings that several modules look at.
CLEANER: Final = "log.cleaner.enable"
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
ROLES: Final = "process.roles"
ON_TOPIC: Final = 1  # Kafka's class DescribeConfigsResponse.ConfigSource
PREPARED: Final = frozenset({TransactionState.PREPARE_ABORT, TransactionState.PREPARE_COMMIT})


@dataclass(slots=True)
class LogPart:
    """One partition of the coordinators' log; since `whole_from_ms` it has every record of its ids."""

    number: int
    whole_from_ms: TimestampMs | None = None


class AuditedId(Struct, gc=False):
    """One transactional id, as its records show it.

    Attributes:
        log: where the log has its records.
        records: those that the log still has, oldest first.
        partitions: the participants that the records name.
        is_misplaced: whether the id belongs to another partition by its name, if the log has as many as the metadata
            shows.
    """

    name: str
    log: LogPart
    records: list[LoggedState]
    partitions: frozenset[TopicPartition] = frozenset()
    is_misplaced: bool = False

    @property
    def last(self) -> LoggedState:
        """The newest record."""
        return self.records[-1]

    @property
    def whole(self) -> list[LoggedState]:
        """The records of the part of the log that has every record."""
        since = self.log.whole_from_ms
        return [record for record in self.records if since is not None and record.timestamp_ms >= since]


class AclRule(NamedTuple):
    """One rule of the cluster's ACLs; operation and resource as Kafka names them."""

    principal: str
    operation: str
    resource: str
    name: str
    is_prefix: bool
    is_allowed: bool
    host: str = "*"


class NotAudited(NamedTuple):
    """What could not be asked, why, and what would make it possible."""

    what: str
    why: str


@dataclass(frozen=True)
class AuditFacts:
    """The answers.

    Attributes:
        now_ms: the clock of this machine, only for ages of hours and days.
        topics: those that are judged; `holders` are the brokers that have replicas of any topic.
        ids: by the coordinators' log; None if it could not be read. `has_all_ids`: whether all of it was read.
        rules: the ACLs; None if they are hidden, or if the brokers have no authorizer (`is_open`).
        missing: what could not be asked.
    """

    brokers: Mapping[BrokerId, AnswerOfBroker]
    topics: Mapping[str, AuditedTopic]
    now_ms: TimestampMs
    ids: Mapping[str, AuditedId] | None = None
    has_all_ids: bool = True
    rules: Sequence[AclRule] | None = None
    is_open: bool = False
    missing: tuple[NotAudited, ...] = ()
    holders: frozenset[BrokerId] = frozenset()

    @cached_property
    def ids_that_ended(self) -> list[AuditedId]:
        """The ids with a transaction whose end was decided, in the part of the log that has every record."""
        return [
            audited_id
            for audited_id in (self.ids or {}).values()
            if len(audited_id.records) > 1 or audited_id.records[0].state in PREPARED
            if any(record.state in PREPARED for record in audited_id.whole)
        ]

    @cached_property
    def writers(self) -> dict[str, list[AuditedId]]:
        """The ids whose records name a topic, by the topic; made once, because there can be many of both."""
        by_topic: dict[str, list[AuditedId]] = {}
        for audited_id in (self.ids or {}).values():
            for topic in {place.topic for place in audited_id.partitions}:
                by_topic.setdefault(topic, []).append(audited_id)
        return by_topic

    @property
    def log(self) -> AuditedTopic | None:
        """The coordinators' log; None if no broker shows it."""
        return self.topics.get(TRANSACTION_STATE_TOPIC)

    @property
    def transactional_topics(self) -> list[AuditedTopic]:
        """The topics with data of transactions, without the coordinators' log."""
        topics = (topic for name, topic in sorted(self.topics.items()) if name != TRANSACTION_STATE_TOPIC)
        return [topic for topic in topics if topic.transactional]

    @property
    def is_unused(self) -> bool:
        """Whether it is certain that nobody uses transactions."""
        return self.ids is not None and not self.ids and self.has_all_ids and not self.transactional_topics

    @property
    def releases(self) -> dict[BrokerId, Release]:
        """The release of each broker whose release is known."""
        releases = {node: broker.release for node, broker in sorted(self.brokers.items())}
        return {node: release for node, release in releases.items() if release is not None}

    def brokers_of(self, *releases: Release) -> list[BrokerId]:
        """The brokers that have one of these releases."""
        return [node for node, release in self.releases.items() if release in releases]

    def brokers_before(self, release: Release) -> list[BrokerId]:
        """The brokers with an older release."""
        return [node for node, of_broker in self.releases.items() if of_broker < release]

    @property
    def is_single(self) -> bool:
        """Whether the cluster has one broker: for development, where replication says nothing."""
        return len(self.brokers) == 1 and not self.away

    @property
    def has_committed_offsets(self) -> bool:
        """Whether offsets are committed in a transaction."""
        offsets = self.topics.get(CONSUMER_OFFSETS_TOPIC)
        return offsets is not None and bool(offsets.transactional)

    @property
    def controllers(self) -> dict[BrokerId, AnswerOfBroker]:
        """The brokers that are also controllers; other controllers are in no answer of a broker."""
        return {
            node: broker
            for node, broker in sorted(self.brokers.items())
            if "controller" in broker.settings.get(ROLES, "")
        }

    def minimum(self, topic: AuditedTopic, number: int) -> int | None:
        """The min.insync.replicas of a partition; if the topic has none, it is that of the broker that leads it."""
        set_value, leader = topic.settings.get(MIN_ISR), topic.partitions[number].leader
        if set_value is None or set_value.source == ON_TOPIC:
            return topic.number(MIN_ISR)
        leads = self.brokers.get(leader) if leader is not None else None
        return leads.number(MIN_ISR) if leads is not None else None

    @property
    def away(self) -> list[BrokerId]:
        """The brokers that have replicas, and that the cluster does not show now."""
        return sorted(self.holders - self.brokers.keys())

    @property
    def has_zookeeper(self) -> bool:
        """Whether a broker is in ZooKeeper mode."""
        return any(has_zookeeper(broker.versions) for broker in self.brokers.values() if broker.problem is None)

    @property
    def is_level_unknown(self) -> bool:
        """Whether all brokers that answer support transaction.version 2, and none knows the cluster's level."""
        has_answer = any(broker.problem is None for broker in self.brokers.values())
        return has_answer and self.transaction_version is None and not self.is_below_version_2

    @property
    def is_below_version_2(self) -> bool:
        """Whether transaction.version is certainly below 2: by its level, or because a broker does not support 2."""
        level = self.transaction_version
        answered = (broker for broker in self.brokers.values() if broker.problem is None)
        return level < 2 if level is not None else any(not broker.supports_2 for broker in answered)

    @property
    def transaction_version(self) -> int | None:
        """The cluster's level of transaction.version; None if it is not known, or if a broker does not support 2.

        A level of 0 is in no answer: it is known because the feature is supported and the levels are known.
        """
        answered = [broker for broker in self.brokers.values() if broker.problem is None]
        if not answered or not all(broker.supports_2 for broker in answered):
            return None
        levels = [broker.finalized for broker in answered if broker.finalized is not None]
        return min(level.get(TRANSACTION_VERSION, 0) for level in levels) if levels else None
