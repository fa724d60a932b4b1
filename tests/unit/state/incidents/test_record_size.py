"""An event always fits into a record: one that does not would stand before all others for ever."""

from __future__ import annotations

from support.incidents import an_event
from support.ledger_world import LedgerWorld
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.state.incidents.event_builder import fitting
from txnwatch.state.incidents.value_rules import NAME_BYTES
from txnwatch.state.model.incident import IncidentEvent

LIBRDKAFKA_MOST = 1_000_000
CONTROL = "\x01" * NAME_BYTES  # six bytes each in JSON


def huge() -> IncidentEvent:
    places = tuple(f"{'x' * 240}-{number}" for number in range(20_000))
    group = {"state": "at_risk", "committed_offset": 1, "hidden_lag": 1}
    groups = tuple({"group_id": f"{number}{CONTROL[:-9]}", **group} for number in range(100))
    waiting = tuple({"group_id": f"billing-{number}", "partitions": places[:100]} for number in range(100))
    return an_event(
        pending_partitions=places,
        consumer_groups=groups,
        waiting_groups=waiting,
        evidence={"complete": True, "coordinator_partitions": places},
        transactional_id=CONTROL,
    )


def test_an_event_fits_into_a_record_whatever_others_name_and_how_many_they_are() -> None:
    event = fitting(huge())
    assert len(to_json(event)) < LIBRDKAFKA_MOST / 2
    assert event.pending_partitions == huge().pending_partitions[: len(event.pending_partitions)]
    assert len(event.pending_partitions) > 100
    assert event.waiting_groups == huge().waiting_groups[: len(event.waiting_groups)]
    assert len(event.waiting_groups) >= 2
    assert fitting(event) == event


def test_an_event_of_the_usual_size_stays_as_it_is() -> None:
    event = an_event(pending_partitions=("orders-1", "orders-2"))
    assert fitting(event) is event


def test_a_ledger_publishes_what_fits() -> None:
    world = LedgerWorld()
    candidate = world.hang()
    for number in range(100):
        world.groups.commit(f"{number}{CONTROL[:-9]}", world.partition, 0)
    world.admin.plain(world.partition, 5)
    world.batch(candidate)
    world.batch(after_ms=11_000)
    assert world.topic.published
    assert max(len(to_json(event)) for event in world.topic.published) < LIBRDKAFKA_MOST
