"""What was done by hand is known to who did it, whatever becomes of the event."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from support.incidents import an_event
from txnwatch.cli import abort_by_hand
from txnwatch.sinks.abort.marker_write import MarkerResult
from txnwatch.state.abort.decision import AbortSpec
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import ActionResult
from txnwatch.state.model.ports import MarkerSpec, PartitionReading


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
    monkeypatch.setattr(
        abort_by_hand, "write", lambda *_: MarkerResult(ActionResult.VERIFIED, stable_after=12, is_closed=True)
    )
    monkeypatch.setattr(abort_by_hand, "read_anew", lambda _, *found: found)
    evidence = SimpleNamespace(candidate=None, outcome="abort")
    came_to = abort_by_hand.act(case, incident, evidence)  # type: ignore[arg-type]
    assert isinstance(came_to, MarkerResult)
    assert came_to.result == ActionResult.VERIFIED
    assert "the event could not be delivered" in (came_to.detail or "")
