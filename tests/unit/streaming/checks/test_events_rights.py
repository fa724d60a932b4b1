"""The rights on the events topic at the start of `run`: each one that is missing is named before Spark starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.metadata import MetadataRequest

from txnwatch.state.model.errors import AuthorizationError
from txnwatch.state.model.values import ErrorCode
from txnwatch.state.text import Grantee
from txnwatch.streaming.checks.preflight import DESCRIBE, READ, WRITE, TopicRights, check_events_rights, rights_on

TOPIC, USER = "txnwatch.events", Grantee("a:1", "User:watcher")
GRANT = "kafka-acls.sh --bootstrap-server a:1 --add --allow-principal User:watcher"
EXISTS, ABSENT, HIDDEN = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
READS, WRITES, BOTH = {READ, DESCRIBE}, {WRITE, DESCRIBE}, {READ, WRITE, DESCRIBE}


class Broker:
    """One broker of a Cluster, with its answers about the events topic.

    Attributes:
        codes: the error codes of the topic, one for each answer; the last one is repeated.
        operations: what Metadata answers; None if the broker does not report it.
        created: the error code of a request to create the topic.
        version: the version of the requests.
    """

    def __init__(self, *codes: int, operations: set[int] | None, created: int = 0, version: int = 12) -> None:
        self.codes, self.operations, self.created, self.version = list(codes), operations, created, version

    def any_connection(self) -> Any:
        return SimpleNamespace(version=lambda *_, **__: self.version, require_version=lambda *_, **__: 5)

    def call(self, _: Any, request: Any) -> Any:
        if isinstance(request, CreateTopicsRequest):
            assert request.validate_only
            return SimpleNamespace(topics=[SimpleNamespace(error_code=self.created)])
        assert isinstance(request, MetadataRequest)
        assert ([topic.name for topic in request.topics], request.allow_auto_topic_creation) == ([TOPIC], False)
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        return SimpleNamespace(topics=[SimpleNamespace(error_code=code, authorized_operations=self.operations)])


def problem(broker: Any, *, is_created: bool = False) -> str:
    """What the check reports; empty if no right is missing."""
    try:
        check_events_rights(broker, TOPIC, USER, is_created=is_created)
    except AuthorizationError as exc:
        return str(exc)
    return ""


COMPLETE = {
    "it exists": Broker(EXISTS, operations=BOTH),
    "it exists, and may not be created": Broker(EXISTS, operations=BOTH, created=HIDDEN),
    "it does not exist": Broker(ABSENT, operations=BOTH),
    "the broker does not report operations": Broker(ABSENT, operations=None),
    "a broker before Kafka 2.3": Broker(ABSENT, operations=None, version=7),
}


@pytest.mark.parametrize("broker", COMPLETE.values(), ids=COMPLETE.keys())
def test_nothing_is_reported_if_no_right_is_known_to_be_missing(broker: Broker) -> None:
    assert problem(broker) == ""


MISSING = {
    "write": (Broker(EXISTS, operations=READS), "the right WRITE", "--operation Write"),
    "read": (Broker(EXISTS, operations=WRITES), "the right READ", "--operation Read"),
    "write, before it exists": (Broker(ABSENT, operations=READS), "the right WRITE", "--operation Write"),
    "read, before it exists": (Broker(ABSENT, operations=WRITES), "the right READ", "--operation Read"),
    "both, before it exists": (
        Broker(ABSENT, operations={DESCRIBE}),
        "the rights WRITE and READ",
        "--operation Write --operation Read",
    ),
    "create": (Broker(ABSENT, operations=BOTH, created=HIDDEN), "the right CREATE", "--operation Create"),
    "create and write": (
        Broker(ABSENT, operations=READS, created=HIDDEN),
        "the rights CREATE and WRITE",
        "--operation Create --operation Write",
    ),
    "both, of a hidden topic": (
        Broker(HIDDEN, operations=None),
        "the rights WRITE and READ",
        "--operation Write --operation Read",
    ),
}


@pytest.mark.parametrize(("broker", "rights", "operations"), MISSING.values(), ids=MISSING.keys())
def test_missing_rights_are_one_line_with_the_command_that_grants_exactly_them(
    broker: Broker, rights: str, operations: str
) -> None:
    found = problem(broker)
    assert f"expected {rights} for User:watcher" in found
    assert f"`{GRANT} {operations} --topic {TOPIC}`" in found
    assert "\n" not in found


def test_a_topic_that_was_just_created_is_awaited() -> None:
    broker = Broker(ABSENT, ABSENT, EXISTS, operations=READS, created=ErrorCode.TOPIC_ALREADY_EXISTS)
    assert "expected the right WRITE" in problem(broker, is_created=True)
    assert broker.codes == [EXISTS]


def test_a_hidden_topic_allows_nothing() -> None:
    broker: Any = Broker(HIDDEN, operations=None)
    assert rights_on(broker, TOPIC) == TopicRights(frozenset(), HIDDEN)
