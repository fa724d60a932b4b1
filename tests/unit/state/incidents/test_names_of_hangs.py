"""Two instances that speak in turn, or at once: a hang has one id for both, and what one has found is not lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import START_MS
from support.incidents import an_update
from support.pair_of_ledgers import Pair
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import SpanCandidate, StrayWrite
from txnwatch.state.model.incident import IncidentEvent, repeat_incident_id, resolved


@pytest.fixture
def pair() -> Pair:
    return Pair()


def opened_again(pair: Pair) -> tuple[SpanCandidate, IncidentEvent]:
    """A hang and the first event of it, which somebody has ended; "two" has opened it again, under another id."""
    candidate = pair.world.hang()
    pair.both(candidate)
    first = pair.log.records[0]
    pair.log.records.append(resolved(first, pair.world.now_ms, no_longer_open(pair.world.now_ms, "not so")))
    pair.speaker = "two"
    pair.step(pair.two, candidate)
    return candidate, first


def test_two_that_speak_at_once_call_a_hang_by_the_first_of_its_ids(pair: Pair) -> None:
    candidate, first = opened_again(pair)
    pair.speaker = "each"
    for _ in range(4):
        pair.both(candidate, after_ms=2 * 3_600_000)
    assert [one.incident_id for one in (*pair.one.open_incidents, *pair.two.open_incidents)] == [first.incident_id] * 2
    assert len(pair.log.compacted) == 2
    assert [event.incident_id for event in pair.log.compacted.values() if event.is_open] == [first.incident_id]


def test_an_instance_that_does_not_speak_calls_a_hang_as_the_speaker_does(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    first = pair.log.records[0]
    again = replace(first, incident_id=repeat_incident_id(first.incident_id, 1))
    pair.speaker = "nobody"
    pair.log.records.append(again)  # a double, which it ends for itself
    pair.both(after_ms=61_000)
    end = resolved(first, pair.world.now_ms, no_longer_open(pair.world.now_ms, "not so"))
    pair.log.records += [end, an_update(again, pair.world.now_ms)]
    for name in ("two", "one"):
        pair.both(candidate, after_ms=61_000)
        pair.speaker = name
    pair.both(candidate)
    assert [one.incident_id for one in (*pair.one.open_incidents, *pair.two.open_incidents)] == [again.incident_id] * 2
    assert {event.incident_id for event in pair.log.records} == {first.incident_id, again.incident_id}
    assert all(pair_of.ledger.book.is_found(again) for pair_of in (pair.one, pair.two))


def test_a_forger_renames_a_hang_no_more_than_once_and_gives_it_nothing_but_the_id(pair: Pair) -> None:
    candidate, first = opened_again(pair)
    second = next(event for event in pair.log.records if event.incident_id != first.incident_id)
    opened = len(pair.log.records)
    for turn in range(6):
        last = pair.log.compacted[(first, second)[turn % 2].incident_id]
        harm = replace(last, expected_outcome="commit", open_since_ms=0, suggested_command="evil", resolution=None)
        pair.log.records.append(an_update(harm, pair.world.now_ms))
        pair.step(pair.two, candidate, after_ms=2 * 3_600_000)
        pair.step(pair.two, candidate, after_ms=2 * 3_600_000)
    (known,) = pair.two.open_incidents
    assert known.incident_id == first.incident_id
    assert (known.expected_outcome, known.open_since_ms) == (second.expected_outcome, second.open_since_ms)
    own = [event for event in pair.log.records[opened:] if event.suggested_command != "evil"]
    assert [event.status for event in own if event.incident_id == first.incident_id] == ["updated"] * 3
    assert [event.status for event in own if event.incident_id == second.incident_id] == ["resolved"] * 4


def test_what_an_instance_has_refuted_it_reads_afresh_if_the_speaker_tells_it_since(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    (opened,) = pair.log.records
    pair.world.admin.begin("checkout-1", pair.world.partition)
    pair.step(pair.two, after_ms=61_000)
    assert pair.two.open_incidents == []
    pair.world.admin.lose_markers("checkout-1", commit=False)
    pair.log.records.append(an_update(opened, pair.world.now_ms))
    pair.step(pair.two, candidate)
    pair.speaker = "two"
    pair.step(pair.two)
    assert [event.status for event in pair.log.records] == ["opened", "updated"]
    assert [one.incident_id for one in pair.two.open_incidents] == [opened.incident_id]


def test_an_instance_that_falls_silent_before_its_answer_tells_the_outcome_of_the_other_one(pair: Pair) -> None:
    named = pair.world.hang()
    pair.speaker = "each"
    pair.both()
    pair.step(pair.one, named)
    pair.world.admin.init("checkout-1")
    pair.step(pair.two, pair.world.candidate(named.producer_id))
    end = pair.world.abort(named)
    pair.step(pair.two, end)
    pair.step(pair.one, end)
    pair.both()
    pair.both()
    assert pair.log.records[-1].outcome_by == "one", "the answer of the other one waits"
    for name in ("one", "two"):
        pair.speaker = name
        pair.both(after_ms=2 * 3_600_000)
        pair.both()
    last = pair.log.records[-1]
    assert (last.status, last.expected_outcome, last.outcome_by) == ("resolved", "abort", "one")


def test_a_stray_write_that_was_found_in_silence_is_told_by_the_next_speaker(pair: Pair) -> None:
    candidate = pair.world.hang()
    joined = Joined(candidate.span.start_offset, 0, 9, 1, None)
    place = (candidate.producer_id, candidate.partition, candidate.span.topic_id)
    pair.step(pair.two, StrayWrite(*place, joined, candidate.view, START_MS, START_MS))
    pair.speaker = "two"
    pair.step(pair.two)
    assert [(event.verdict, event.status) for event in pair.log.records] == [("stray_write", "opened")]


def test_a_forger_whose_records_wait_for_answers_hides_nothing_behind_an_earlier_id(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    (first,) = pair.log.records
    pair.log.records.append(resolved(first, pair.world.now_ms, no_longer_open(pair.world.now_ms, "not so")))
    pair.speaker = "two"
    pair.step(pair.two)

    def forge() -> None:
        last = pair.log.compacted[first.incident_id]
        harm = replace(last, expected_outcome="commit", suggested_command="evil", resolution=None)
        pair.log.records.append(an_update(harm, pair.world.now_ms))
        pair.step(pair.two)

    for _ in range(4):
        forge()
    pair.step(pair.two, candidate)
    forge()
    last = pair.log.compacted[first.incident_id]
    assert (last.status, last.suggested_command) == ("updated", first.suggested_command)
    assert [event.incident_id for event in pair.log.compacted.values() if event.is_open] == [first.incident_id]
