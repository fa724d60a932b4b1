"""An end that another writer has published: it is published again, if it is not the one that is found here."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import msgspec
import pytest

from support.fake_groups import FakeGroups
from support.incidents import an_event, an_update
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog
from support.watchers import Watchers
from txnwatch.state.evidence.ending import LOOK_AGAIN_MS
from txnwatch.state.incidents.abort_protocol import action
from txnwatch.state.incidents.claims import contradicts_end
from txnwatch.state.incidents.ends import Ends
from txnwatch.state.incidents.life import Happening
from txnwatch.state.incidents.speakers import PATIENCE_AT_AN_END_MS
from txnwatch.state.model.facts import TransactionEnd
from txnwatch.state.model.findings import TransactionMoved
from txnwatch.state.model.incident import Decision, EndedBy, EndKind, IncidentEvent, OutcomeDoubt, Resolution, resolved
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.model.verdicts import Verdict


@pytest.fixture
def watchers() -> Watchers:
    return Watchers.of_one_hang()


def _an_end(event: IncidentEvent, **changed: object) -> IncidentEvent:
    """An end without the outcome, as an instance that does not know it publishes it."""
    over = Resolution(how=EndKind.ABORTED, by=EndedBy.UNKNOWN, marker_offset=90, at_ms=1)
    doubt = OutcomeDoubt.BEGAN_BEFORE_ELECTION
    return replace(resolved(event, 1, over), **{"expected_outcome": "unknown", "outcome_doubt": doubt, **changed})


def _quiet(watchers: Watchers) -> None:
    for _ in range(4):
        watchers.batch(watchers.knows, after_ms=PATIENCE_AT_AN_END_MS)


def test_an_end_that_came_before_ours_with_the_same_sequence_is_followed_by_ours(watchers: Watchers) -> None:
    opened = watchers.last
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    watchers.log.records.insert(1, _an_end(opened))
    watchers.batch(watchers.knows)
    assert watchers.told == [("opened", "abort"), ("resolved", "unknown"), ("resolved", "abort")]
    _quiet(watchers)
    assert [(event.sequence, event.expected_outcome) for event in watchers.log.records[1:]] == [
        (2, "unknown"),
        (2, "abort"),
        (3, "abort"),
    ]
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.marker_offset == 7, "the end that was found here, not that of the other record"


def test_an_end_that_follows_ours_with_the_same_sequence_is_not_the_last_record(watchers: Watchers) -> None:
    opened = watchers.last
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    ours = watchers.last
    watchers.log.records.append(_an_end(opened, resolution=ours.resolution))
    _quiet(watchers)
    assert watchers.log.records[3:] == [ours], "compaction keeps the last record"


def test_an_end_that_is_not_found_here_yet_is_published_again_once_it_is(watchers: Watchers) -> None:
    watchers.log.records.append(_an_end(watchers.last))
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.knows)
    assert len(watchers.log.records) == 2, "an end needs evidence"
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert watchers.told[1:] == [("resolved", "unknown"), ("resolved", "abort")]
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.marker_offset == 7


def test_a_forged_end_opens_the_incident_again_and_nothing_more(watchers: Watchers) -> None:
    watchers.log.records.append(_an_end(watchers.last))
    _quiet(watchers)
    assert watchers.told[1:] == [("resolved", "unknown"), ("opened", "abort")]
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    _quiet(watchers)
    assert watchers.told[3:] == [("resolved", "abort")], "the first incident has ended already"


@pytest.mark.parametrize("doubt", ["written_since", "begun_since", "contradiction"])
def test_an_outcome_that_the_other_has_withdrawn_is_not_lost(watchers: Watchers, doubt: str) -> None:
    watchers.log.records.append(_an_end(watchers.last, outcome_doubt=OutcomeDoubt(doubt)))
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    _quiet(watchers)
    assert len(watchers.log.records) == 2


def test_an_outcome_that_a_third_instance_has_told_is_not_told_again(watchers: Watchers) -> None:
    lost, ended = _an_end(watchers.last), watchers.world.abort(watchers.named)
    watchers.log.records += [lost, replace(lost, sequence=3, expected_outcome="abort", outcome_doubt=None)]
    watchers.batch(watchers.knows)
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert len(watchers.log.records) == 3


def test_who_has_not_found_the_outcome_repeats_none(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.knows, emitted=(ended,))
    watchers.batch(watchers.later, emitted=(ended,))
    told = watchers.last
    watchers.log.records.append(_an_end(told, sequence=told.sequence + 1))
    for _ in range(4):
        watchers.batch(watchers.later, after_ms=LOOK_AGAIN_MS)
    assert len(watchers.log.records) == 3, "only the first instance has found it"
    watchers.batch(watchers.knows)
    assert (watchers.last.sequence, watchers.last.expected_outcome) == (told.sequence + 2, "abort")


@pytest.mark.parametrize(
    "forged",
    [
        {"resolution": Resolution(how=EndKind.COMMITTED, by=EndedBy.CLIENT, marker_offset=90, at_ms=1)},
        {"resolution": Resolution(how=EndKind.REFUTED, by=EndedBy.COORDINATOR, marker_offset=None, at_ms=1)},
        {"expected_outcome": "commit"},
    ],
    ids=["how", "refuted", "outcome"],
)
@pytest.mark.parametrize("is_found_first", [False, True])
def test_a_forged_end_is_followed_by_the_true_one(
    watchers: Watchers, forged: dict[str, object], *, is_found_first: bool
) -> None:
    ended = watchers.world.abort(watchers.named)
    if is_found_first:
        watchers.batch(watchers.knows, emitted=(ended,))
    last = watchers.last
    watchers.log.records.append(
        replace(_an_end(last, expected_outcome="abort", outcome_doubt=None), sequence=last.sequence + 1, **forged)
    )
    watchers.batch(watchers.knows)
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert watchers.last.resolution is not None
    assert (watchers.last.resolution.how, watchers.last.resolution.marker_offset) == ("aborted", 7)
    assert watchers.last.expected_outcome == "abort"
    assert watchers.last.sequence == last.sequence + 2, "and it is told once"


def test_two_instances_with_different_ends_do_not_correct_each_other_in_turns(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.batch(watchers.later, emitted=(ended,))
    watchers.batch(watchers.knows, emitted=(ended,))
    ours = watchers.last
    absorbed = Resolution(how=EndKind.ABSORBED, by=EndedBy.NEXT_TRANSACTION, marker_offset=7, at_ms=1)
    watchers.log.records.append(replace(ours, sequence=ours.sequence + 1, resolution=absorbed))
    for _ in range(6):
        watchers.batch(watchers.later, watchers.knows, after_ms=PATIENCE_AT_AN_END_MS)
    assert len(watchers.log.records) == 3


def test_a_forged_end_of_a_transaction_is_followed_by_the_true_one() -> None:
    world, log = LedgerWorld(), SharedLog()
    ledger = world.another(log, groups=FakeGroups())
    late = world.late()
    owner = world.admin.transactions["slow"]
    ledger.on_batch([late])
    opened = log.records[-1]
    owner.state = TransactionState.COMPLETE_COMMIT
    log.records.append(_an_end(opened, expected_outcome=opened.expected_outcome, outcome_doubt=opened.outcome_doubt))
    ledger.on_batch([])
    end = TransactionEnd(TransactionState.PREPARE_COMMIT, EndedBy.CLIENT, 5, 70_000)
    ledger.on_batch([TransactionMoved(late.producer_id, Verdict.LATE, late.view, late.view, end)])
    for _ in range(3):
        world.now_ms += LOOK_AGAIN_MS
        ledger.on_batch([])
    assert [event.status for event in log.records] == ["opened", "resolved", "resolved"]
    assert log.records[-1].resolution is not None
    assert log.records[-1].resolution.how == "committed"


def test_a_forged_decision_behind_our_end_is_no_decision_of_ours(watchers: Watchers) -> None:
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    by_mallory = action(Decision.ABORT, "mallory", 1)
    for what in ({"expected_outcome": "commit"}, {"status": "updated", "resolution": None}):
        last = watchers.last
        watchers.log.records.append(replace(last, sequence=last.sequence + 1, action=by_mallory, **what))
        _quiet(watchers)
        assert (watchers.last.status, watchers.last.action) == ("resolved", None)


def test_a_forged_decision_in_an_end_before_ours_is_no_decision_of_ours(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    watchers.log.records.append(_an_end(watchers.last, action=action(Decision.ABORT, "mallory", 1)))
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert (watchers.last.expected_outcome, watchers.last.action) == ("abort", None)


def test_our_marker_is_ours_also_if_the_other_has_published_the_end(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    assert ended.marker is not None
    watchers.knows.ledger.wrote(watchers.last, ended.marker)
    watchers.log.records.append(_an_end(watchers.last))
    watchers.batch(watchers.knows)
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.by == "txnwatch"


@pytest.mark.parametrize("is_found_first", [False, True])
def test_the_time_of_a_forged_end_does_not_count(watchers: Watchers, *, is_found_first: bool) -> None:
    ended, opened = watchers.world.abort(watchers.named), watchers.last
    if is_found_first:
        watchers.batch(watchers.knows, emitted=(ended,))
        agrees = replace(watchers.last, sequence=3, time_ms=1)
        watchers.log.records.append(agrees)
        _quiet(watchers)
    committed = Resolution(how=EndKind.COMMITTED, by=EndedBy.CLIENT, marker_offset=90, at_ms=1)
    watchers.log.records.append(_an_end(replace(opened, sequence=4), resolution=committed, time_ms=1))
    _quiet(watchers)
    watchers.batch(watchers.knows, emitted=() if is_found_first else (ended,))
    _quiet(watchers)
    assert watchers.last.resolution is not None
    assert watchers.last.resolution.how == "aborted"


def test_an_end_that_is_published_again_has_the_content_that_was_found_here(watchers: Watchers) -> None:
    first = watchers.last
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    ours = watchers.last
    watchers.log.records += [replace(ours, sequence=3, transactional_id="mallory", hidden_records=9), first]
    _quiet(watchers)
    assert watchers.last == replace(ours, sequence=3)


def test_the_marker_of_the_next_hang_ends_no_incident_about_the_last_one(watchers: Watchers) -> None:
    world, first = watchers.world, watchers.last
    watchers.log.records.append(_an_end(first))
    world.abort(watchers.named)
    world.admin.begin("checkout-1", world.partition)
    world.admin.lose_markers("checkout-1", commit=False)
    watchers.batch(watchers.knows)
    following = world.candidate(watchers.named.producer_id, "checkout-1")
    assert following.span.start_offset > watchers.named.span.start_offset
    watchers.batch(watchers.knows, emitted=(world.ended(following),))
    _quiet(watchers)
    assert [event.incident_id for event in watchers.log.records].count(first.incident_id) == 2


def test_two_instances_with_two_ends_do_not_answer_each_other_without_end(watchers: Watchers) -> None:
    """Their logs have shown them two markers: an unclean election lies between them."""
    ended = watchers.world.abort(watchers.named)
    assert ended.marker is not None
    committed = msgspec.structs.replace(ended, marker=msgspec.structs.replace(ended.marker, offset=9, commit=True))
    for name, end in (("later", committed), ("knows", ended)):
        watchers.batch(getattr(watchers, name), emitted=(end,))
    watchers.batch(watchers.later, after_ms=PATIENCE_AT_AN_END_MS)
    for _ in range(7_200):
        watchers.batch(watchers.later, watchers.knows)
    assert len(watchers.log.records) < 30, "in an hour"


@pytest.mark.parametrize("how", [EndKind.ABSORBED, EndKind.NO_LONGER_OPEN, EndKind.COMMITTED])
def test_an_end_with_the_sequence_of_ours_is_answered_once(watchers: Watchers, how: EndKind) -> None:
    opened = watchers.last
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    other = Resolution(how=how, by=EndedBy.UNKNOWN, marker_offset=None, at_ms=1)
    watchers.log.records.insert(1, _an_end(opened, resolution=other, expected_outcome="abort", outcome_doubt=None))
    for _ in range(100):
        watchers.batch(watchers.knows, watchers.later)
    assert len(watchers.log.records) < 7


def test_an_end_of_a_span_whose_begin_was_not_seen_follows_a_forged_one(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    committed = Resolution(how=EndKind.COMMITTED, by=EndedBy.CLIENT, marker_offset=90, at_ms=1)
    watchers.log.records.append(_an_end(watchers.last, resolution=committed))
    watchers.batch(watchers.knows)
    later_start = msgspec.structs.replace(ended.span, start_offset=ended.span.start_offset + 1)
    watchers.batch(watchers.knows, emitted=(msgspec.structs.replace(ended, span=later_start),))
    _quiet(watchers)
    assert watchers.last.resolution is not None
    assert (watchers.last.resolution.how, watchers.last.expected_outcome) == ("aborted", "abort")


def test_an_end_and_an_open_record_before_our_end_do_not_take_the_outcome_away(watchers: Watchers) -> None:
    ended = watchers.world.abort(watchers.named)
    end = _an_end(watchers.last)
    watchers.log.records.append(end)
    watchers.batch(watchers.knows)
    watchers.log.records.append(replace(end, sequence=3, status="updated", resolution=None))
    watchers.batch(watchers.knows)
    watchers.batch(watchers.knows, emitted=(ended,))
    _quiet(watchers)
    assert (watchers.last.status, watchers.last.expected_outcome) == ("resolved", "abort")


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_an_end_that_was_missed_and_is_seen_later_keeps_the_outcome(watchers: Watchers, *, is_seen_first: bool) -> None:
    ended = watchers.world.abort(watchers.named)
    for _ in range(3):  # the log of this instance is late: only a check finds the end
        watchers.batch(watchers.knows, after_ms=LOOK_AGAIN_MS)
    assert watchers.last.resolution is not None
    assert (watchers.last.resolution.how, watchers.last.expected_outcome) == ("no_longer_open", "abort")
    other = replace(_an_end(watchers.last), sequence=watchers.last.sequence + 1)
    if is_seen_first:
        watchers.batch(watchers.knows, emitted=(ended,))
        assert watchers.last.sequence < other.sequence, "nobody waits for it"
    watchers.log.records.append(other)
    watchers.batch(watchers.knows, emitted=() if is_seen_first else (ended,))
    _quiet(watchers)
    assert watchers.last.resolution is not None
    assert (watchers.last.resolution.how, watchers.last.expected_outcome) == ("aborted", "abort")


def test_a_spent_id_does_not_take_the_outcome_away(watchers: Watchers) -> None:
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    watchers.log.records.append(an_update(replace(watchers.log.records[0], sequence=999_499), 1))
    _quiet(watchers)
    assert (watchers.last.status, watchers.last.expected_outcome) == ("resolved", "abort")


def _ends() -> list[IncidentEvent]:
    """The ends that one hang may have for honest instances: its marker aborts it, and its outcome is `abort`."""
    outcomes = (("abort", None), ("unknown", OutcomeDoubt.NO_RECORD), ("unknown", OutcomeDoubt.WRITTEN_SINCE))
    hows = [how for how in EndKind if how is not EndKind.COMMITTED]
    return [
        replace(
            an_event("one", expected_outcome=outcome, outcome_doubt=doubt),
            status="resolved",
            resolution=Resolution(how=how, by=EndedBy.UNKNOWN, marker_offset=None, at_ms=1),
        )
        for how, (outcome, doubt) in product(hows, outcomes)
    ]


def test_of_two_ends_by_one_log_at_most_one_contradicts_the_other() -> None:
    for one, other in product(_ends(), repeat=2):
        assert not (contradicts_end(one, other) and contradicts_end(other, one)), (one, other)
        assert not contradicts_end(one, one)


def test_a_new_incident_under_an_id_that_is_free_again_has_nothing_of_the_old_end() -> None:
    opened, ends = an_event("one"), Ends()
    end = _an_end(opened, expected_outcome="abort", outcome_doubt=None)
    ends.take_found(end, TimestampMs(1))
    ends.forget_old(lambda _: True, TimestampMs(2))
    assert ends.meaning(an_update(end, 3), end, is_new=True) is Happening.RECORD_AFTER_END
    ends.forget_old(lambda _: False, TimestampMs(3))
    assert ends.meaning(an_update(end, 3), end, is_new=True) is None
    ends.take_found(end, TimestampMs(4))
    ends.open(opened)
    assert ends.found(opened.incident_id) is None


def test_after_a_day_nothing_is_kept(watchers: Watchers) -> None:
    watchers.batch(watchers.knows, emitted=(watchers.world.abort(watchers.named),))
    told = watchers.last
    watchers.batch(watchers.knows, after_ms=25 * 3_600_000)
    watchers.batch(watchers.knows, after_ms=60_000)
    watchers.log.records.append(_an_end(told, sequence=told.sequence + 1))
    watchers.batch(watchers.knows)
    assert watchers.last.expected_outcome == "unknown"
