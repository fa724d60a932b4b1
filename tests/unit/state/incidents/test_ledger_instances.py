"""Several instances on one events topic, of which one speaks: a consumer sees one life of each incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_lease import FakeLease
from support.incidents import an_update
from support.pair_of_ledgers import Pair
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.incidents.claims import ROOM
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.speaking import WHOLE
from txnwatch.state.incidents.untold import FIRST_PAUSE_MS
from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent, Overwritten, resolved
from txnwatch.state.model.values import AT_ONCE


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_only_the_speaker_publishes_and_both_know_what_is_open(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.two, candidate)
    assert pair.log.records == []
    assert [event.status for event in pair.two.open_incidents] == ["opened"]
    pair.both(candidate)
    pair.both(pair.world.abort(candidate))
    pair.both()
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    assert len(pair.log.records) == 2
    assert pair.one.open_incidents == pair.two.open_incidents == []


def test_who_does_not_speak_writes_to_no_mirror(pair: Pair) -> None:
    pair.step(pair.two, pair.world.hang())
    assert pair.world.redis.published == []


def test_what_the_former_speaker_has_not_told_is_told_by_the_next_one_in_its_first_round(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.two, candidate)
    pair.speaker = "two"
    pair.step(pair.two)
    assert pair.published() == [(1, "opened")]
    assert [event.event_id for event in pair.world.redis.published] == [pair.log.records[0].event_id]


def test_a_hang_that_was_made_and_over_while_nobody_spoke_is_told_whole(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.two, candidate)
    pair.step(pair.two, pair.world.abort(candidate))
    pair.speaker = "two"
    pair.step(pair.two)
    pair.step(pair.two)
    assert pair.published() == [(1, "opened"), (2, "resolved")]


def test_what_the_former_speaker_has_told_is_not_told_again(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.speaker = "two"
    for _ in range(3):
        pair.both()
    assert pair.published() == [(1, "opened")]
    pair.step(pair.two, pair.world.abort(candidate))
    pair.speaker = "one"
    for _ in range(3):
        pair.both()
    assert pair.published() == [(1, "opened"), (2, "resolved")]


def test_an_end_that_the_next_speaker_has_seen_and_the_former_one_has_not_told_is_told_once(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.step(pair.two, pair.world.abort(candidate))
    assert pair.published() == [(1, "opened")]
    pair.speaker = "two"
    pair.both()
    pair.both()
    assert pair.published() == [(1, "opened"), (2, "resolved")]


def test_a_known_outcome_of_the_former_speaker_stays_with_its_author(pair: Pair) -> None:
    named = pair.world.hang()
    pair.step(pair.one, named)
    pair.world.admin.init("checkout-1")
    nameless = pair.world.candidate(named.producer_id)
    pair.step(pair.two, nameless)
    pair.speaker = "two"
    pair.world.admin.plain(pair.world.partition, 500)
    for _ in range(3):
        pair.step(pair.two, after_ms=61_000)
    pair.step(pair.two, pair.world.abort(named))
    told = [(event.status, event.expected_outcome, event.outcome_by) for event in pair.log.published]
    assert told == [
        ("opened", "abort", "one"),
        ("updated", "abort", "one"),
        ("resolved", "abort", "one"),
    ]


def test_who_begins_to_speak_shows_the_outcome_of_the_former_speaker_on_its_page_and_in_redis(pair: Pair) -> None:
    named = pair.world.hang()
    pair.step(pair.one, named)
    pair.world.admin.init("checkout-1")
    pair.step(pair.two)  # it knows the incident from the topic, and finds it now
    pair.step(pair.two, pair.world.candidate(named.producer_id))
    pair.speaker = "two"
    pair.step(pair.two)
    (known,) = pair.two.open_incidents
    assert (known.expected_outcome, known.outcome_by) == ("abort", "one")
    assert pair.world.redis.latest[known.incident_id].expected_outcome == "abort"


def test_the_abort_rests_on_no_outcome_of_another_instance(pair: Pair) -> None:
    named = pair.world.hang()
    pair.step(pair.one, named)
    pair.world.admin.init("checkout-1")
    pair.step(pair.two, pair.world.candidate(named.producer_id))
    pair.speaker = "two"
    abort = RunningAbort("on", AbortPolicy(after_ms=0), 0, pair.two, FakeLease(), "two", lambda: pair.world.now_ms)
    for _ in range(3):
        pair.step(pair.two, after_ms=61_000)
        abort.on_batch()
    assert pair.world.admin.markers == []
    last = pair.log.records[-1]
    assert (last.expected_outcome, last.outcome_by) == ("abort", "one")
    assert last.action is not None
    assert last.action.refusal == "outcome_unknown"


def test_events_that_wait_for_the_topic_are_dropped_once_another_instance_speaks(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one)
    pair.log.is_away = True
    pair.step(pair.one, candidate)
    assert pair.one.topic.waiting == 1
    pair.log.is_away = False
    pair.speaker = "two"
    pair.both(candidate)
    for _ in range(5):
        pair.both(after_ms=60_000)
    pair.both(pair.world.abort(candidate))
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    assert [event.sequence for event in pair.log.records] == [1, 2]
    assert pair.one.topic.waiting == 0


def test_an_instance_that_cannot_read_the_topic_to_its_end_speaks_after_a_minute_and_says_so(pair: Pair) -> None:
    pair.one.has_read = lambda _: False
    pair.step(pair.one, pair.world.hang())
    assert pair.one.due_ms == AT_ONCE
    pair.step(pair.one, after_ms=59_000)
    assert pair.published() == []
    pair.step(pair.one, after_ms=2_000)
    assert pair.published() == [(1, "opened")]
    assert [*pair.world.reports] == [
        "the events topic could not be read to its end for a minute: events may be told twice"
    ]


def test_a_late_event_of_the_former_speaker_is_answered_and_shown_to_no_consumer(pair: Pair) -> None:
    """It was paused between its last look at the lease and the topic."""
    candidate = pair.world.hang()
    pair.both(candidate)
    pair.speaker = "two"
    pair.both(pair.world.abort(candidate))
    pair.both()
    late = an_update(pair.log.records[0], pair.world.now_ms, severity="warning")
    pair.log.records.append(late)
    pair.both()
    assert pair.log.compacted[late.incident_id].status == "resolved"
    assert pair.published() == [(1, "opened"), (2, "resolved")]


def test_without_a_speaker_the_topic_lacks_what_was_found(pair: Pair) -> None:
    pair.speaker = "nobody"
    pair.both(pair.world.hang())
    assert [pair.one.lacking(has_speaker=has_speaker) for has_speaker in (False, True)] == [1, 0]
    pair.speaker = "two"
    for _ in range(3):
        pair.both()
    assert [ledger.lacking(has_speaker=False) for ledger in (pair.one, pair.two)] == [0, 0]


@pytest.mark.parametrize("sequence", [1, 2, 3, 7])
def test_a_forged_record_lives_one_round(pair: Pair, sequence: int) -> None:
    pair.both(pair.world.hang())
    pair.both()
    (truth,) = pair.log.records
    forged = replace(resolved(truth, 5, no_longer_open(5, "a forger")), sequence=sequence)
    pair.log.records.append(forged)
    pair.both()
    last = pair.log.compacted[truth.incident_id]
    assert last.is_open
    assert last.sequence > sequence or last == truth
    assert [event.is_open for event in (*pair.one.open_incidents, *pair.two.open_incidents)] == [True, True]
    before = len(pair.log.records)
    for _ in range(5):
        pair.both(after_ms=FIRST_PAUSE_MS)
    assert len(pair.log.records) == before, "and that is the end of it"


def test_two_that_speak_answer_each_other_after_growing_pauses(pair: Pair) -> None:
    """The group's coordinator was away for an hour, and each was cut off from the other's heartbeats."""
    pair.both(pair.world.hang())
    for ledger in (pair.one, pair.two):
        ledger.role = lambda: WHOLE
    pair.log.records.append(an_update(pair.log.records[0], 5, severity="info"))
    for _ in range(3_600):
        pair.both(after_ms=1_000)
    assert len(pair.log.records) < 40


def test_after_an_older_event_the_newer_one_is_published_again(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    opened = pair.log.records[0]
    pair.step(pair.one, pair.world.abort(candidate))
    pair.log.records.append(opened)
    pair.both()
    pair.both()
    assert pair.log.compacted[opened.incident_id].status == "resolved"
    assert pair.published() == [(1, "opened"), (2, "resolved")]
    before = len(pair.log.records)
    for _ in range(5):
        pair.both()
    assert len(pair.log.records) == before, "and that is the end of it"


def test_an_instance_that_joins_later_knows_everything(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.both(candidate)
    late = pair.an_instance("three")
    pair.step(late, candidate)
    assert pair.published() == [(1, "opened")]


def test_after_reading_the_topic_from_its_beginning_the_newest_event_counts(pair: Pair) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    pair.step(pair.one, pair.world.abort(candidate))
    late = pair.an_instance("three")
    late.remember([*pair.log.records, pair.log.records[0]])
    assert late.open_incidents == []


def test_of_two_events_of_one_sequence_the_first_on_the_topic_is_remembered(pair: Pair) -> None:
    pair.both(pair.world.hang())
    (first,) = pair.log.records
    memory = IncidentStore("cluster")
    memory.remember([first, replace(first, severity="info")], pair.world.now_ms)
    assert memory.open_incidents == [first]


@pytest.mark.parametrize("after", [(), (3,), (3, 4), (2**31 - 2,)], ids=["alone", "one more", "two more", "id spent"])
def test_an_end_behind_others_of_its_sequence_follows_all_that_is_new(pair: Pair, after: tuple[int, ...]) -> None:
    candidate = pair.world.hang()
    pair.step(pair.one, candidate)
    pair.step(pair.one)
    opened, end, read = pair.log.records[0], pair.world.abort(candidate), pair.one.new_records
    assert read is not None

    def late() -> list[IncidentEvent | Overwritten]:
        """What another writer writes comes after this read, and before the end of this process."""
        found, pair.one.new_records = [*read()], read
        update = an_update(opened, pair.world.now_ms)
        pair.log.records.extend(replace(update, sequence=number) for number in (2, *after))
        return found

    pair.one.new_records = late
    for emitted in ((end,), (), ()):
        pair.step(pair.one, *emitted)
    last = pair.log.compacted[opened.incident_id]
    assert last.resolution is not None
    assert (last.status, last.resolution.how) == ("resolved", "aborted")
    assert last.sequence > max((2, *(number for number in after if number < SPENT_SEQUENCE - ROOM)))
