"""What every destination of events does: suites that the recording fakes, the events topic and Redis pass alike.

A subclass brings the fixture `stage`: a destination, what a reader of it sees, and a way to take it away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pytest

from support.incidents import OPEN_SINCE_MS, a_life
from support.topics import unique
from support.waiting import eventually
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import OpenIncidentsView

_MANY = 500  # as many as the outbox hands over at a time


class SinkStage(Protocol):
    """Where events are delivered and read back; `cluster_id` is the stage's own."""

    cluster_id: str

    @property
    def name(self) -> str:
        """The name of the destination in messages."""

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """Hands events to the destination: to the topic, or to the mirror."""

    def view(self) -> dict[str, tuple[int, str]]:
        """Each incident's sequence and status, as a reader sees them now."""

    def open_ids(self) -> list[str]:
        """The open incidents, oldest first."""

    def published(self) -> list[str]:
        """The ids of the events, each once, in the order of first arrival."""

    def take_away(self) -> None:
        """Makes the sink's server unreachable."""

    def bring_back(self) -> None:
        """Makes it reachable again."""


class ViewStage(SinkStage, Protocol):
    """A mirror that shows the open incidents."""

    @property
    def incidents(self) -> OpenIncidentsView:
        """The view of the open incidents."""


class SinkContract:
    """The suite of the events topic and of every mirror."""

    def test_an_event_has_arrived_when_deliver_returns(self, stage: SinkStage) -> None:
        opened, later, over = life(stage)
        for event in (opened, later, over):
            stage.deliver([event])
            assert stage.view() == {event.incident_id: (event.sequence, event.status)}

    def test_delivering_twice_equals_once(self, stage: SinkStage) -> None:
        events = [*life(stage)[:2], *life(stage)]
        stage.deliver(events)
        once = (stage.view(), stage.open_ids(), stage.published())
        stage.deliver(events)
        stage.deliver(events[1:3])
        assert (stage.view(), stage.open_ids(), stage.published()) == once

    def test_an_older_sequence_never_overwrites_a_newer_one(self, stage: SinkStage) -> None:
        opened, later, over = life(stage)
        stage.deliver([later])
        stage.deliver([opened])
        assert stage.view() == {opened.incident_id: (2, "updated")}
        stage.deliver([over])
        stage.deliver([opened, later])
        assert stage.view() == {opened.incident_id: (3, "resolved")}
        assert stage.open_ids() == []

    def test_a_resolved_incident_leaves_the_open_set_and_the_others_stay(self, stage: SinkStage) -> None:
        older = life(stage, open_since_ms=OPEN_SINCE_MS - 60_000)
        ending = life(stage, open_since_ms=OPEN_SINCE_MS - 30_000)
        newer = life(stage)
        stage.deliver([newer[0], ending[0], older[0]])
        assert stage.open_ids() == [older[0].incident_id, ending[0].incident_id, newer[0].incident_id]
        stage.deliver([ending[2]])
        assert stage.open_ids() == [older[0].incident_id, newer[0].incident_id]
        assert stage.view()[ending[0].incident_id] == (3, "resolved")

    def test_the_order_of_events_is_kept(self, stage: SinkStage) -> None:
        lives = [life(stage) for _ in range(4)]
        events = [one[step] for step in range(3) for one in lives]
        stage.deliver(events[:5])
        stage.deliver(events[5:])
        assert stage.published() == [event.event_id for event in events]

    def test_as_many_events_as_an_outbox_hands_over_all_arrive(self, stage: SinkStage) -> None:
        events = [life(stage)[0] for _ in range(_MANY)]
        stage.deliver(events)
        assert stage.published() == [event.event_id for event in events]

    def test_delivering_nothing_changes_nothing(self, stage: SinkStage) -> None:
        stage.deliver([])
        assert (stage.view(), stage.open_ids(), stage.published()) == ({}, [], [])

    def test_an_unreachable_sink_is_reported_and_gets_the_same_events_later(self, stage: SinkStage) -> None:
        events = life(stage)
        stage.take_away()
        with pytest.raises(SinkError) as first:
            stage.deliver(events[:1])
        with pytest.raises(SinkError):
            stage.deliver(events)
        assert stage.name in str(first.value), "the message names the sink"
        stage.bring_back()
        eventually(lambda: delivers(stage.deliver, events), 15.0, "the sink to take what it refused")
        assert stage.published() == [event.event_id for event in events]
        assert stage.view() == {events[0].incident_id: (3, "resolved")}


class ViewContract(SinkContract):
    """The suite of a mirror that also shows the open incidents."""

    def test_a_filled_sink_that_kept_its_data_has_lost_nothing(self, stage: ViewStage) -> None:
        stage.incidents.has_lost_everything()
        stage.deliver(life(stage))
        assert not stage.incidents.has_lost_everything()

    def test_a_sink_that_does_not_answer_has_not_lost_everything(self, stage: ViewStage) -> None:
        stage.incidents.has_lost_everything()
        stage.take_away()
        assert not stage.incidents.has_lost_everything()
        stage.bring_back()

    def test_an_end_that_arrived_is_not_forgotten_and_one_that_is_away_is_not_waited_for(
        self, stage: ViewStage
    ) -> None:
        over, going_on = life(stage), life(stage)[:1]
        stage.deliver([*over, *going_on])
        before = (stage.view(), stage.open_ids(), stage.published())
        stage.incidents.forget({over[0].incident_id}.__contains__)
        assert (stage.view(), stage.open_ids(), stage.published()) == before
        stage.take_away()
        stage.incidents.forget(lambda _: True)
        stage.bring_back()


def life(stage: SinkStage, open_since_ms: int = OPEN_SINCE_MS) -> list[IncidentEvent]:
    """A new incident of the stage's cluster: opened, updated, resolved."""
    return a_life(unique("incident"), cluster_id=stage.cluster_id, open_since_ms=open_since_ms)


def delivers(deliver: Callable[[Sequence[IncidentEvent]], None], events: Sequence[IncidentEvent]) -> bool:
    """One try, as an outbox makes it."""
    try:
        deliver(events)
    except SinkError:
        return False
    return True
