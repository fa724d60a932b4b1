"""What fires each check of the audit, and the near miss that must not; by a name of the case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from support.audited import an_id, broker, facts, log, offsets, record, topic
from txnwatch.state.audit.audit_facts import AclRule, AuditFacts
from txnwatch.state.audit.right_checks import CLUSTER, TOPIC, TRANSACTIONAL_ID
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import Problem

OFF = {"transaction.partition.verification.enable": "false"}
NEW_GROUPS = {"group.coordinator.rebalance.protocols": "classic,consumer"}
HIDDEN = Problem("CLUSTER_AUTHORIZATION_FAILED", 31)
UNCLEAN, MIN_ISR = "unclean.leader.election.enable", "min.insync.replicas"

ROLES = "process.roles"
A_CONTROLLER = broker(settings={ROLES: "broker,controller", UNCLEAN: "false"})
CONTROLLER = broker(settings={ROLES: "broker,controller", UNCLEAN: "true"})


def three(release: str, **more: object) -> list[object]:
    return [broker(release, **more) for _ in range(3)]  # type: ignore[arg-type]


OLD_CLIENT = an_id("old", record(client_version=0))
FIRES: dict[str, tuple[str, AuditFacts]] = {
    "4.3 and one replica": ("critical marker-skipped", facts(topic(replicas=[2]), brokers=three("4.3"))),
    "4.4 and one replica in sync": ("critical marker-skipped", facts(topic(in_sync=[1]), brokers=three("4.4"))),
    "4.4 and no leader": ("critical marker-skipped", facts(topic(leader=None), brokers=three("4.4"))),
    "one 4.3 of three": (
        "critical marker-skipped",
        facts(topic(replicas=[2]), brokers=[broker(), broker(), broker("4.3")]),
    ),
    "4.3 and nothing weak": ("info marker-skipped", facts(brokers=three("4.3"))),
    "one broker of 4.4": (
        "info marker-skipped",
        facts(topic(replicas=[1]), log(replicas=[1]), brokers=[broker("4.4")]),
    ),
    "verification off on one broker": (
        "warn no-verification",
        facts(brokers=[broker(), broker(settings=OFF), broker()]),
    ),
    "verification off and an old client": (
        "critical no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[OLD_CLIENT]),
    ),
    "verification off and only new clients": (
        "info no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[an_id()]),
    ),
    "verification off and only new clients in the part of the log that was read": (
        "warn no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[an_id()], has_all_ids=False),
    ),
    "3.3 never verifies": ("info no-verification", facts(brokers=three("3.3"))),
    "3.6 and offsets in a transaction": ("info no-verification", facts(offsets(), brokers=three("3.6"))),
    "level 1 with ids": ("warn old-transaction-version", facts(brokers=three("4.2", level=1), ids=[an_id()])),
    "level 0 is in no answer": ("warn old-transaction-version", facts(brokers=three("4.2", level=0))),
    "level 1 and nothing transactional": (
        "info old-transaction-version",
        facts(topic(transactional=False), brokers=three("4.2", level=1)),
    ),
    "4.2 beside 3.9": ("warn mixed-versions", facts(brokers=[broker(), broker("3.9")])),
    "3.9 beside 3.8": ("info mixed-versions", facts(brokers=[broker("3.8"), broker("3.9")])),
    "3.9 with the new group coordinator": (
        "warn stuck-prepare-bugs",
        facts(offsets(), brokers=three("3.9", settings=NEW_GROUPS)),
    ),
    "3.7": ("info stuck-prepare-bugs", facts(brokers=three("3.7"))),
    "3.8 and offsets in a transaction": ("info stuck-prepare-bugs", facts(offsets(), brokers=three("3.8"))),
    "log that is never compacted": (
        "warn coordinator-log-large",
        facts(brokers=[broker("3.9"), broker("3.9", settings={"log.cleaner.enable": "false"})]),
    ),
    "4.0.0": ("warn epoch-bugs", facts(brokers=three("4.0", lowest={11: 2}))),
    "4.0.1": ("info epoch-bugs", facts(brokers=three("4.0"))),
    "a day of timeout": (
        "info late-gauge-blind",
        facts(brokers=three("3.9", settings={"transaction.max.timeout.ms": "86400000"})),
    ),
    "log with delete": ("critical coordinator-log-config", facts(log(settings={"cleanup.policy": "compact,delete"}))),
    "offsets of transactions with delete": (
        "warn coordinator-log-config",
        facts(offsets(settings={"cleanup.policy": "compact,delete"})),
    ),
    "log with one replica": ("critical coordinator-log-config", facts(log(replicas=[1]))),
    "log below its minimum": ("critical coordinator-log-config", facts(log(in_sync=[1]))),
    "log without a leader": ("critical coordinator-log-config", facts(log(leader=None))),
    "log with a minimum of 1": ("warn coordinator-log-config", facts(log(settings={MIN_ISR: "1"}))),
    "log that needs more than it has": (
        "warn coordinator-log-config",
        facts(log(replicas=[1, 2], settings={MIN_ISR: "3"})),
    ),
    "log with a minimum of 1 that is the leader's": (
        "warn coordinator-log-config",
        facts(log(settings={MIN_ISR: ("2", 5)}), brokers=three("4.2", settings={MIN_ISR: "1"})),
    ),
    "log that needs all": ("warn coordinator-log-config", facts(log(settings={MIN_ISR: "3"}))),
    "log in one rack": (
        "warn coordinator-log-config",
        facts(
            log(replicas=[1, 2]),
            topic(replicas=[1, 3]),
            brokers=[broker(rack="a"), broker(rack="a"), broker(rack="b")],
        ),
    ),
    "log of one broker": (
        "info coordinator-log-config",
        facts(topic(replicas=[1]), log(replicas=[1]), brokers=[broker()]),
    ),
    "an id in another partition": ("critical coordinator-partitions", facts(ids=[an_id(partition=0, own=1)])),
    "one producer id twice": ("critical producer-id-reused", facts(ids=[an_id("a"), an_id("b")])),
    "unclean on the topic": ("warn unclean-election", facts(topic(settings={UNCLEAN: ("true", 1)}))),
    "unclean as the default": ("warn unclean-election", facts(topic(settings={UNCLEAN: ("true", 3)}))),
    "unclean with a minimum of 1": (
        "critical unclean-election",
        facts(topic(settings={UNCLEAN: ("true", 1), MIN_ISR: "1"})),
    ),
    "unclean log": ("critical unclean-election", facts(log(settings={UNCLEAN: ("true", 1)}))),
    "unclean on the node of a controller": ("warn unclean-election", facts(brokers=[CONTROLLER, broker(), broker()])),
    "unclean with KRaft 3.3": (
        "info unclean-election",
        facts(topic(settings={UNCLEAN: ("true", 1)}), brokers=three("3.3")),
    ),
    "unclean in a file with ZooKeeper": (
        "warn unclean-election",
        facts(
            topic(settings={UNCLEAN: ("true", 4)}),
            brokers=three("3.9", versions=dict(broker("3.9").versions) | {4: (0, 7)}),
        ),
    ),
    "markers are kept for a second": (
        "warn compaction-race",
        facts(offsets(settings={"delete.retention.ms": "1000"})),
    ),
    "markers are not kept": ("warn compaction-race", facts(offsets(settings={"delete.retention.ms": "0"}))),
    "compacted, and a replica is away": (
        "warn compaction-race",
        facts(offsets(settings={"delete.retention.ms": "86400000"}, in_sync=[1, 2])),
    ),
    "no retention at all": (
        "warn retention-below-timeout",
        facts(topic(settings={"retention.ms": "0"}), ids=[an_id()]),
    ),
    "a minute of retention": (
        "warn retention-below-timeout",
        facts(topic(settings={"retention.ms": "59999"}), ids=[an_id()]),
    ),
    "one replica": ("warn replication", facts(topic(replicas=[2]))),
    "one replica of one broker": (
        "info replication",
        facts(topic(replicas=[1]), log(replicas=[1]), brokers=[broker()]),
    ),
    "below the minimum": ("critical replication", facts(topic(in_sync=[1]))),
    "a minimum of 2 of one replica on 3.3": ("critical replication", facts(topic(replicas=[1]), brokers=three("3.3"))),
    "all replicas needed by the leader's own minimum": (
        "warn replication",
        facts(
            topic(leader=3, settings={MIN_ISR: ("2", 5)}), brokers=[broker(), broker(), broker(settings={MIN_ISR: "3"})]
        ),
    ),
    "all replicas needed": ("warn replication", facts(topic(settings={MIN_ISR: "3"}))),
    "one rack": (
        "info replication",
        facts(topic(replicas=[1, 2]), brokers=[broker(rack="a"), broker(rack="a"), broker(rack="b")]),
    ),
}
SILENT: dict[str, tuple[str, AuditFacts]] = {
    "4.3 and one replica without data": (
        "critical marker-skipped",
        facts(topic(replicas=[2], transactional=False), brokers=three("4.3")),
    ),
    "4.2 and one replica": ("marker-skipped", facts(topic(replicas=[2]))),
    "verification on": ("no-verification", facts()),
    "verification hidden": (
        "no-verification",
        facts(brokers=three("4.2", settings={"transaction.partition.verification.enable": ""})),
    ),
    "3.6 without offsets in a transaction": (
        "no-verification",
        facts(offsets(transactional=False), brokers=three("3.6")),
    ),
    "an old client long ago": (
        "critical no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[an_id("old", record(client_version=0, updated_ms=0))]),
    ),
    "an abort of the broker": (
        "critical no-verification",
        facts(
            brokers=three("4.2", settings=OFF),
            ids=[an_id("old", record(TransactionState.COMPLETE_ABORT, client_version=0))],
        ),
    ),
    "an id that has begun nothing": (
        "critical no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[an_id("old", record(TransactionState.EMPTY, client_version=0))]),
    ),
    "a record without the client's version": (
        "critical no-verification",
        facts(brokers=three("4.2", settings=OFF), ids=[an_id("old", record(client_version=None))]),
    ),
    "levels that are not known": ("old-transaction-version", facts(brokers=three("4.2", level=None))),
    "a broker that does not support level 2": (
        "old-transaction-version",
        facts(brokers=[broker(level=0), broker("3.9")]),
    ),
    "level 2": ("old-transaction-version", facts()),
    "one release": ("mixed-versions", facts()),
    "3.9 with the classic group coordinator": (
        "stuck-prepare-bugs",
        facts(brokers=three("3.9", settings={"group.coordinator.rebalance.protocols": "classic"})),
    ),
    "3.9 with the new group coordinator without offsets in a transaction": (
        "stuck-prepare-bugs",
        facts(offsets(transactional=False), brokers=three("3.9", settings=NEW_GROUPS)),
    ),
    "3.9 and offsets in a transaction": ("stuck-prepare-bugs", facts(offsets(), brokers=three("3.9"))),
    "3.8 without offsets in a transaction": ("stuck-prepare-bugs", facts(brokers=three("3.8"))),
    "a cleaner that is on": (
        "coordinator-log-large",
        facts(brokers=three("3.9", settings={"log.cleaner.enable": "true"})),
    ),
    "no cleaner and no transaction": (
        "coordinator-log-large",
        facts(topic(transactional=False), brokers=three("3.9", settings={"log.cleaner.enable": "false"})),
    ),
    "4.0 at level 1": ("epoch-bugs", facts(brokers=three("4.0", level=1))),
    "4.3 at level 2": ("epoch-bugs", facts(brokers=three("4.3"))),
    "an hour of timeout": (
        "late-gauge-blind",
        facts(brokers=three("3.9", settings={"transaction.max.timeout.ms": "3600000"})),
    ),
    "racks that are not set": (
        "warn coordinator-log-config",
        facts(log(replicas=[1, 2, 3]), brokers=[broker(rack="a"), broker(), broker()]),
    ),
    "a healthy log": ("coordinator-log-config", facts()),
    "offsets with delete, and none in a transaction": (
        "coordinator-log-config",
        facts(offsets(transactional=False, settings={"cleanup.policy": "compact,delete"})),
    ),
    "ids in their partitions": ("coordinator-partitions", facts(ids=[an_id()])),
    "a producer id of the past": (
        "producer-id-reused",
        facts(ids=[an_id("a"), an_id("b", record(producer_id=1), record(producer_id=2))]),
    ),
    "unclean in a broker's file with KRaft": ("unclean-election", facts(topic(settings={UNCLEAN: ("true", 4)}))),
    "unclean on the node of a broker": (
        "unclean-election",
        facts(topic(settings={UNCLEAN: ("true", 2)}), brokers=[broker(settings={UNCLEAN: "true"}), A_CONTROLLER]),
    ),
    "unclean on the node of a controller, and not on the topics": (
        "unclean-election",
        facts(
            topic(settings={UNCLEAN: ("false", 1)}),
            log(settings={UNCLEAN: ("false", 1)}),
            brokers=[CONTROLLER, broker(), broker()],
        ),
    ),
    "unclean as the default, and not for the controllers": (
        "unclean-election",
        facts(topic(settings={UNCLEAN: ("true", 3)}), brokers=[broker(), A_CONTROLLER]),
    ),
    "unclean with one replica": (
        "unclean-election",
        facts(topic(replicas=[1], settings={UNCLEAN: ("true", 1)})),
    ),
    "unclean without data": (
        "unclean-election",
        facts(topic(transactional=False, settings={UNCLEAN: ("true", 1)})),
    ),
    "unclean and hidden": ("unclean-election", facts(topic(settings={UNCLEAN: ("", 1)}, settings_problem=HIDDEN))),
    "compacted, with all replicas": (
        "compaction-race",
        facts(offsets(settings={"delete.retention.ms": "3600000"})),
    ),
    "compacted, with one replica": (
        "compaction-race",
        facts(offsets(replicas=[1], settings={"delete.retention.ms": "1000"})),
    ),
    "not compacted": (
        "compaction-race",
        facts(topic(settings={"delete.retention.ms": "1000"}, in_sync=[1])),
    ),
    "a retention as long as the timeout": (
        "retention-below-timeout",
        facts(topic(settings={"retention.ms": "60000"}), ids=[an_id()]),
    ),
    "retention without end": (
        "retention-below-timeout",
        facts(topic(settings={"retention.ms": "-1"}), ids=[an_id()]),
    ),
    "a short retention that nobody has written to": (
        "retention-below-timeout",
        facts(topic("orders", settings={"retention.ms": "1000"}), ids=[an_id()]),
    ),
    "a short retention that does not delete": (
        "retention-below-timeout",
        facts(topic(settings={"retention.ms": "1000", "cleanup.policy": "compact"}), ids=[an_id()]),
    ),
    "one replica without data": ("replication", facts(topic(replicas=[2], transactional=False))),
    "a minimum of 2 of one replica": ("critical replication", facts(topic(replicas=[1]))),
    "a minimum of 2 of 3": ("replication", facts()),
    "all replicas needed by the minimum of a broker that does not lead": (
        "replication",
        facts(topic(settings={MIN_ISR: ("3", 5)}), brokers=[broker(settings={MIN_ISR: "2"}), broker(), broker()]),
    ),
    "all replicas needed by the minimum of some broker, and that of the leader is hidden": (
        "replication",
        facts(topic(settings={MIN_ISR: ("3", 5)})),
    ),
}


# The checks of the ACLs: who may write where only brokers write.

ALL, APP = "User:*", "User:app"
LOG, OFFSETS = "__transaction_state", "__consumer_offsets"


def rule(principal: str, operation: str, resource: str, name: str, **more: Any) -> AclRule:
    return AclRule(principal, operation, resource, name, **{"is_prefix": False, "is_allowed": True, **more})


def with_rules(*rules: AclRule, release: str = "3.9", **more: Any) -> AuditFacts:
    brokers: Sequence[Any] = [broker(release) for _ in range(3)]
    return facts(brokers=brokers, rules=rules, **more)


KAFKA = (CLUSTER, "kafka-cluster")
WRITE = rule(APP, "Write", TOPIC, "*")
FIRES |= {
    "everybody writes everywhere": ("critical internal-writers", with_rules(rule(ALL, "Write", TOPIC, "*"))),
    "an application writes everywhere": ("warn internal-writers", with_rules(WRITE)),
    "all operations on the log": ("warn internal-writers", with_rules(rule(APP, "All", TOPIC, LOG))),
    "a prefix": ("warn internal-writers", with_rules(rule(APP, "Write", TOPIC, "__", is_prefix=True))),
    "denied on one of two": (
        "warn internal-writers",
        with_rules(WRITE, rule(APP, "Write", TOPIC, LOG, is_allowed=False)),
    ),
    "denied to one host": (
        "warn internal-writers",
        with_rules(WRITE, *(rule(APP, "Write", TOPIC, name, is_allowed=False, host="h") for name in (LOG, OFFSETS))),
    ),
    "no authorizer": ("info internal-writers", facts(is_open=True)),
    "everybody alters the cluster": (
        "critical marker-writers",
        with_rules(rule(ALL, "Alter", *KAFKA)),
    ),
    "a broker": ("info marker-writers", with_rules(rule(APP, "ClusterAction", *KAFKA))),
    "everybody has all ids": ("warn id-owners", with_rules(rule(ALL, "Write", TRANSACTIONAL_ID, "*"))),
    "an application has all ids": ("info id-owners", with_rules(rule(APP, "All", TRANSACTIONAL_ID, "*"))),
}
SILENT |= {
    "another prefix": ("internal-writers", with_rules(rule(APP, "Write", TOPIC, "app", is_prefix=True))),
    "denied": (
        "internal-writers",
        with_rules(WRITE, *(rule(APP, "Write", TOPIC, name, is_allowed=False) for name in (LOG, OFFSETS))),
    ),
    "denied to everybody": ("internal-writers", with_rules(WRITE, rule(ALL, "All", TOPIC, "*", is_allowed=False))),
    "hidden rules": ("internal-writers", facts(rules=None)),
    "alter before 3.8": (
        "marker-writers",
        with_rules(rule(ALL, "Alter", *KAFKA), release="3.7"),
    ),
    "denied on the cluster": (
        "marker-writers",
        with_rules(rule(APP, "Alter", *KAFKA), rule(APP, "All", *KAFKA, is_allowed=False)),
    ),
    "no rule for all ids": ("id-owners", with_rules(WRITE)),
    "denied for all ids": (
        "id-owners",
        with_rules(
            rule(APP, "All", TRANSACTIONAL_ID, "*"), rule(APP, "Write", TRANSACTIONAL_ID, "*", is_allowed=False)
        ),
    ),
}
