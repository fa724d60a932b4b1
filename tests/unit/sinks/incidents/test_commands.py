"""The next command: whole, quoted, and never a marker of which nobody knows whether it is the right one."""

from __future__ import annotations

import pytest

from txnwatch.sinks.incidents.event_builder import (
    EventsFlags,
    Origin,
    end_hanging,
    explain_id,
    explain_partition,
    fence,
    rehearse_abort,
)
from txnwatch.state.model.values import TopicPartition

ORIGIN = Origin("cluster", "a:1,b:2")
SECURED = Origin("cluster", "a:1", "/etc/my kafka/client.properties")
ORDERS = TopicPartition("orders", 3)
AT = "--topic orders --partition 3"


@pytest.mark.parametrize(
    ("outcome", "command"),
    [
        ("abort", f"abort {AT} --start-offset 7"),
        ("none", f"abort {AT} --start-offset 7"),
        ("commit", f"abort {AT} --start-offset 7 --result commit"),
        ("unknown", f"explain {AT}"),
    ],
)
def test_a_hang_is_ended_with_its_expected_outcome(outcome: str, command: str) -> None:
    assert end_hanging(ORIGIN, ORDERS, 7, outcome) == f"txnwatch {command} --bootstrap-server a:1,b:2"


def test_a_suggested_abort_has_the_events_flags_of_the_run() -> None:
    origin = Origin("cluster", "a:1", None, EventsFlags("my.events", "confluent-avro", "http://registry:8081"))
    events = "--events-topic my.events --events-format confluent-avro --schema-registry-url http://registry:8081"
    for command in (end_hanging(origin, ORDERS, 7, "commit"), rehearse_abort(origin, ORDERS, 7)):
        assert events in command
    assert "events" not in explain_partition(origin, ORDERS), "which asks for none of them"


def test_a_client_is_fenced_with_kafkas_own_tool_and_flag() -> None:
    tool = "kafka-transactions.sh --bootstrap-server a:1 --command-config '/etc/my kafka/client.properties'"
    expected = f"{tool} forceTerminateTransaction --transactionalId 'it is $mine'"
    assert fence(SECURED, "it is $mine") == expected


def test_a_suggested_command_has_the_connection_of_the_run() -> None:
    expected = f"txnwatch explain {AT} --bootstrap-server a:1 --command-config '/etc/my kafka/client.properties'"
    assert explain_partition(SECURED, ORDERS) == expected


@pytest.mark.parametrize(
    ("name", "flag"), [("a b", "--transactional-id 'a b'"), ("-x", "--transactional-id=-x"), ("$x", "'$x'")]
)
def test_any_transactional_id_can_be_pasted(name: str, flag: str) -> None:
    assert flag in explain_id(ORIGIN, name)
