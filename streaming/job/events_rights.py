"""Checks the rights on the events topic, before the topic is opened.

Without one of them every later attempt fails in the same way: an idempotent producer gets no producer id from a broker
unless its user may write to a topic, and that is a fatal error of the client. So a missing right is one error that
names it, and never a retry for ever.
"""

from __future__ import annotations

import time

from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import AuthorizationError
from txnwatch.state.model.problem import ErrorCode
from txnwatch.state.text.grant import Grantee
from txnwatch.streaming.admin.topic_rights import READ, WRITE, Operations, create_problem, operations_of
from txnwatch.streaming.client.answers import the_one
from txnwatch.streaming.client.cluster import Cluster

_PAGE = "docs/rights.md"
_SHOWN_S, _PAUSE_S = 5.0, 0.1
_NEEDED = {
    WRITE: ("Write", "no event can be published"),
    READ: ("Read", "the incidents of an earlier start are unknown"),
}


def check_events_rights(cluster: Cluster, topic: str, grantee: Grantee, *, is_created: bool = False) -> None:
    """Checks that this user may read and write the events topic, or may create it if it does not exist.

    A broker that does not report rights (before Kafka 2.3) is not checked. A topic that was just created is awaited,
    because it takes a moment until every broker shows it.

    Raises:
        AuthorizationError: a right is missing; the message names it, the topic, the user and the command to grant it.
        BrokerError: no broker answers.
    """
    code, operations = _asked(cluster, topic)
    until_s = time.monotonic() + _SHOWN_S
    while is_created and code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and time.monotonic() < until_s:
        time.sleep(_PAUSE_S)
        code, operations = _asked(cluster, topic)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        _check_create(cluster, topic, grantee)
    elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        # A topic that exists looks the same as a topic that does not, if this user may not describe it.
        raise _missing(
            topic, grantee, ["Write", "Read"], "this user may not describe it (if it does not exist, grant Create too)"
        )
    elif code == ErrorCode.NONE and operations is not None:
        missing = [name for operation, name in _NEEDED.items() if operation not in operations]
        if missing:
            raise _missing(topic, grantee, [name for name, _ in missing], missing[0][1])


def _asked(cluster: Cluster, topic: str) -> tuple[int, Operations]:
    """The error code of the topic in a Metadata answer, and what this user may do with it."""
    connection = cluster.any_connection()
    version = connection.version(MetadataRequest, highest=12)
    if version is None or version < 8:
        return ErrorCode.NONE, None
    request = MetadataRequest(
        version=version,
        topics=[MetadataRequest.MetadataRequestTopic(version=version, name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    answer = the_one(cluster.call(connection, request).topics)
    return answer.error_code, operations_of(answer.authorized_operations)


def _check_create(cluster: Cluster, topic: str, grantee: Grantee) -> None:
    problem = create_problem(cluster, topic)
    if problem is not None and problem.is_denied:
        raise _missing(
            topic, grantee, ["Create", "Write", "Read"], "it does not exist, and this user may not create it"
        )


def _missing(topic: str, grantee: Grantee, names: list[str], result: str) -> AuthorizationError:
    rights = " and ".join(name.upper() for name in names)
    operations = [part for name in names[1:] for part in ("--operation", name)]
    line = grantee.line(names[0], *operations, "--topic", topic)
    return AuthorizationError(
        f"events topic {topic!r}: expected the right{'s' if len(names) > 1 else ''} {rights} for {grantee.principal}, "
        f"found {'none of them' if len(names) > 1 else 'it missing'}: {result}. Grant with `{line}` ({_PAGE})"
    )
