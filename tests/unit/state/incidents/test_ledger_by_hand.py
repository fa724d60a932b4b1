"""An abort by hand beside a running watch: its incident is about the abort, the watch's own goes on to its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_lease import FakeLease
from support.incidents import an_update
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.evidence.ending import given_up, no_longer_open
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.incidents.incident_store import IN_HAND_MS
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ActionResult, Decision, IncidentEvent, Initiator, repeat_incident_id, resolved


class Beside(LedgerWorld):
    """A watch with one open incident, and somebody who aborts by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.log = SharedLog()
        self.ledger = self.another(self.log)
        self.own_candidate: SpanCandidate = self.hang()
        self.batch(self.own_candidate)
        (self.own,) = self.log.published

    def hand_announces(self) -> IncidentEvent:
        begun = action(Decision.ABORT, "somebody@host", self.now_ms, initiator=Initiator.OPERATOR)
        own_id = repeat_incident_id(self.own.incident_id, self.now_ms)
        ahead = replace(self.own, incident_id=own_id, action=begun, time_ms=self.now_ms)
        self.log.records.append(ahead)
        return ahead

    def hand_reports(self, ahead: IncidentEvent, result: ActionResult) -> None:
        assert ahead.action is not None
        after = an_update(ahead, self.now_ms, action=replace(ahead.action, result=result))
        self.log.records.append(after)
        if result is ActionResult.VERIFIED:
            self.log.records.append(resolved(after, self.now_ms, no_longer_open(self.now_ms, "by hand")))

    def life(self, incident_id: str) -> list[str]:
        return [event.status for event in self.log.published if event.incident_id == incident_id]


@pytest.fixture
def beside() -> Beside:
    return Beside()


def test_the_watchs_own_incident_ends_with_the_marker_in_the_log(beside: Beside) -> None:
    beside.hand_reports(beside.hand_announces(), ActionResult.VERIFIED)
    beside.batch(beside.abort(beside.own_candidate))
    last = beside.log.compacted[beside.own.incident_id]
    assert last.resolution is not None
    assert (last.resolution.how, last.resolution.marker_offset) == ("aborted", 7)
    assert beside.ledger.open_incidents == []


def test_an_abort_by_hand_that_gave_up_leaves_the_watchs_own_incident_open(beside: Beside) -> None:
    ahead = beside.hand_announces()
    beside.log.records.append(resolved(ahead, beside.now_ms, given_up(beside.now_ms, "the leader changed")))
    beside.batch(beside.own_candidate)
    assert [event.incident_id for event in beside.ledger.open_incidents] == [beside.own.incident_id]
    assert beside.life(beside.own.incident_id) == ["opened"]


def test_a_span_is_not_opened_twice_because_of_an_abort_by_hand(beside: Beside) -> None:
    beside.hand_reports(beside.hand_announces(), ActionResult.VERIFIED)
    beside.batch(beside.own_candidate)  # an election has taken the hand's marker away
    assert [event.incident_id for event in beside.ledger.open_incidents] == [beside.own.incident_id]


def test_an_abort_by_hand_ends_the_incident_that_it_announced(beside: Beside) -> None:
    ahead = beside.hand_announces()
    beside.batch(after_ms=12_000)
    beside.batch(beside.abort(beside.own_candidate), after_ms=12_000)
    assert beside.life(ahead.incident_id) == ["opened"]
    beside.hand_reports(ahead, ActionResult.VERIFIED)
    beside.batch(after_ms=61_000)
    assert beside.life(ahead.incident_id) == ["opened", "updated", "resolved"]


def test_the_abort_of_a_command_that_ended_early_is_followed_up(beside: Beside) -> None:
    ahead = beside.hand_announces()
    beside.batch(beside.abort(beside.own_candidate))
    beside.batch(after_ms=IN_HAND_MS)
    beside.batch(after_ms=IN_HAND_MS)
    assert beside.life(ahead.incident_id) == ["opened", "resolved"]
    assert beside.ledger.open_incidents == []


def test_an_unfinished_abort_by_hand_stays_one_when_the_watch_ends_it(beside: Beside) -> None:
    ahead = beside.hand_announces()
    beside.batch(beside.abort(beside.own_candidate))
    beside.batch(after_ms=IN_HAND_MS)
    beside.batch(after_ms=IN_HAND_MS)
    last = beside.log.compacted[ahead.incident_id]
    assert (last.status, last.is_by_hand) == ("resolved", True)


def test_the_automatic_abort_counts_and_decides_a_span_once(beside: Beside) -> None:
    beside.hand_reports(beside.hand_announces(), ActionResult.STILL_OPEN)
    beside.batch()
    beside.admin.init("checkout-1")
    policy = AbortPolicy(after_ms=0, breaker_incidents=1)
    abort = RunningAbort("on", policy, 1_000, beside.ledger, FakeLease(), "here", lambda: beside.now_ms)
    abort.on_batch()
    assert len(beside.admin.markers) == 1
    assert beside.ledger.open_incidents[0].action is not None
    assert beside.ledger.open_incidents[0].action.result is ActionResult.VERIFIED
