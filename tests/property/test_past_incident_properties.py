"""A week of history does not depend on the order of the events, nor on how often they are read."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.incidents import a_life
from txnwatch.state.incidents.past_incidents import IncidentHistory
from txnwatch.state.incidents.past_summary import Facet, PastSummary, PastWindow, summary_of
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent
from txnwatch.state.model.ownership import NO_OWNERS
from txnwatch.state.model.values import TimestampMs

WINDOW = PastWindow(TimestampMs(100_000), TimestampMs(200_000))


@st.composite
def events(draw: st.DrawFn) -> list[IncidentEvent]:
    """The lives of a few incidents, also cut at their end, and forged ones of the same sequence."""
    found = []
    for name in draw(st.sets(st.sampled_from("abc"))):
        shift = draw(st.integers(60_000, 210_000)) - a_life(name)[0].time_ms
        life = [replace(one, time_ms=TimestampMs(one.time_ms + shift)) for one in a_life(name)]
        found += life[: draw(st.integers(0, 3))]
    for one in list(found):
        if draw(st.booleans()):
            later = TimestampMs(one.time_ms + draw(st.integers(-2, 2)))
            sequence = draw(st.sampled_from([one.sequence, SPENT_SEQUENCE]))
            found.append(
                replace(one, time_ms=later, sequence=sequence, transactional_id=draw(st.none() | st.just("z")))
            )
    return found


def read(found: list[IncidentEvent]) -> PastSummary:
    history = IncidentHistory(NO_OWNERS)
    for one in found:
        history.take(one)
    return summary_of(history, WINDOW)


@given(events(), st.data())
def test_neither_the_order_nor_a_repetition_changes_anything(found: list[IncidentEvent], data: st.DataObject) -> None:
    again = [*found, *data.draw(st.lists(st.sampled_from(found)) if found else st.just([]))]
    assert read(data.draw(st.permutations(again))) == read(found)


@given(events())
def test_each_incident_of_the_window_is_once_in_the_numbers(found: list[IncidentEvent]) -> None:
    summary = read(found)
    ids = [one.incident_id for one in summary.incidents]
    assert len(ids) == len(set(ids)) <= len({one.incident_id for one in found})
    for by in (Facet.OWNER, Facet.TRANSACTIONAL_ID, Facet.VERDICT, Facet.DAY):
        groups = summary.groups(by)
        assert sum(one.incidents for one in groups) == len(ids)
        assert sum(count for one in groups for _, count in one.ends) == len(ids)
        assert sum(one.still_open for one in groups) == summary.still_open
        assert sum(one.opened_before for one in groups) == summary.opened_before
