"""Checks the rights on the events topic, before the topic is opened.

Without one of them every later attempt fails in the same way: an idempotent producer gets no producer id from a broker
unless its user may write to a topic, and that is a fatal error of the client. So a missing right is one error that
names it, and never a retry for ever.
"""

from __future__ import annotations

import time

from txnwatch.state.model.errors import AuthorizationError
from txnwatch.state.text.grant import Grantee
from txnwatch.streaming.admin.topic_rights import READ, WRITE, TopicRights, create_problem, rights_on
from txnwatch.streaming.client.cluster import Cluster

_PAGE = "docs/rights.md"
_SHOWN_S, _PAUSE_S = 5.0, 0.1
_NEEDED = {
    "Write": (WRITE, "no event can be published"),
    "Read": (READ, "the incidents of an earlier start are unknown"),
}


def check_events_rights(cluster: Cluster, topic: str, grantee: Grantee, *, is_created: bool = False) -> None:
    """Checks that this user may read and write the events topic, and may create it if it does not exist.

    A broker that does not report rights (before Kafka 2.3) is not checked. A topic that was just created is awaited,
    because it takes a moment until every broker shows it.

    Raises:
        AuthorizationError: a right is missing; the message names it, the topic, the user and the command to grant it.
        BrokerError: no broker answers.
    """
    rights = rights_on(cluster, topic)
    until_s = time.monotonic() + _SHOWN_S
    while is_created and rights.is_absent and time.monotonic() < until_s:
        time.sleep(_PAUSE_S)
        rights = rights_on(cluster, topic)
    missing = _lacks(rights)
    if rights.is_absent and _is_create_refused(cluster, topic):
        raise _missing(topic, grantee, ["Create", *missing], "it does not exist, and this user may not create it")
    if rights.is_hidden:
        # A topic that exists looks the same as a topic that does not, if this user may not describe it.
        result = "this user may not describe it (if it does not exist, grant Create too)"
        raise _missing(topic, grantee, missing, result)
    if missing:
        raise _missing(topic, grantee, missing, _NEEDED[missing[0]][1])


def check_write(cluster: Cluster, topic: str, grantee: Grantee) -> None:
    """Checks that this user may write an events topic that exists; a broker that does not report rights is not checked.

    Raises:
        AuthorizationError: the right is missing; the message is as above.
        BrokerError: no broker answers.
    """
    if "Write" in _lacks(rights_on(cluster, topic)):
        raise _missing(topic, grantee, ["Write"], _NEEDED["Write"][1])


def _lacks(rights: TopicRights) -> list[str]:
    if rights.operations is None:
        return []
    return [name for name, (operation, _) in _NEEDED.items() if operation not in rights.operations]


def _is_create_refused(cluster: Cluster, topic: str) -> bool:
    problem = create_problem(cluster, topic)
    return problem is not None and problem.is_denied


def _missing(topic: str, grantee: Grantee, names: list[str], result: str) -> AuthorizationError:
    rights = " and ".join(name.upper() for name in names)
    operations = [part for name in names[1:] for part in ("--operation", name)]
    line = grantee.line(names[0], *operations, "--topic", topic)
    return AuthorizationError(
        f"events topic {topic!r}: expected the right{'s' if len(names) > 1 else ''} {rights} for {grantee.principal}, "
        f"found {'none of them' if len(names) > 1 else 'it missing'}: {result}. Grant with `{line}` ({_PAGE})"
    )
