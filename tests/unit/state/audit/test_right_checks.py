"""The checks of the ACLs: who may write where only brokers write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from support.audited import broker, facts, found
from txnwatch.state.audit.audit_facts import AclRule, AuditFacts
from txnwatch.state.audit.audit_table import CHECKS, CheckGroup
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.right_checks import CLUSTER, TOPIC, TRANSACTIONAL_ID

ALL, APP = "User:*", "User:app"
LOG, OFFSETS = "__transaction_state", "__consumer_offsets"


def rule(principal: str, operation: str, resource: str, name: str, **more: Any) -> AclRule:
    return AclRule(principal, operation, resource, name, **{"is_prefix": False, "is_allowed": True, **more})


def with_rules(*rules: AclRule, release: str = "3.9", **more: Any) -> AuditFacts:
    brokers: Sequence[Any] = [broker(release) for _ in range(3)]
    return facts(brokers=brokers, rules=rules, **more)


KAFKA = (CLUSTER, "kafka-cluster")
WRITE = rule(APP, "Write", TOPIC, "*")
FIRES = {
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
SILENT = {
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


@pytest.mark.parametrize("case", FIRES)
def test_it_fires(case: str) -> None:
    expected, of = FIRES[case]
    assert expected in found(of)


@pytest.mark.parametrize("case", SILENT)
def test_a_near_miss_does_not_fire(case: str) -> None:
    unexpected, of = SILENT[case]
    assert [one for one in found(of) if one.endswith(unexpected)] == []


def test_each_check_of_rights_has_rows_for_each_severity_and_a_near_miss() -> None:
    of_rights = [check for check in CHECKS if check.group is CheckGroup.RIGHTS]
    expected = {f"{level} {check.name}" for check in of_rights for level in check.severities}
    assert expected == {line for line, _ in FIRES.values()}
    assert {name for name, _ in SILENT.values()} == {check.name for check in of_rights}


def test_what_is_denied_is_the_topic_that_the_principal_may_write() -> None:
    (one,) = audit(with_rules(rule(APP, "Write", TOPIC, LOG))).exposures
    (remedy,) = one.remedies
    assert remedy.command[-1] == LOG
    assert remedy.command[3] == APP
    assert one.key == APP
