"""The remedies of a finding: a command is printed only where it changes something and does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from support.audited import an_id, broker, facts, found, log, missing, record, topic
from txnwatch.state.audit.audit_facts import AclRule, AuditFacts, ReplicasOfPartition
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposure_rows import command_of
from txnwatch.state.audit.exposures import ChosenRemedy, remedy
from txnwatch.state.audit.right_checks import CLUSTER, TRANSACTIONAL_ID
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import BrokerId, TopicPartition
from txnwatch.state.text import Grantee

MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
ONE = {"settings": {MIN_ISR: "1"}}
OFF = {"transaction.partition.verification.enable": "false"}


def remedies(of: AuditFacts, check: str) -> list[ChosenRemedy]:
    return [one for row in audit(of).exposures if row.check.name == check for one in row.remedies]


def texts(of: AuditFacts, check: str) -> list[str]:
    return [f"{one.text}{' ...' if one.command else ''}" for one in remedies(of, check)]


def brokers(count: int) -> list[Any]:
    return [broker() for _ in range(count)]


RAISE = "raise the replication factor of these topics to 3"
TWO = "set min.insync.replicas to 2"


@pytest.mark.parametrize(
    ("given", "live", "expected"),
    [
        ({"replicas": [1, 2, 3], **ONE}, 3, [f"{TWO} ..."]),
        ({"replicas": [1, 2, 3], "in_sync": [1, 2], **ONE}, 3, [f"{TWO} ..."]),
        ({"replicas": [1, 2, 3], "in_sync": [1], **ONE}, 1, [f"first bring brokers 2, 3 back: {TWO}"]),
        ({"replicas": [1, 2], "in_sync": [1], **ONE}, 1, [f"add brokers: {RAISE}"]),
        ({"replicas": [1, 2], **ONE}, 2, [f"add brokers: {RAISE}"]),
        ({"replicas": [1, 2], **ONE}, 3, [f"{RAISE} ..."]),
        ({"replicas": [1, 4], "in_sync": [1], **ONE}, 2, [f"first bring broker 4 back: {RAISE}"]),
        ({"replicas": [1, 2]}, 3, [f"{RAISE} ..."]),
        ({"replicas": [1, 2, 3], "settings": {MIN_ISR: "3"}}, 3, [f"{TWO} ..."]),
    ],
)
def test_a_command_for_the_log_is_shown_where_it_helps(given: Any, live: int, expected: list[str]) -> None:
    of = facts(log(**given), topic(replicas=[1], transactional=False), brokers=brokers(live))
    assert texts(of, "coordinator-log-config") == expected


def test_a_partition_without_a_leader_gets_no_more_replicas_before_its_broker_is_back() -> None:
    of = facts(topic(replicas=[4], in_sync=[4], leader=None, settings={MIN_ISR: "1"}), brokers=brokers(3))
    assert f"first bring broker 4 back: {RAISE}" in texts(of, "replication")


def test_a_plan_has_no_partition_that_has_three_replicas() -> None:
    mixed = {0: ReplicasOfPartition(1, (1, 2), (1, 2)), 1: ReplicasOfPartition(1, (1, 2, 3), (1, 2, 3))}
    of = facts(replace(topic("mixed"), partitions=mixed, transactional=frozenset(mixed)))
    (plan,) = [one.plan for one in remedies(of, "replication") if one.plan]
    assert plan == {TopicPartition("mixed", 0): (1, 2, 3)}


def test_a_plan_has_each_partition_of_a_topic() -> None:
    """A topic with two replication factors would be found again as soon as another partition is written to."""
    both = {number: ReplicasOfPartition(1, (1,), (1,)) for number in (0, 1)}
    of = facts(replace(topic("both"), partitions=both, transactional=frozenset({1})))
    (plan,) = [one.plan for one in remedies(of, "replication") if one.plan]
    assert plan == {TopicPartition("both", 0): (1, 2, 3), TopicPartition("both", 1): (1, 2, 3)}


def test_a_minimum_is_lowered_also_while_brokers_are_away() -> None:
    of = facts(log(settings={MIN_ISR: "3"}, in_sync=[1]))
    assert f"{TWO} ..." in texts(of, "coordinator-log-config")


def test_a_lower_minimum_is_said() -> None:
    of = facts(topic(settings={MIN_ISR: "3"}))
    assert texts(of, "replication") == ["lower min.insync.replicas to allow one replica to be away ..."]


def test_a_broker_that_is_away_counts_and_is_named() -> None:
    of = facts(log(replicas=[1], settings={MIN_ISR: "1"}), topic(replicas=[2], leader=None), brokers=brokers(1))
    assert "critical coordinator-log-config" in found(of)
    assert "warn replication" in found(of)
    assert [one.what for one in audit(of).missing] == ["broker 2"]
    off = replace(of, brokers={BrokerId(1): broker(settings=OFF)})
    assert "broker 1 of 2 accepts a write" in " ".join(one.finding for one in audit(off).exposures)


def test_a_broker_is_away_that_has_only_topics_which_are_not_judged() -> None:
    of = facts(log(replicas=[1]), topic(replicas=[1]), brokers=brokers(1), holders=frozenset({1, 7}))
    assert missing(of) == ["broker 7"]
    assert "critical coordinator-log-config" in found(of), "a cluster of two brokers"


@pytest.mark.parametrize("release", ["3.9", "4.2"])
@pytest.mark.parametrize(
    ("of_id", "severity"),
    [
        ({}, "critical"),
        ({"client_version": None}, "critical"),
        ({"updated_ms": 0}, "warn"),
        ({"state": TransactionState.EMPTY}, "warn"),
    ],
)
def test_below_transaction_version_2_each_id_that_wrote_is_exposed(release: str, of_id: Any, severity: str) -> None:
    of = facts(
        brokers=[broker(release, level=1, settings=OFF)] * 3,
        ids=[an_id("a", record(**{"client_version": 0, **of_id}))],
    )
    assert f"{severity} no-verification" in found(of)


def test_levels_that_are_not_known_make_no_client_old() -> None:
    of = facts(brokers=[broker(level=None, settings=OFF)] * 3, ids=[an_id("a", record(client_version=0))])
    assert "warn no-verification" in found(of)


def test_remedies_for_one_kind_of_client_say_for_which() -> None:
    of = facts(ids=[an_id("a", record(client_version=0, timeout_ms=7_200_000))])
    assert texts(of, "old-protocol")[0] == "for Java clients before 4.0: upgrade the client"
    assert [one.split(":")[0] for one in texts(of, "long-timeout")] == ["for all but Flink", "for Flink"]
    assert remedy("never-commits", "errors").text == "look at the errors of the application"


def test_one_is_no_plural() -> None:
    of = facts(log(replicas=[1]), topic(replicas=[2]), brokers=[broker(), broker(settings=OFF), broker("4.3")])
    shown = " ".join(one.finding for one in audit(of).exposures)
    assert "1 partition has one replica" in shown
    assert "1 partition with transactional data" in shown
    assert "broker 2 of 3 accepts a write" in shown
    assert "1 partitions" not in shown


def test_what_the_commands_of_a_finding_leave_is_said() -> None:
    many = [topic(f"topic-{number}", settings={UNCLEAN: ("true", 1)}) for number in range(7)]
    shown = texts(facts(*many), "unclean-election")
    assert shown == ["set it to false on the topic: this wins everywhere ..."] * 5 + [
        "then audit again: it has the commands for 2 more topics"
    ]


def test_a_value_of_the_controllers_node_is_ended_there() -> None:
    settings = {"process.roles": "broker,controller", UNCLEAN: "true"}
    of = facts(brokers=[broker(), broker(settings=settings), broker()])
    first, *_ = [one.command for one in remedies(of, "unclean-election")]
    assert first[-5:] == ("brokers", "--entity-name", "2", "--add-config", f"{UNCLEAN}=false")


ALL_IDS = (TRANSACTIONAL_ID, "*")
KAFKA = (CLUSTER, "kafka-cluster")


@pytest.mark.parametrize(
    ("check", "rule", "expected"),
    [
        (
            "marker-writers",
            AclRule("User:*", "Alter", *KAFKA, False, True),
            "--allow-principal 'User:*' --allow-host '*' --operation Alter --cluster",
        ),
        (
            "marker-writers",
            AclRule("User:app", "All", *KAFKA, False, True, host="10.0.0.1"),
            "--allow-principal User:app --allow-host 10.0.0.1 --operation All --cluster",
        ),
        (
            "id-owners",
            AclRule("User:it's", "Write", *ALL_IDS, False, True),
            r"--allow-principal 'User:it'\''s' --allow-host '*' --operation Write --transactional-id '*'",
        ),
    ],
)
def test_a_rule_is_shown_and_removed_as_it_is(check: str, rule: AclRule, expected: str) -> None:
    of = facts(brokers=[broker("3.9")] * 3, rules=[rule])
    admin = Grantee("b:1", "User:x")
    show, remove = (command_of(one, admin) for one in remedies(of, check))
    resource = expected.rpartition(f"--operation {rule.operation} ")[2]
    assert show == f"kafka-acls.sh --bootstrap-server b:1 --list {resource}"
    assert remove == f"kafka-acls.sh --bootstrap-server b:1 --remove --force {expected}"


def test_a_rule_that_another_one_denies_is_not_removed() -> None:
    denied = AclRule("User:app", "All", *KAFKA, False, False)
    of = facts(brokers=[broker("3.9")] * 3, rules=[AclRule("User:app", "Alter", *KAFKA, False, True), denied])
    assert remedies(of, "marker-writers") == []


@pytest.mark.parametrize(
    ("given", "times"),
    [({"in_sync": [1]}, 1), ({"leader": None}, 1), ({"replicas": [1]}, 0), ({"in_sync": [1, 2]}, 0)],
)
def test_a_partition_with_the_last_replica_in_sync_needs_its_brokers_back(given: Any, times: int) -> None:
    of = facts(topic(**given), brokers=[broker("4.4")] * 3)
    assert texts(of, "marker-skipped").count("bring the brokers back that have the partition") == times


def test_brokers_are_not_restarted_before_the_transactions_of_moved_ids_have_ended() -> None:
    (text,) = texts(facts(ids=[an_id(partition=0, own=1)]), "coordinator-partitions")
    assert text.index("end their open transactions") < text.index("restart all brokers")
