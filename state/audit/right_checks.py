"""Checks of the cluster's ACLs: who can forge or delete transactions, and fence others. Pure: no I/O, no clock.

Super users, and the rules of an authorizer that is not Kafka's own, are in no answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from txnwatch.state.audit.audit_check import Basis, ExposureSeverity
from txnwatch.state.audit.audit_facts import AclRule, AuditFacts
from txnwatch.state.audit.exposures import Exposure, SeenValue, exposure, remedy
from txnwatch.state.audit.releases import Release
from txnwatch.state.model.values import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from txnwatch.state.text import cut, some_names

EVERYBODY: Final = "User:*"
TOPIC, CLUSTER, TRANSACTIONAL_ID = "topic", "cluster", "transactional id"
_ALTER_SINCE: Final = Release(3, 8)
_CRITICAL, _WARN, _INFO = ExposureSeverity
_NAMED = 5


def allowed_to(rules: Collection[AclRule], resource: str, name: str, operations: Collection[str]) -> list[str]:
    """The principals that may do one of the operations; a rule that denies it to all hosts wins."""
    fitting = [rule for rule in rules if rule.resource == resource and _fits(rule, name)]
    principals = sorted(
        {rule.principal for rule in fitting if rule.is_allowed and rule.operation in {*operations, "All"}}
    )

    def is_denied(principal: str, operation: str) -> bool:
        return any(
            not rule.is_allowed
            and rule.host == "*"
            and rule.principal in {principal, EVERYBODY}
            and rule.operation in {operation, "All"}
            for rule in fitting
        )

    def may(principal: str, operation: str) -> bool:
        return not is_denied(principal, operation) and any(
            rule.is_allowed and rule.principal == principal and rule.operation in {operation, "All"} for rule in fitting
        )

    return [principal for principal in principals if any(may(principal, operation) for operation in operations)]


def _fits(rule: AclRule, name: str) -> bool:
    return name.startswith(rule.name) if rule.is_prefix else rule.name in {name, "*"}


def internal_writers(facts: AuditFacts) -> Iterator[Exposure]:
    """Who may write to the internal topics."""
    if facts.is_open:
        yield exposure(
            "internal-writers",
            _INFO,
            "the brokers have no authorizer: every client can write to the internal topics, write markers and "
            "fence ids",
            Basis.PROVEN,
            ["every client"],
            [SeenValue("DescribeAcls", "error", "SECURITY_DISABLED")],
            [remedy("internal-writers", "authorizer")],
            key="authorizer",
        )
    by_principal: dict[str, list[str]] = {}
    for topic in (TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC):
        for principal in allowed_to(facts.rules or (), TOPIC, topic, ["Write"]):
            by_principal.setdefault(principal, []).append(topic)
    for principal, topics in by_principal.items():
        yield exposure(
            "internal-writers",
            _CRITICAL if principal == EVERYBODY else _WARN,
            f"{cut(principal)} may write to {' and '.join(topics)}: so it can forge or delete transactions",
            Basis.PROVEN,
            topics,
            [SeenValue("DescribeAcls", f"Write on topic {topic}", f"allowed to {cut(principal)}") for topic in topics],
            [remedy("internal-writers", "deny", principal=principal, topic=topic) for topic in topics],
            key=principal,
        )


def marker_writers(facts: AuditFacts) -> Iterator[Exposure]:
    """Who may write markers."""
    has_alter = any(release >= _ALTER_SINCE for release in facts.releases.values())
    operations = ["ClusterAction", *(["Alter"] if has_alter else [])]
    right = _Right(CLUSTER, "kafka-cluster", tuple(operations), "can write markers into any transaction")
    yield from _holders("marker-writers", facts.rules or (), right, _CRITICAL)


def id_owners(facts: AuditFacts) -> Iterator[Exposure]:
    """Who may fence any transactional id."""
    right = _Right(TRANSACTIONAL_ID, "*", ("Write",), "can fence any application")
    yield from _holders("id-owners", facts.rules or (), right, _WARN)


class _Right(NamedTuple):
    resource: str
    name: str
    operations: tuple[str, ...]
    effect: str

    def __str__(self) -> str:
        on = "the cluster" if self.resource == CLUSTER else f"all {self.resource}s"
        return f"{' or '.join(self.operations)} on {on}"

    def grants(self, rules: Collection[AclRule], principal: str) -> list[AclRule]:
        """The rules that allow it to a principal."""
        return [
            rule
            for rule in rules
            if (rule.resource, rule.principal, rule.is_allowed) == (self.resource, principal, True)
            and rule.operation in {*self.operations, "All"}
            and _fits(rule, self.name)
        ]


def _holders(
    name: str, rules: Collection[AclRule], right: _Right, of_everybody: ExposureSeverity
) -> Iterator[Exposure]:
    allowed = allowed_to(rules, right.resource, right.name, right.operations)
    others = [principal for principal in allowed if principal != EVERYBODY]
    for principals, severity in (([EVERYBODY] if EVERYBODY in allowed else [], of_everybody), (others, _INFO)):
        if principals:
            granted = [rule for principal in principals for rule in right.grants(rules, principal)]
            yield exposure(
                name,
                severity,
                f"{some_names(principals, _NAMED)} {right.effect}",
                Basis.PROVEN,
                [cut(principal) for principal in principals],
                [SeenValue("DescribeAcls", str(right), f"allowed to {some_names(principals, _NAMED)}")],
                [
                    remedy(name, "show"),
                    *(
                        remedy(
                            name,
                            "everybody" if rule.principal == EVERYBODY else "one",
                            principal=rule.principal,
                            host=rule.host,
                            operation=rule.operation,
                        )
                        for rule in granted[:_NAMED]
                    ),
                ],
                key=principals[0],
            )
