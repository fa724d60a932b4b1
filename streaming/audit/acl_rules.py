"""The ACLs that `txnwatch audit` judges, with one request for all rules.

A request names one resource at most, and the checks judge several: three requests make a broker look at all rules
three times.

Apart: checkup.py asks about one topic of txnwatch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from txnwatch.state.audit.audit_facts import AclRule, NotAudited
from txnwatch.state.audit.right_checks import CLUSTER, TOPIC, TRANSACTIONAL_ID
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import ErrorCode
from txnwatch.streaming.admin.kafka_settings import ANY, describe_acls
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import problem_of

# Kafka's classes ResourceType, PatternType, AclOperation and AclPermissionType
_RESOURCES: Final = {2: TOPIC, 4: CLUSTER, 5: TRANSACTIONAL_ID}
_OPERATIONS: Final = {2: "All", 4: "Write", 7: "Alter", 9: "ClusterAction"}
_PREFIXED, _ALLOW = 4, 3


class FoundRules(NamedTuple):
    """The rules; None if they are not known. `is_open`: the brokers have no authorizer."""

    rules: tuple[AclRule, ...] | None = None
    is_open: bool = False
    missing: tuple[NotAudited, ...] = ()


def read_rules(cluster: Cluster) -> FoundRules:
    """The rules about what a check judges."""
    try:
        answer = describe_acls(cluster, ANY, None, ANY)
    except BrokerError as exc:
        return _unknown(str(exc))
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return FoundRules(is_open=True)
    problem = problem_of(answer.error_code)
    if problem is not None:
        return _unknown(str(problem.with_right("DESCRIBE on the cluster")))
    return FoundRules(tuple(_rules(answer)))


def _unknown(why: str) -> FoundRules:
    return FoundRules(missing=(NotAudited("ACLs", why),))


def _rules(answer: Any) -> Iterator[AclRule]:
    for resource in answer.resources:
        for acl in resource.acls:
            if acl.operation in _OPERATIONS and resource.resource_type in _RESOURCES:
                yield AclRule(
                    acl.principal,
                    _OPERATIONS[acl.operation],
                    _RESOURCES[resource.resource_type],
                    resource.resource_name,
                    resource.pattern_type == _PREFIXED,
                    acl.permission_type == _ALLOW,
                    acl.host,
                )
