"""Incidents of one cause are one fold, each incident is in exactly one, and the worst one is the first."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import a_life, an_event
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.telling.folding import Cause, fold, harm, id_prefix, prefix_of

UUID = "6c84fb90-12c4-11e1-840d-7b25c5ee775a"
OWNERS = owners_of({"owner": [{"team": "a", "name": "A", "transactional_ids": ["a-*"]}]}, "a test")


def an_incident(number: int, topic: str | None, name: str | None, **changes: Any) -> IncidentEvent:
    place = {"topic": topic, "partition": None if topic is None else number, "transactional_id": name}
    return named(an_event(f"incident-{number}", producer_id=number, **{**place, **changes}), OWNERS)


def causes(incidents: list[IncidentEvent]) -> list[tuple[str | None, str | None, int]]:
    return [(one.cause.topic, one.cause.prefix, len(one.incidents)) for one in fold(incidents)]


def test_a_topic_whose_writers_all_hang_is_one_fold() -> None:
    assert causes([an_incident(n, "events", f"{'abcdefgh'[n]}x") for n in range(8)]) == [("events", None, 8)]


def test_an_application_that_hangs_on_many_topics_is_one_fold() -> None:
    assert causes([an_incident(n, f"t{n}", f"loader-{n}") for n in range(8)]) == [(None, "loader", 8)]


def test_incidents_about_whole_transactions_fold_by_their_ids() -> None:
    late = [an_incident(n, None, f"dwh-orders-{n}-11", verdict="late") for n in range(3)]
    assert causes(late) == [(None, "dwh-orders", 3)]


@pytest.mark.parametrize(
    "other", [{"reason": "not_started"}, {"verdict": "late"}, {"transactional_id": "a-2"}, {"cluster_name": "other"}]
)
def test_what_differs_is_another_fold(other: dict[str, Any]) -> None:
    assert len(fold([an_incident(1, "events", "x-1"), an_incident(2, "events", "y-2", **other)])) == 2


def test_the_first_incident_is_the_first_of_the_first_fold() -> None:
    incidents = [an_incident(1, "b", "x-1"), an_incident(2, "c", "y-1"), an_incident(3, "b", "z-1")]
    first, second = fold(incidents)
    assert [one.incident_id for one in (*first.incidents, *second.incidents)] == [
        incidents[at].incident_id for at in (0, 2, 1)
    ]
    assert first.cause == Cause("cluster", incidents[0].verdict, incidents[0].reason, "none", "b", None)


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        ("checkout-7", "checkout"),
        ("dwh-orders-4-1187", "dwh-orders"),
        ("app-8d3c2a10-1111-4222-8333-123456789abc-0_3", "app"),
        ("8d3c2a10-1111-4222-8333-123456789abc", ""),
        ("payments", "payments"),
        (None, None),
    ],
)
def test_the_prefix_is_the_application_without_its_instance(name: str | None, prefix: str | None) -> None:
    assert prefix_of(an_incident(1, "t", name)) == prefix


_NAMES = st.sampled_from([None, "a-1", "a-2", "b-1", "b-2", "c"])


@given(st.lists(st.tuples(st.sampled_from([None, "t", "u"]), _NAMES, st.sampled_from(["late", "hanging"]))))
def test_each_incident_is_in_exactly_one_fold(given_ones: list[tuple[str | None, str | None, str]]) -> None:
    incidents = [an_incident(n, topic, name, verdict=verdict) for n, (topic, name, verdict) in enumerate(given_ones)]
    folded = [event.incident_id for one in fold(incidents) for event in one.incidents]
    assert sorted(folded) == sorted(event.incident_id for event in incidents)
    assert all(len({(e.verdict, e.reason) for e in one.incidents}) == 1 for one in fold(incidents))


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("dwh-orders-4-1187", "dwh-orders"),
        ("dwh-orders-2893412567-4-1187", "dwh-orders"),
        (f"ledger-eos-{UUID}-2", "ledger-eos"),
        (f"billing{UUID}", "billing"),
        ("ledger-eos-0_11", "ledger-eos"),
        (f"Sink: orders-{'0af3' * 8}-7", "Sink: orders"),
        ("checkout-7", "checkout"),
        ("tx-billing.orders.3", "tx-billing.orders"),
        ("payments-\u00fc", "payments-\u00fc"),
        ("4711", "4711"),
        (UUID, UUID),
        ("", ""),
    ],
)
def test_the_prefix_of_an_id_names_its_application(transactional_id: str, expected: str) -> None:
    assert id_prefix(transactional_id) == expected


@pytest.mark.parametrize("part", ["1", "-", "a1", f"{UUID}-"])
def test_an_id_of_any_length_is_read_in_no_time(part: str) -> None:
    begun = time.process_time()
    id_prefix((part * 1_000)[:1_000])
    id_prefix((part * 40_000)[:32_767])
    assert time.process_time() - begun < 0.05


def test_the_worst_is_the_one_that_hurts_most() -> None:
    stopped = [{"group_id": "a", "state": "stopped", "committed_offset": 1, "hidden_lag": 2}]
    at_risk = [{**stopped[0], "state": "at_risk"}]
    events = [
        an_event("hurts", topic=None, partition=None, verdict="late", consumer_groups=stopped),
        an_event("risky", topic="payments", consumer_groups=at_risk),
        an_event("many", hidden_records=99),
        an_event("few", hidden_records=1),
        an_event("late", topic=None, partition=None, verdict="late"),
        a_life("over")[-1],
    ]
    assert [*sorted({event.incident_id: event for event in events[::-1]}.values(), key=harm)] == events
