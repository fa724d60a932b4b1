"""The next command: whole, quoted, and never a marker of which nobody knows whether it is the right one."""

from __future__ import annotations

from typing import Any

import pytest

from support.incidents import an_event
from txnwatch.state.model.incident import EventsFlags, IncidentEvent
from txnwatch.state.model.incident import ExpectedOutcome as O
from txnwatch.state.model.transaction import DescribedTransaction, ProducerIdentity, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.telling.commands import (
    Origin,
    as_read,
    explain_id,
    explain_partition,
    fence,
    read_events,
    rehearse_end,
    with_command,
)

ORIGIN = Origin("cluster", "a:1,b:2")
SECURED = Origin("cluster", "a:1", "/etc/my kafka/client.properties")
ORDERS = TopicPartition("orders", 3)
AT = "--topic orders --partition 3"
WRITTEN_BY = ProducerIdentity(5, 3)


def an_owner(producer_id: int, epoch: int | None) -> DescribedTransaction:
    return DescribedTransaction("app", 1, TransactionState.EMPTY, producer_id, epoch, 60_000)


def hang(outcome: str = "unknown") -> IncidentEvent:
    """A hang on orders-3 from offset 7, which producer id 5 has written with epoch 3."""
    return an_event("hang", producer_id=5, producer_epoch=3, txn_start_offset=7, expected_outcome=outcome)


def command_of(origin: Origin, outcome: str, owner: DescribedTransaction | None) -> str:
    return str(with_command(origin, hang(outcome), owner).suggested_command)


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
    assert command_of(ORIGIN, outcome, None) == f"txnwatch {command} --bootstrap-server a:1,b:2"
    for fenced in (an_owner(5, 4), an_owner(6, 3)):
        assert command_of(ORIGIN, outcome, fenced) == command_of(ORIGIN, outcome, None)


@pytest.mark.parametrize("epoch", [3, 2, None])
@pytest.mark.parametrize("outcome", ["abort", "none", "commit", "unknown"])
def test_the_fence_comes_first_while_the_abort_would_be_refused(outcome: str, epoch: int | None) -> None:
    alone = command_of(ORIGIN, outcome, None)
    whole = command_of(ORIGIN, outcome, an_owner(5, epoch))
    of_it = f"--producer-id 5 --producer-epoch 3 {AT} --start-offset 7"
    first = f"txnwatch fence --transactional-id app {of_it} --bootstrap-server a:1,b:2 && "
    assert whole == (alone if outcome == "unknown" else f"{first}{alone}")


def test_an_event_that_was_read_leads_to_a_command_that_only_reads() -> None:
    """Whoever may write the topic could name the id of a healthy application."""
    forged = an_event("forged", transactional_id="healthy", suggested_command="txnwatch fence healthy --yes")
    assert as_read(ORIGIN, forged).suggested_command == explain_partition(ORIGIN, ORDERS)
    whole = an_event("whole", topic=None, partition=None, verdict="late", transactional_id="healthy")
    assert as_read(ORIGIN, whole).suggested_command == explain_id(ORIGIN, "healthy")


@pytest.mark.parametrize(
    "place", [{"topic": "a b"}, {"partition": -1}, {"partition": None}, {"topic": None, "transactional_id": None}]
)
def test_what_names_no_subject_leads_to_no_command(place: dict[str, Any]) -> None:
    assert as_read(ORIGIN, an_event("forged", **place)).suggested_command is None


def test_nothing_is_to_be_done_about_what_is_over_or_held() -> None:
    assert as_read(ORIGIN, an_event("held", suggested_command=None)).suggested_command is None
    assert as_read(ORIGIN, an_event("over", status="resolved")).suggested_command is None


def test_a_suggested_abort_has_the_events_flags_of_the_run() -> None:
    origin = Origin("cluster", "a:1", None, EventsFlags("my.events", "confluent-avro", "http://registry:8081"))
    events = "--events-topic my.events --events-format confluent-avro --schema-registry-url http://registry:8081"
    for command in (command_of(origin, "commit", None), rehearse_end(origin, hang(), None)):
        assert events in command
    look = explain_partition(origin, ORDERS)
    assert "--events-topic my.events --schema-registry-url http://registry:8081" in look, "it shows what watchers say"
    assert "--events-format" not in look, "which only a writer needs"


@pytest.mark.parametrize(("said", "flags"), [(O.COMMIT, " --result commit"), (O.ABORT, ""), (None, "")])
def test_what_a_watcher_has_said_is_the_marker_of_the_step_that_changes_nothing(said: O | None, flags: str) -> None:
    command = f"txnwatch abort {AT} --start-offset 7{flags} --bootstrap-server a:1,b:2 --dry-run"
    assert rehearse_end(ORIGIN, hang(), None, said) == command


def test_a_fence_names_the_epoch_that_it_fences() -> None:
    connection = "--bootstrap-server a:1 --command-config '/etc/my kafka/client.properties'"
    expected = f"txnwatch fence --transactional-id 'it is $mine' --producer-id 5 --producer-epoch 3 {connection}"
    assert fence(SECURED, "it is $mine", WRITTEN_BY) == expected


def test_a_suggested_command_has_the_connection_of_the_run() -> None:
    expected = f"txnwatch explain {AT} --bootstrap-server a:1 --command-config '/etc/my kafka/client.properties'"
    assert explain_partition(SECURED, ORDERS) == expected


def test_the_events_of_an_incident_are_read_where_the_run_publishes_them() -> None:
    """`events` finds the format itself, so it has no flag for it."""
    origin = Origin("cluster", "a:1", events=EventsFlags("my.events", "avro", "http://registry:8081", "/etc/keys"))
    expected = "--events-topic my.events --schema-registry-url http://registry:8081 --events-key-file /etc/keys"
    assert read_events(origin, "ab" * 16) == f"txnwatch events --incident {'ab' * 16} {expected} --bootstrap-server a:1"


@pytest.mark.parametrize(
    ("name", "flag"), [("a b", "--transactional-id 'a b'"), ("-x", "--transactional-id=-x"), ("$x", "'$x'")]
)
def test_any_transactional_id_can_be_pasted(name: str, flag: str) -> None:
    assert flag in explain_id(ORIGIN, name)
