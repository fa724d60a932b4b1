"""Two watchers of one cluster, of which one knows the outcome of a hang and the other does not: changes and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fake_groups import FakeGroups
from support.incidents import an_update
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from support.watchers import Watchers
from txnwatch.state.abort.fencing import fencing
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS
from txnwatch.state.incidents.speakers import PATIENCE_AT_AN_END_MS, PATIENCE_MS
from txnwatch.state.model.incident import SPENT_SEQUENCE, updated


@pytest.fixture
def watchers() -> Watchers:
    return Watchers.of_one_hang()


def test_both_see_a_change_and_the_one_that_knows_the_outcome_tells_it(watchers: Watchers) -> None:
    watchers.many_more_are_hidden()
    for _ in range(5):
        watchers.batch(watchers.later, watchers.knows, after_ms=LOOK_AGAIN_MS)
    assert watchers.outcomes() == ["abort", "abort"]
    assert (watchers.last.hidden_records or 0) > 400


def test_an_end_is_told_by_the_one_that_knows_the_outcome(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.later, emitted=(ended,))
    assert watchers.outcomes() == ["abort"], "the other one sees the same end"
    assert watchers.later.open_incidents == []
    watchers.batch(watchers.knows, emitted=(ended,))
    for _ in range(3):
        watchers.batch(watchers.later, watchers.knows, after_ms=PATIENCE_AT_AN_END_MS)
    assert watchers.told == [("opened", "abort"), ("resolved", "abort")]
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.how == "aborted"
    assert watchers.later.open_incidents == watchers.knows.open_incidents == []


def test_if_the_one_that_knows_is_gone_an_end_is_told_ten_seconds_later(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.later, emitted=(ended,))
    watchers.batch(watchers.later, after_ms=PATIENCE_AT_AN_END_MS - 1)
    assert watchers.told == [("opened", "abort")]
    watchers.batch(watchers.later, after_ms=1)
    assert watchers.told == [("opened", "abort"), ("resolved", "unknown")]
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.marker_offset is not None
    watchers.batch(watchers.later, watchers.knows, emitted=(ended,))
    for _ in range(3):
        watchers.batch(watchers.later, watchers.knows)
    assert watchers.told[2:] == [("resolved", "abort")], "it was only slow, and tells the outcome once"


def test_without_another_instance_an_end_is_told_at_once(watchers: Watchers) -> None:
    watchers.later.is_another_there = lambda _: False
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    assert watchers.told == [("opened", "abort"), ("resolved", "unknown")]


def test_an_instance_that_stops_while_an_end_waits_is_not_waited_for(watchers: Watchers) -> None:
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    watchers.later.is_another_there = lambda _: False
    watchers.batch(watchers.later)
    assert watchers.told == [("opened", "abort"), ("resolved", "unknown")]


@pytest.mark.parametrize("sequence", [2, 3])
def test_records_before_an_end_that_waits_do_not_make_it_wait_longer(watchers: Watchers, sequence: int) -> None:
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    for number in range(12):
        after = an_update(watchers.log.records[0], watchers.world.now_ms)
        watchers.log.records.append(replace(after, sequence=sequence + number))
        watchers.batch(watchers.later, after_ms=1_000)
    assert "resolved" in [event.status for event in watchers.log.records]
    for _ in range(10):
        watchers.batch(watchers.later, after_ms=1_000)
    assert watchers.last.status == "resolved"
    assert watchers.later.open_incidents == []


def test_a_verdict_that_another_instance_has_published_with_the_outcome_is_not_published_again() -> None:
    world, log = LedgerWorld(), SharedLog()
    later = world.another(log, groups=FakeGroups())
    candidate = world.hang()
    knows = world.another(log, groups=FakeGroups())
    knows.on_batch([candidate])
    world.admin.init("checkout-1")
    later.on_batch([world.candidate(candidate.producer_id)])
    for _ in range(3):
        world.now_ms += LOOK_AGAIN_MS
        later.on_batch([])
    assert [(event.verdict, event.expected_outcome) for event in log.records] == [("hanging", "abort")]
    (known,) = later.open_incidents
    assert later.ledger.book.is_found(known)


def test_if_the_one_that_knows_is_gone_a_change_is_told_a_minute_later(watchers: Watchers) -> None:
    watchers.many_more_are_hidden()
    watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert len(watchers.log.records) == 1
    watchers.batch(watchers.later, after_ms=max(LOOK_AGAIN_MS, PATIENCE_MS))
    assert [(event.status, event.expected_outcome) for event in watchers.log.records] == [
        ("opened", "abort"),
        ("updated", "unknown"),
    ]
    watchers.batch(watchers.knows)
    assert watchers.last.expected_outcome == "abort", "it was only slow, and corrects the record"


def test_a_record_with_the_facts_that_are_found_here_is_enough_however_long_it_is_there(watchers: Watchers) -> None:
    watchers.many_more_are_hidden()
    watchers.batch(watchers.knows, after_ms=LOOK_AGAIN_MS)
    for _ in range(20):
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert watchers.outcomes() == ["abort", "abort"]


@pytest.mark.parametrize("hidden", [1, 10**15])
def test_a_record_with_other_facts_buys_a_minute_and_no_more(watchers: Watchers, hidden: int) -> None:
    forged = replace(
        watchers.last, sequence=2, status="updated", hidden_records=hidden, expected_outcome="commit", time_ms=0
    )
    watchers.log.records.append(forged)
    watchers.batch(watchers.later)
    watchers.many_more_are_hidden()
    for _ in range(3):
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert watchers.last != forged
    assert 400 < (watchers.last.hidden_records or 0) < 1_000


def test_a_record_with_another_severity_buys_no_time(watchers: Watchers) -> None:
    forged = replace(watchers.last, sequence=2, status="updated", severity="info", expected_outcome="none")
    watchers.log.records.append(forged)
    watchers.batch(watchers.later)
    assert (watchers.last.sequence, watchers.last.severity) == (3, "critical")


def test_the_fence_of_an_operator_that_the_other_repeats_changes_nothing(watchers: Watchers) -> None:
    by_operator = replace(watchers.last, action=fencing("somebody@host", watchers.world.now_ms, None))
    watchers.log.records.append(updated(by_operator, watchers.world.now_ms))
    watchers.batch(watchers.knows)
    later = watchers.world.another(watchers.log, groups=FakeGroups())
    later.on_batch([watchers.nameless])
    watchers.many_more_are_hidden()
    for _ in range(3):
        watchers.batch(later, watchers.knows, after_ms=LOOK_AGAIN_MS)
    ended = watchers.world.abort(watchers.named)
    watchers.batch(later, emitted=(ended,))
    watchers.batch(watchers.knows, emitted=(ended,))
    assert set(watchers.outcomes()) == {"abort"}
    assert watchers.last.status == "resolved"


def test_a_change_that_was_found_once_and_never_again_does_not_shorten_the_next_wait(watchers: Watchers) -> None:
    start = watchers.named.span.start_offset
    groups = watchers.later.groups
    assert isinstance(groups, FakeGroups)
    groups.commit("g", watchers.world.partition, start)
    for _ in range(2):
        watchers.batch(watchers.knows, watchers.later, after_ms=LOOK_AGAIN_MS)
    watchers.world.admin.plain(watchers.world.partition, 3)
    groups.leave("g")
    for _ in range(4):  # only this one sees a stopped group
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS // 4)
    groups.commit("g", watchers.world.partition, start + 1_000)
    for _ in range(50):
        watchers.batch(watchers.later, watchers.knows, after_ms=LOOK_AGAIN_MS)
    watchers.many_more_are_hidden()
    watchers.batch(watchers.later, watchers.knows, after_ms=LOOK_AGAIN_MS)
    assert set(watchers.outcomes()) == {"abort"}


def test_forged_records_one_after_the_other_do_not_make_a_change_wait_longer(watchers: Watchers) -> None:
    watchers.many_more_are_hidden()
    for _ in range(4):
        forged = replace(an_update(watchers.last, watchers.world.now_ms), expected_outcome="commit")
        watchers.log.records.append(forged)
        watchers.batch(watchers.later, after_ms=PATIENCE_MS // 2)
    assert [event for event in watchers.log.records if (event.hidden_records or 0) > 400]


def test_an_end_that_waits_is_published_if_a_record_uses_up_its_id(watchers: Watchers) -> None:
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    watchers.log.records.append(
        replace(an_update(watchers.log.records[0], watchers.world.now_ms), sequence=SPENT_SEQUENCE)
    )
    for _ in range(2):
        watchers.batch(watchers.later)
    assert [event.status for event in watchers.log.records].count("resolved") == 1


def test_an_end_that_waits_follows_a_record_with_a_higher_sequence(watchers: Watchers) -> None:
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    watchers.log.records.append(replace(an_update(watchers.log.records[0], watchers.world.now_ms), sequence=7))
    for _ in range(3):
        watchers.batch(watchers.later, after_ms=PATIENCE_AT_AN_END_MS)
    assert (watchers.last.sequence, watchers.last.status) == (8, "resolved")
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.how == "aborted"


def test_an_end_that_an_older_record_hides_is_published_once(watchers: Watchers) -> None:
    first = watchers.last
    watchers.log.records.append(an_update(first, watchers.world.now_ms))
    watchers.batch(watchers.later, watchers.knows)
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    watchers.log.records.append(first)
    for _ in range(5):
        watchers.batch(watchers.later, after_ms=PATIENCE_AT_AN_END_MS)
    assert [event.status for event in watchers.log.records].count("resolved") == 1


def test_no_barrier_is_left_out_while_an_end_waits(watchers: Watchers) -> None:
    watchers.batch(watchers.later, emitted=(watchers.world.abort(watchers.named),))
    assert not watchers.later.can_wait
    watchers.batch(watchers.later, after_ms=PATIENCE_AT_AN_END_MS)
    assert watchers.later.can_wait


def test_the_next_hang_of_the_producer_is_opened_while_the_end_of_the_last_one_waits() -> None:
    world, log = LedgerWorld(), SharedLog()
    first = world.hang()
    knows, later = (world.another(log, groups=FakeGroups()) for _ in range(2))
    knows.on_batch([first])
    later.on_batch([])
    ended = world.abort(first)
    world.admin.begin("checkout-1", world.partition)
    world.admin.lose_markers("checkout-1", commit=False)
    new = world.candidate(first.producer_id, "checkout-1")
    world.now_ms += 500
    later.on_batch([new])
    knows.on_batch([])
    for emitted in ((ended, new), *[()] * 60):
        world.now_ms += 500
        knows.on_batch(emitted)
        later.on_batch([])
    last = {event.incident_id: event for event in log.records}
    assert [event.is_open for event in last.values()] == [False, True], "and nobody ends the second"
    assert [one.incident_id for one in knows.open_incidents] == [one.incident_id for one in later.open_incidents]
    assert knows.ledger.book.is_found(knows.open_incidents[0])


def test_what_the_other_has_put_right_is_not_published_again() -> None:
    world, log = LedgerWorld(), SharedLog()
    named = world.hang()
    knows = world.another(log, groups=FakeGroups())
    knows.on_batch([named])
    world.admin.init("checkout-1")
    later = world.another(log, groups=FakeGroups())
    log.overwrite(log.records[0].incident_id)
    for ledger in (later, knows, knows, later):
        world.now_ms += 500
        ledger.on_batch([])
    later.on_batch([world.candidate(named.producer_id)])
    assert [str(event.expected_outcome) for event in log.records] == ["abort", "abort"]
