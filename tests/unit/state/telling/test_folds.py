"""Incidents of one cause are one fold, and each incident is in exactly one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.incidents import an_event
from txnwatch.owners.owner_table import owners_of
from txnwatch.state.incidents.event_builder import named
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.telling.folding import FoldCause, fold, prefix_of

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


@pytest.mark.parametrize("other", [{"reason": "not_started"}, {"verdict": "late"}, {"transactional_id": "a-2"}])
def test_what_differs_is_another_fold(other: dict[str, Any]) -> None:
    assert len(fold([an_incident(1, "events", "x-1"), an_incident(2, "events", "y-2", **other)])) == 2


def test_the_first_incident_is_the_first_of_the_first_fold() -> None:
    incidents = [an_incident(1, "b", "x-1"), an_incident(2, "c", "y-1"), an_incident(3, "b", "z-1")]
    first, second = fold(incidents)
    assert [one.incident_id for one in (*first.incidents, *second.incidents)] == [
        incidents[at].incident_id for at in (0, 2, 1)
    ]
    assert first.cause == FoldCause(incidents[0].verdict, incidents[0].reason, "none", "b", None)


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
