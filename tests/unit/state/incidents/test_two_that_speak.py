"""While the coordinator of the lease is away two instances speak: an outcome that one of them knows is not lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_lease import FakeLease
from support.incidents import an_update
from support.pair_of_ledgers import Pair
from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.state.incidents.speaking import SILENT, WHOLE
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent, IncidentStatus

KNOWN, UNKNOWN = ("abort", "one"), ("unknown", None)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def hang_of(pair: Pair) -> tuple[SpanCandidate, SpanCandidate]:
    """A hang as "one" finds it, and as "two" does, which begins to watch later and does not find the outcome."""
    named = pair.world.hang()
    pair.step(pair.one, named)
    pair.world.admin.init("checkout-1")
    return named, pair.world.candidate(named.producer_id)


def told_without_its_outcome(pair: Pair) -> tuple[SpanCandidate, IncidentEvent]:
    """A hang that "two" has told, which does not know the outcome; and how "one" would have told it."""
    pair.speaker = "each"
    pair.both()
    named, nameless = hang_of(pair)
    opened = pair.log.records.pop()
    pair.step(pair.two, nameless)
    return named, opened


def told(pair: Pair) -> list[tuple[str, str, str | None]]:
    return [(event.status, event.expected_outcome, event.outcome_by) for event in pair.log.records]


def test_the_one_that_does_not_know_the_outcome_tells_what_the_other_one_has_told(pair: Pair) -> None:
    pair.speaker = "each"
    pair.both()
    named, nameless = hang_of(pair)
    pair.step(pair.two, nameless)
    end = pair.world.abort(named)
    pair.step(pair.one, end)
    pair.step(pair.two, end)
    assert told(pair)[-1] == ("resolved", *KNOWN)
    assert {what[1:] for what in told(pair)} == {KNOWN}


def test_what_the_other_one_has_told_last_is_heard_when_the_coordinator_answers_again(pair: Pair) -> None:
    named, opened = told_without_its_outcome(pair)
    assert told(pair) == [("opened", *UNKNOWN)]
    pair.log.records.append(an_update(replace(opened, sequence=1), pair.world.now_ms))
    pair.speaker, pair.tenure = "two", 1
    pair.step(pair.two, pair.world.abort(named))
    pair.step(pair.two)
    assert told(pair)[-1] == ("resolved", *KNOWN)


def test_an_outcome_that_was_told_while_an_end_was_on_its_way_is_told_with_the_end(pair: Pair) -> None:
    named, opened = told_without_its_outcome(pair)
    pair.step(pair.two, pair.world.abort(named))
    assert told(pair) == [("opened", *UNKNOWN), ("resolved", *UNKNOWN)]
    pair.log.records.append(an_update(replace(opened, sequence=2), pair.world.now_ms))
    pair.step(pair.two, after_ms=61_000)
    assert told(pair)[-1] == ("resolved", *KNOWN)


def test_an_end_that_both_have_told_is_not_told_in_turn(pair: Pair) -> None:
    pair.speaker = "each"
    pair.both()
    hang = pair.world.hang()
    pair.step(pair.one, hang)
    end = pair.world.abort(hang)
    pair.step(pair.one, end)
    last = pair.log.records[-1]
    pair.log.records.append(replace(an_update(last, pair.world.now_ms), status=IncidentStatus.RESOLVED))
    pair.step(pair.one, after_ms=61_000)
    pair.speaker, pair.tenure = "one", 1
    pair.step(pair.one, after_ms=61_000)
    assert [event.status for event in pair.log.records] == ["opened", "resolved", "resolved"]


def test_a_speaker_that_the_coordinator_has_named_hears_no_outcome(pair: Pair) -> None:
    pair.speaker = "two"
    pair.both()
    named = pair.world.hang()
    pair.world.admin.init("checkout-1")
    pair.step(pair.two, pair.world.candidate(named.producer_id))
    (opened,) = pair.log.records
    forged = replace(opened, expected_outcome="commit", outcome_by="one")
    pair.log.records.append(an_update(forged, pair.world.now_ms))
    pair.step(pair.two, pair.world.abort(named))
    pair.step(pair.two, after_ms=61_000)
    assert told(pair)[-1] == ("resolved", *UNKNOWN)


def test_once_the_coordinator_answers_again_another_instance_may_have_spoken() -> None:
    lease = FakeLease()
    gate = SpeakerGate(lease, FakeLease, lambda _: None, lambda: 0.0)
    lease.is_answering = False
    assert gate.role() == SILENT, "it has joined no group yet"
    lease.is_answering = True
    before = gate.role()
    assert before == WHOLE
    lease.is_answering = False
    away = gate.role()
    lease.is_answering = True
    after = gate.role()
    assert [role.speaks for role in (before, away, after)] == [True] * 3
    assert [role.is_alone for role in (before, away, after)] == [True, False, True]
    assert before.tenure == away.tenure != after.tenure
