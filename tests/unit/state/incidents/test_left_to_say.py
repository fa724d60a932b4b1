"""What is left to say: it is said when this process speaks, in time, once, and with nothing forged in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.facts import START_MS
from support.incidents import an_update, id_of
from support.ledger_world import HOUR_MS
from support.pair_of_ledgers import Pair
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.incidents.untold import FIRST_PAUSE_MS
from txnwatch.state.model.facts import Joined
from txnwatch.state.model.findings import StrayWrite
from txnwatch.state.model.incident import IncidentEvent, IncidentStatus, Overwritten, resolved
from txnwatch.state.model.values import AT_ONCE, TimestampMs

SOON_MS = 1_000
LAST_USABLE = 2**31 - 2


@pytest.fixture
def pair() -> Pair:
    return Pair()


def a_stray(pair: Pair) -> StrayWrite:
    candidate = pair.world.hang()
    span, joined = candidate.span, Joined(candidate.span.start_offset, 0, 9, 1, None)
    places = (candidate.producer_id, pair.world.partition, span.topic_id)
    return StrayWrite(*places, joined, candidate.view, START_MS, START_MS)


def an_end(event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
    return resolved(event, now_ms, no_longer_open(now_ms, "forged"))


def what_follows(pair: Pair, count: int) -> list[str]:
    """The status of each record since the first ones."""
    return [event.status for event in pair.log.records[count:]]


def forge_an_end(pair: Pair, event: IncidentEvent) -> None:
    pair.log.records.append(an_end(event, pair.world.now_ms))


def forge_content(pair: Pair, event: IncidentEvent) -> None:
    pair.log.records.append(replace(an_update(event, pair.world.now_ms), suggested_command="rm -rf /"))


def bury(pair: Pair, event: IncidentEvent) -> None:
    pair.log.overwrite(event.incident_id)


@pytest.mark.parametrize(("forge", "answer"), [(forge_an_end, "updated"), (forge_content, "updated"), (bury, "opened")])
def test_a_record_about_a_stray_write_that_this_process_has_told_is_answered(
    pair: Pair, forge: Callable[[Pair, IncidentEvent], None], answer: str
) -> None:
    """Only the log shows a stray write: no fresh read confirms that it is this process's own."""
    pair.step(pair.one, a_stray(pair))
    (opened,) = pair.log.records
    forge(pair, opened)
    before = len(pair.log.records)
    pair.step(pair.one)
    assert what_follows(pair, before) == [answer]
    last = pair.log.records[-1]
    assert (last.verdict, last.is_open, last.suggested_command) == ("stray_write", True, opened.suggested_command)
    assert [event.verdict for event in pair.one.open_incidents] == ["stray_write"]


def test_what_waits_for_its_pause_does_not_call_for_a_barrier(pair: Pair) -> None:
    hang = pair.world.hang()
    pair.step(pair.one, hang)
    for _ in range(3):
        pair.log.records.append(an_update(pair.log.records[-1], pair.world.now_ms))
        pair.step(pair.one)
    assert pair.one.ledger.book.untold
    assert AT_ONCE < pair.one.ledger.book.untold.due_ms(lambda _: True) <= pair.world.now_ms + 2 * FIRST_PAUSE_MS


def test_the_pause_of_the_answers_does_not_hold_back_what_this_process_finds(pair: Pair) -> None:
    """A forger has written for a while; the end is found in a round without the lease."""
    hang = pair.world.hang()
    pair.step(pair.one, hang)
    for _ in range(8):
        pair.log.records.append(an_update(pair.log.records[-1], pair.world.now_ms))
        pair.step(pair.one, after_ms=HOUR_MS // 60)
    pair.speaker = "nobody"
    pair.step(pair.one, pair.world.abort(hang))
    pair.speaker, pair.tenure = "one", 1
    before = len(pair.log.records)
    pair.step(pair.one, after_ms=SOON_MS)
    assert what_follows(pair, before) == ["resolved"]


def test_a_known_outcome_of_the_former_speaker_goes_on_under_another_id(pair: Pair) -> None:
    """The second instance begins when the coordinator no longer shows the outcome, and a record uses up the id."""
    pair.both()
    named = pair.world.hang()
    pair.step(pair.one, named)
    (opened,) = pair.log.records
    assert (opened.expected_outcome, opened.outcome_by) == ("abort", "one")
    pair.world.admin.init("checkout-1")
    pair.speaker = "two"
    nameless = pair.world.candidate(named.producer_id)
    pair.step(pair.two, nameless)
    pair.log.records.append(replace(opened, sequence=LAST_USABLE, status=IncidentStatus.UPDATED))
    before = len(pair.log.records)
    for _ in range(3):
        pair.step(pair.two, nameless)
    said = [(event.status, event.expected_outcome, event.outcome_by) for event in pair.log.records[before:]]
    assert [status for status, *_ in said][:2] == ["resolved", "opened"]
    assert {what[1:] for what in said} == {("abort", "one")}


def test_what_was_withdrawn_does_not_stand_behind_a_later_record(pair: Pair) -> None:
    """Events of this process wait for the topic, and a record of another writer takes their place."""
    hang = pair.world.hang()
    pair.step(pair.one, hang)
    (opened,) = pair.log.records
    pair.log.is_away = True
    pair.step(pair.one, pair.world.abort(hang))
    pair.log.is_away = False
    pair.log.records.append(replace(opened, sequence=4, status=IncidentStatus.UPDATED))
    pair.step(pair.one, after_ms=HOUR_MS)
    before = len(pair.log.records)
    pair.log.records.append(replace(opened, suggested_command="rm -rf /"))
    pair.step(pair.one, after_ms=HOUR_MS)
    assert what_follows(pair, before + 1) == ["resolved"]


def test_a_topic_that_was_made_anew_gets_each_open_incident_again(pair: Pair) -> None:
    over, hang = pair.world.hang("over"), pair.world.hang()
    pair.step(pair.one, over, hang)
    pair.step(pair.one, pair.world.abort(over))
    pair.log.invalid.append((len(pair.log.records), Overwritten(None)))
    before = len(pair.log.records)
    pair.step(pair.one)
    (again,) = pair.log.records[before:]
    assert (again.producer_id, again.is_open) == (hang.producer_id, True)


@pytest.mark.parametrize("is_only_teller", [True, False])
def test_two_that_tell_whole_transactions_do_not_tell_an_end_in_turn(pair: Pair, *, is_only_teller: bool) -> None:
    """Each has the lease of its own topics, and the coordinator of the lease for whole transactions is away."""
    pair.speaker = "each of its topics"
    pair.is_only_teller = is_only_teller
    pair.both()
    late = pair.world.late()
    pair.step(pair.one, late)
    assert [event.status for event in pair.log.records] == ["opened"]
    owner = pair.world.admin.transactions["slow"]
    owner.state = type(owner.state).COMPLETE_ABORT
    pair.step(pair.one, after_ms=61_000)
    end = pair.log.records[-1]
    assert end.status == "resolved"
    before = len(pair.log.records)
    pair.log.records.append(replace(an_update(end, pair.world.now_ms), status=IncidentStatus.RESOLVED))
    pair.step(pair.one, after_ms=61_000)
    assert what_follows(pair, before + 1) == (["resolved"] if is_only_teller else [])


def test_one_that_another_instance_has_told_first_is_defended_after_the_hand_over(pair: Pair) -> None:
    pair.both()
    stray = a_stray(pair)
    pair.both(stray)
    (opened,) = pair.log.records
    pair.speaker = "two"
    pair.step(pair.two)
    forge_an_end(pair, opened)
    pair.step(pair.two)
    assert what_follows(pair, 2) == ["updated"]


@pytest.mark.parametrize("speaks", [True, False])
def test_a_stray_write_goes_on_under_another_id_and_is_defended_there(pair: Pair, *, speaks: bool) -> None:
    pair.step(pair.one, a_stray(pair))
    (opened,) = pair.log.records
    pair.speaker = "one" if speaks else "nobody"
    pair.step(pair.one)
    pair.log.records.append(replace(an_update(opened, pair.world.now_ms), sequence=LAST_USABLE))
    pair.step(pair.one)
    pair.speaker, pair.tenure = "one", 1
    pair.step(pair.one, after_ms=HOUR_MS)
    pair.step(pair.one, after_ms=HOUR_MS)
    last = pair.log.records[-1]
    assert (last.status, last.incident_id != opened.incident_id) == ("opened", True)
    forge_an_end(pair, last)
    before = len(pair.log.records)
    pair.step(pair.one, after_ms=HOUR_MS)
    assert what_follows(pair, before) == ["updated"]


def test_the_other_lease_says_nothing_about_a_hang(pair: Pair) -> None:
    """The record says that it is about a whole transaction; the incident under its id is about a hang."""
    pair.speaker, pair.is_only_teller = "each of its topics", False
    pair.both()
    named = pair.world.hang()
    pair.world.admin.init("checkout-1")
    pair.step(pair.one, pair.world.candidate(named.producer_id))
    (opened,) = pair.log.records
    assert opened.expected_outcome == "unknown"
    forged = replace(an_update(opened, pair.world.now_ms), expected_outcome="commit", outcome_by="evil")
    pair.log.records.append(replace(forged, topic=None, partition=None, verdict="late"))
    pair.step(pair.one, after_ms=HOUR_MS)
    assert {event.outcome_by for event in pair.log.records if event is not pair.log.records[1]} == {None}


def test_a_new_topic_answers_nobody(pair: Pair) -> None:
    """A forger has written for a while, so that each answer has a long pause; then the topic is made anew."""
    pair.step(pair.one, pair.world.hang())
    for _ in range(8):
        pair.log.records.append(an_update(pair.log.records[-1], pair.world.now_ms))
        pair.step(pair.one, after_ms=HOUR_MS // 60)
    pair.log.invalid.append((len(pair.log.records), Overwritten(None)))
    before = len(pair.log.records)
    pair.step(pair.one)
    assert len(what_follows(pair, before)) == 1


def test_what_was_said_about_invented_ids_is_forgotten(pair: Pair) -> None:
    pair.step(pair.one, pair.world.hang())
    (opened,) = pair.log.records
    for number in range(20):
        invented = replace(opened, incident_id=id_of(f"invented {number}"), sequence=1)
        pair.log.records.append(an_end(invented, pair.world.now_ms))
        pair.log.records.append(replace(invented, sequence=LAST_USABLE))
    pair.step(pair.one)
    assert not pair.one.ledger.store.ended_since_ms


def test_a_stray_write_that_the_speaker_has_made_a_hang_is_a_hang_for_all(pair: Pair) -> None:
    """The second instance takes over before a fresh read of its own has confirmed the hang."""
    pair.both()
    named = pair.world.hang()
    span, joined = named.span, Joined(named.span.start_offset, 0, 9, 1, None)
    places = (named.producer_id, pair.world.partition, span.topic_id)
    pair.both(StrayWrite(*places, joined, named.view, START_MS, START_MS))
    pair.step(pair.one, named)
    hang = pair.log.records[-1]
    assert (hang.verdict, hang.expected_outcome, hang.outcome_by) == ("hanging", "abort", "one")
    pair.step(pair.two)
    (known,) = pair.two.open_incidents
    assert (known.verdict, known.expected_outcome) == ("hanging", "abort")
    pair.speaker = "two"
    pair.step(pair.two, after_ms=HOUR_MS)
    pair.step(pair.two, pair.world.abort(named))
    end = pair.log.records[-1]
    assert (end.status, end.verdict, end.expected_outcome, end.outcome_by) == ("resolved", "hanging", "abort", "one")
