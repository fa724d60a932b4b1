"""What a check-up means: which row warns, which one fails, and the line that mends it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.problems import a_problem
from txnwatch.cli.doctor import diagnose
from txnwatch.cli.doctor_rows import Caller, CheckRow, Health, fix_notes
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    ErrorCode,
    Problem,
    TopicPartition,
)
from txnwatch.state.text import Grantee
from txnwatch.streaming.checks.checkup import BrokerFacts, Checkup, Writers
from txnwatch.streaming.checks.clock_bounds import SeenClocks
from txnwatch.streaming.checks.preflight import ALTER, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE, TopicRights

EVENTS = "txnwatch.events"
CALLER = Caller(Grantee("a:1", "User:watcher", is_configured=True), EVENTS)
ALL = frozenset({READ, WRITE, ALTER, DESCRIBE, DESCRIBE_CONFIGS})
NEW = {
    "DescribeProducersRequest": 0,
    "DescribeTransactionsRequest": 0,
    "ListTransactionsRequest": 2,
    "FetchRequest": 17,
}
BROKER = BrokerFacts("a:1", None, NEW, 2, {"transaction.max.timeout.ms": "900000"})
GOOD = Checkup(
    brokers={1: BROKER},
    cluster_operations=ALL,
    topic_operations={"orders": ALL, TRANSACTION_STATE_TOPIC: ALL, EVENTS: ALL},
    replicas=(),
    id_problems=(),
    events_problem=None,
    events_rights=TopicRights(ALL),
    clocks=SeenClocks(controller=(1, Clock(-3, 2, 1_000_000))),
)
OLD = replace(BROKER, versions={**NEW, "ListTransactionsRequest": None})
READ_LOG = f"Read on topic {TRANSACTION_STATE_TOPIC}"
GRANT = "kafka-acls.sh --bootstrap-server a:1 --command-config ADMIN.properties --add"

OF_WATCHER = f"{GRANT} --allow-principal User:watcher --operation"


def bad(found: Checkup) -> list[CheckRow]:
    return [row for row in diagnose(found, CALLER) if row.status is not Health.OK]


def test_a_healthy_checkup_has_no_problem() -> None:
    assert bad(GOOD) == []


def topics(**changed: frozenset[int] | None) -> Checkup:
    return replace(GOOD, topic_operations={**GOOD.topic_operations, **changed})


def internal(rights: TopicRights) -> Checkup:
    return replace(GOOD, internal_rights={TRANSACTION_STATE_TOPIC: rights, CONSUMER_OFFSETS_TOPIC: rights})


DENIED = a_problem("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").of("broker 1")
BAD = {
    "a listener": (replace(GOOD, brokers={1: BrokerFacts("a:1", Problem("refused"))}), Health.MISSING, "broker 1 a:1"),
    "an old broker": (replace(GOOD, brokers={1: OLD}), Health.MISSING, "broker 1"),
    "no leader": (
        replace(GOOD, replicas=(PartitionReplicas(TopicPartition("orders", 0), None, (1, 2), (2,)),)),
        Health.WARNING,
        "orders-0",
    ),
    "ids": (replace(GOOD, id_problems=(DENIED,)), Health.MISSING, "Describe on all transactional ids"),
    "ids of an old broker": (replace(GOOD, id_problems=None), Health.WARNING, "Describe on all transactional ids"),
    "a topic": (topics(orders=frozenset({DESCRIBE})), Health.MISSING, "Read on topic orders"),
    "the log": (
        internal(TopicRights(frozenset({DESCRIBE}))),
        Health.MISSING,
        f"Read on topic {TRANSACTION_STATE_TOPIC}",
    ),
    "the events": (
        replace(GOOD, events_rights=TopicRights(frozenset({READ}))),
        Health.MISSING,
        f"Write on topic {EVENTS}",
    ),
    "settings": (
        replace(GOOD, brokers={1: replace(BROKER, settings_problem=Problem("X"))}),
        Health.WARNING,
        "broker 1",
    ),
    "a clock": (replace(GOOD, clocks=SeenClocks({1: Clock(5_001, None, 1_000_000)})), Health.WARNING, "broker 1"),
    "no clock": (replace(GOOD, clocks=SeenClocks()), Health.WARNING, "broker 1"),
    "cluster": (replace(GOOD, cluster_operations=ALL - {ALTER}), Health.WARNING, "Alter on the cluster"),
}
NO_CLUSTER = a_problem("CLUSTER_AUTHORIZATION_FAILED")


def test_describe_configs_on_the_cluster_is_judged_by_the_settings_that_the_brokers_show() -> None:
    """Without DESCRIBE on the cluster, the broker names no operation, also to a user who has DESCRIBE_CONFIGS."""
    unnamed = replace(GOOD, cluster_operations=frozenset())
    assert [row.subject for row in bad(unnamed)] == ["Describe on the cluster", "Alter on the cluster"]
    refused = replace(unnamed, brokers={1: replace(BROKER, settings={}, settings_problem=NO_CLUSTER)})
    rows = {row.subject: row for row in bad(refused)}
    assert rows["DescribeConfigs on the cluster"].fix == f"{OF_WATCHER} DescribeConfigs --cluster"
    shown = replace(refused, cluster_operations=ALL)
    assert "DescribeConfigs on the cluster" in {row.subject for row in bad(shown)}


def log_rows(found: Checkup) -> list[tuple[Health, str, bool]]:
    rows = diagnose(found, CALLER)
    return [(row.status, row.detail, row.fix is None) for row in rows if row.subject == READ_LOG]


def test_a_log_that_does_not_exist_yet_is_no_missing_right() -> None:
    fresh = internal(TopicRights(ALL, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert log_rows(fresh) == [(Health.OK, "does not exist yet: no transaction was begun", True)]
    hidden = internal(TopicRights(frozenset(), ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    detail = "not shown: no transaction was begun, or a right is missing"
    assert log_rows(hidden) == [(Health.WARNING, detail, False)]


def test_the_lines_that_grant_rights_are_grouped_by_their_use() -> None:
    found = replace(
        GOOD,
        topic_operations={**GOOD.topic_operations, "orders": frozenset({DESCRIBE})},
        cluster_operations=frozenset({DESCRIBE}),
        events_rights=TopicRights(frozenset({READ})),
        brokers={1: replace(BROKER, settings={}, settings_problem=NO_CLUSTER)},
    )
    assert list(fix_notes(diagnose(found, CALLER))) == [
        "rights to look (find-hanging, explain, list, describe), granted by an administrator:",
        f"{OF_WATCHER} Read --topic orders",
        "rights to watch (run), granted by an administrator:",
        f"{OF_WATCHER} DescribeConfigs --cluster",
        "rights to publish events (run, events), granted by an administrator:",
        f"{OF_WATCHER} Write --topic {EVENTS}",
        "rights to abort (abort, run --auto-abort), granted by an administrator:",
        f"{OF_WATCHER} Alter --cluster",
    ]


@pytest.mark.parametrize(("found", "health", "subject"), BAD.values(), ids=BAD.keys())
def test_each_problem_is_one_row(found: Checkup, health: Health, subject: str) -> None:
    assert [(row.status, row.subject) for row in bad(found)] == [(health, subject)]


GRANTS = {
    "ids": (replace(GOOD, id_problems=(DENIED,)), "--operation Describe --transactional-id '*'"),
    "a topic": (topics(orders=frozenset({DESCRIBE})), "--operation Read --topic orders"),
    "no topics": (
        replace(GOOD, topic_operations={TRANSACTION_STATE_TOPIC: ALL, EVENTS: ALL}),
        "Read --topic TOPIC_PREFIX --resource-pattern-type prefixed",
    ),
    "cluster": (replace(GOOD, cluster_operations=ALL - {ALTER}), "--operation Alter --cluster"),
    "events": (replace(GOOD, events_rights=TopicRights(frozenset({WRITE}))), f"--operation Read --topic {EVENTS}"),
}


@pytest.mark.parametrize(("found", "line"), GRANTS.values(), ids=GRANTS.keys())
def test_a_missing_right_comes_with_the_line_that_grants_it(found: Checkup, line: str) -> None:
    (row,) = bad(found)
    assert row.fix is not None
    assert row.fix.startswith(f"{GRANT} --allow-principal User:watcher --operation ")
    assert row.fix.endswith(line)


ABSENT, HIDDEN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
REFUSED = a_problem("TOPIC_AUTHORIZATION_FAILED")
CREATE = (f"Create topic {EVENTS}", "Create")
BOTH = (f"Read and Write on topic {EVENTS}", "Write --operation Read")
READS, WRITES = (f"Read on topic {EVENTS}", "Read"), (f"Write on topic {EVENTS}", "Write")
NO_EVENTS: dict[str, tuple[TopicRights, Problem | None, dict[tuple[str, str], Health]]] = {
    "nothing is missing": (TopicRights(ALL, ABSENT), None, {}),
    "write is missing": (TopicRights(ALL - {WRITE}, ABSENT), None, {WRITES: Health.MISSING}),
    "read is missing": (TopicRights(ALL - {READ}, ABSENT), None, {READS: Health.MISSING}),
    "create is missing": (TopicRights(ALL, ABSENT), REFUSED, {CREATE: Health.MISSING}),
    "the broker reports no operations": (TopicRights(None, ABSENT), None, {BOTH: Health.WARNING}),
    "it is hidden, and may not be created": (
        TopicRights(frozenset(), HIDDEN),
        REFUSED,
        {CREATE: Health.WARNING, READS: Health.MISSING, WRITES: Health.MISSING},
    ),
    "it is hidden, and exists": (
        TopicRights(frozenset(), HIDDEN),
        Problem("TOPIC_ALREADY_EXISTS", ErrorCode.TOPIC_ALREADY_EXISTS),
        {READS: Health.MISSING, WRITES: Health.MISSING},
    ),
}


@pytest.mark.parametrize(("rights", "create", "expected"), NO_EVENTS.values(), ids=NO_EVENTS.keys())
def test_each_right_on_an_events_topic_that_is_not_shown_is_checked(
    rights: TopicRights, create: Problem | None, expected: dict[tuple[str, str], Health]
) -> None:
    shown = {"orders": ALL, TRANSACTION_STATE_TOPIC: ALL}
    found = replace(GOOD, topic_operations=shown, events_rights=rights, events_problem=create)
    assert [(row.status, row.subject, row.fix) for row in bad(found)] == [
        (health, subject, f"{GRANT} --allow-principal User:watcher --operation {operations} --topic {EVENTS}")
        for (subject, operations), health in expected.items()
    ]


def test_an_events_topic_that_cannot_be_created_for_another_reason_is_a_warning() -> None:
    found = replace(GOOD, events_rights=TopicRights(ALL, ABSENT), events_problem=Problem("INVALID_REPLICATION_FACTOR"))
    assert [(row.subject, row.detail, row.fix) for row in bad(found)] == [
        (f"Create topic {EVENTS}", "INVALID_REPLICATION_FACTOR", None)
    ]


def writers(found: Writers, caller: Caller = CALLER) -> CheckRow:
    rows = diagnose(replace(GOOD, events_writers=found), caller)
    (row,) = (row for row in rows if row.subject == f"writers of topic {EVENTS}")
    return row


def test_other_writers_of_the_events_topic_are_reported() -> None:
    alone = writers(Writers(("User:watcher",)))
    assert (alone.status, alone.detail) == (Health.OK, "this user by an ACL, and super users")
    others = writers(Writers(("User:a", "User:b")))
    assert others.status is Health.WARNING
    assert others.detail.startswith(
        "this user without an ACL of its own, super users, and User:a, User:b: a user who may write"
    )
    assert "cannot cause an abort" in others.detail
    assert writers(Writers(is_open=True)).detail.startswith("every client: ")


def test_if_the_acls_cannot_be_read_that_is_reported_with_the_command_that_grants_it() -> None:
    row = writers(Writers(problem=a_problem("CLUSTER_AUTHORIZATION_FAILED")))
    assert row.status is Health.WARNING
    assert row.detail.startswith("could not be read: CLUSTER_AUTHORIZATION_FAILED")
    assert row.fix == f"{GRANT} --allow-principal User:watcher --operation Describe --cluster"
