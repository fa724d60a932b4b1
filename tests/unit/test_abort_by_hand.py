"""What was done by hand is known to who did it, whatever becomes of the event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from support.incidents import a_life, an_event
from txnwatch.cli import abort_by_hand
from txnwatch.clients import events_topic
from txnwatch.sinks.marking import VERIFIED, CameTo
from txnwatch.state.abort_plan import AbortSpec
from txnwatch.state.confirmation import Answer, SpanConfirmation
from txnwatch.state.errors import BrokerError, SinkError
from txnwatch.state.ids import TopicPartition
from txnwatch.state.incident import IncidentEvent, updated
from txnwatch.state.ports import MarkerSpec, PartitionReading


def test_a_marker_whose_event_cannot_be_told_is_still_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[IncidentEvent] = []

    class Sink:
        def tell(self, event: IncidentEvent) -> None:
            if told:
                raise SinkError("topic txnwatch.events: not acknowledged")
            told.append(event)

    case = SimpleNamespace(asked=SimpleNamespace(is_commit=False), admin=None)
    incident = an_event(status="opened")
    spec = AbortSpec(MarkerSpec(TopicPartition("orders", 3), 7, 0, 0))
    reading = PartitionReading(spec.marker.partition)
    found = SpanConfirmation(Answer.CONFIRMED, reading=reading)
    monkeypatch.setattr(abort_by_hand, "_confirmed", lambda *_: found)
    monkeypatch.setattr(abort_by_hand, "decide", lambda *_: spec)
    monkeypatch.setattr(abort_by_hand, "_telling", lambda _: nullcontext(Sink()))
    monkeypatch.setattr(abort_by_hand, "write", lambda *_: CameTo(VERIFIED, stable_after=12, is_closed=True))
    came_to = abort_by_hand.act(case, incident)  # type: ignore[arg-type]
    assert isinstance(came_to, CameTo)
    assert came_to.result == VERIFIED
    assert "could not be told" in (came_to.detail or "")


OPENED = an_event()
CASE = SimpleNamespace(config={}, events=events_topic("txnwatch.events", None, None, {}))


@pytest.mark.parametrize(
    ("told", "watched"),
    [
        pytest.param([OPENED], OPENED, id="open"),
        pytest.param(
            [OPENED, replace(OPENED, expected_outcome="unknown")], OPENED, id="the first of a sequence counts"
        ),
        pytest.param([SinkError("no event"), OPENED], OPENED, id="a record that is none"),
        pytest.param([*a_life("incident"), OPENED], None, id="over, whatever stands last"),
        pytest.param([an_event("another", producer_id=1)], None, id="of other data"),
        pytest.param([OPENED, BrokerError("gone")], None, id="a topic that was not read to its end"),
    ],
)
def test_what_a_watch_knows_of_the_very_data_is_taken_over(
    monkeypatch: pytest.MonkeyPatch, told: list[IncidentEvent | Exception], watched: IncidentEvent | None
) -> None:
    def read(*_: object, **__: object) -> Iterator[IncidentEvent | SinkError]:
        for one in told:
            if isinstance(one, BrokerError):
                raise one
            assert isinstance(one, IncidentEvent | SinkError)
            yield one

    monkeypatch.setattr(abort_by_hand, "read_events", read)
    assert abort_by_hand._watched(CASE, OPENED) == watched  # type: ignore[arg-type]


def test_a_later_event_of_the_watch_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    later = updated(OPENED, OPENED.time_ms + 1, expected_outcome="commit")
    monkeypatch.setattr(abort_by_hand, "read_events", lambda *_, **__: [OPENED, later])
    assert abort_by_hand._watched(CASE, OPENED) == later  # type: ignore[arg-type]
