"""The table of what a reading lacks: it is complete, and each lack begins, is joined and ends as the table says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from txnwatch.state.detection.reading import (
    ALL_READ,
    LACKS,
    NOWHERE,
    OF_DATA,
    OF_LOG,
    READ_WHOLE,
    READING_TRANSITIONS,
    Lack,
    LackSince,
    Next,
    ReadEvent,
    Reading,
    ReadingEffect,
    Unread,
    after,
    unread_in,
)
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition

E = ReadEvent
DATA, LOG = TopicPartition("orders", 0), TopicPartition(TRANSACTION_STATE_TOPIC, 3)
# A way from a partition of which nothing is known to each lack.
WAYS: dict[Lack, list[ReadEvent]] = {
    Lack.NOTHING: [],
    Lack.REST: [E.LIMITED],
    Lack.RANGE: [E.UNREADABLE],
    Lack.RANGE_BEGUN: [E.UNREADABLE, E.READ_AGAIN],
    Lack.CENSUS: [E.LOST],
    Lack.NEW_READING: [E.CUT],
    Lack.NEW_READING_BEGUN: [E.CUT, E.READ_AGAIN],
    Lack.RECREATED: [E.REPLACED],
    Lack.NAME: [E.HIDDEN],
    Lack.DESCRIPTION: [E.UNDESCRIBED],
    Lack.FIRST_READING: [E.BEGINS],
}


def shown(offset: int = 0, barrier: int = 1, since_ms: int = 100) -> LackSince:
    return LackSince(offset, barrier, 1, since_ms)


def reading_after(*events: ReadEvent | tuple[ReadEvent, int], start: Reading = READ_WHOLE) -> Reading:
    """The reading after events at an offset, or at the beginning."""
    for event in events:
        what, offset = event if isinstance(event, tuple) else (event, 0)
        start, _ = after(start, what, shown(offset))
    return start


def test_the_table_names_every_lack_and_every_event() -> None:
    assert LACKS.keys() == WAYS.keys() == set(Lack)
    assert {event for _, event in READING_TRANSITIONS} == set(ReadEvent)
    assert {cell.effect for cell in READING_TRANSITIONS.values()} == set(ReadingEffect)


def test_every_notice_is_an_event() -> None:
    assert OF_DATA.keys() == set(NoticeKind)
    assert OF_LOG.keys() == set(NoticeKind) - {NoticeKind.HIDDEN}, "a transaction never includes this log"


@pytest.mark.parametrize("lack", Lack)
def test_every_lack_is_reached_and_is_the_only_one_then(lack: Lack) -> None:
    assert reading_after(*WAYS[lack]).lacks.keys() == {lack} - {Lack.NOTHING}


@pytest.mark.parametrize(("lack", "event"), READING_TRANSITIONS)
def test_a_cell_is_executed(lack: Lack, event: ReadEvent) -> None:
    before = reading_after(*WAYS[lack])
    changed, effects = after(before, event, shown())
    cells = [READING_TRANSITIONS.get((row, event), Next(Lack.NOTHING)) for row in (Lack.NOTHING, lack)]
    assert changed.lacks.keys() == {cell.lack for cell in cells} - {Lack.NOTHING}
    assert effects == {cell.effect for cell in cells} - {ReadingEffect.NOTHING}
    assert changed.number == before.number + (ReadingEffect.NEW_NUMBER in effects)


# What ends a lack, by its own cell or because something wider takes its place.
ENDED_BY: dict[Lack, set[ReadEvent]] = {
    Lack.REST: {E.READ_AGAIN, E.LET_GO},
    Lack.RANGE: {E.READ_AGAIN, E.LOST, E.CUT, E.LET_GO, E.REPLACED},
    Lack.RANGE_BEGUN: {E.UNREADABLE, E.LOST, E.CUT, E.REPLACED, E.REACHED},
    Lack.CENSUS: {E.DESCRIBED_AS_READ, E.LET_GO},
    Lack.NEW_READING: {E.READ_AGAIN, E.REPLACED},
    Lack.NEW_READING_BEGUN: {E.REPLACED, E.REACHED},
    Lack.RECREATED: {E.ALL_REACHED},
    Lack.NAME: {E.LISTED, E.UNANSWERED},
    Lack.DESCRIPTION: {E.DESCRIBED, E.LET_GO},
    Lack.FIRST_READING: {E.REPLACED, E.REACHED},
}


@pytest.mark.parametrize("lack", ENDED_BY)
def test_nothing_else_ends_a_lack(lack: Lack) -> None:
    known = reading_after(*WAYS[lack])
    assert {event for event in ReadEvent if lack not in reading_after(event, start=known).lacks} == ENDED_BY[lack]


@pytest.mark.parametrize("lack", Lack)
def test_only_a_complete_new_reading_shows_which_ids_are_gone(lack: Lack) -> None:
    known = reading_after(*WAYS[lack])
    complete = {Lack.NEW_READING_BEGUN: {E.REACHED}, Lack.RECREATED: {E.ALL_REACHED}}.get(lack, set())
    assert {event for event in ReadEvent if ReadingEffect.FORGET in after(known, event, shown())[1]} == complete


@pytest.mark.parametrize("lack", [lack for lack in Lack if LACKS[lack].includes])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_another_lack_includes_is_not_kept_beside_it(lack: Lack, *, is_first: bool) -> None:
    for included in LACKS[lack].includes:
        ways = (WAYS[lack], WAYS[included]) if is_first else (WAYS[included], WAYS[lack])
        lacks = reading_after(*ways[0], *ways[1]).lacks.keys()
        assert included not in lacks or lack not in lacks


@pytest.mark.parametrize("offsets", [(5, 9), (9, 5)])
def test_of_two_ranges_the_lower_one_counts_and_each_failure(offsets: tuple[int, int]) -> None:
    first, second = offsets
    known, _ = after(READ_WHOLE, E.UNREADABLE, shown(first))
    both, _ = after(known, E.UNREADABLE, shown(second, barrier=2, since_ms=200))
    assert both.lacks == {Lack.RANGE: LackSince(5, 2, 2, 100)}


@pytest.mark.parametrize(("event", "lack"), [(E.UNREADABLE, Lack.RANGE), (E.LIMITED, Lack.REST)])
def test_a_read_from_above_does_not_reach_what_is_unread(event: ReadEvent, lack: Lack) -> None:
    known = reading_after((event, 5))
    assert reading_after((E.READ_AGAIN, 6), start=known) == known
    assert lack not in reading_after((E.READ_AGAIN, 5), start=known).lacks


def test_a_log_is_read_again_from_its_beginning_only() -> None:
    known = reading_after(E.CUT)
    assert reading_after((E.READ_AGAIN, 1), start=known) == known
    assert reading_after(E.READ_AGAIN, start=known).lacks.keys() == {Lack.NEW_READING_BEGUN}


def test_a_range_that_fails_again_keeps_its_failures_and_begins_where_it_failed_last() -> None:
    begun = reading_after((E.UNREADABLE, 5), (E.READ_AGAIN, 5))
    assert begun.lacks[Lack.RANGE_BEGUN].from_offset == NOWHERE
    failed, _ = after(begun, E.UNREADABLE, shown(8, barrier=4, since_ms=900))
    assert failed.lacks == {Lack.RANGE: LackSince(8, 4, 2, 100)}


def test_a_range_of_a_new_reading_is_lacking_beside_it() -> None:
    known = reading_after(E.CUT, E.READ_AGAIN, (E.UNREADABLE, 7))
    assert known.lacks.keys() == {Lack.NEW_READING_BEGUN, Lack.RANGE}
    assert reading_after((E.READ_AGAIN, 7), start=known).lacks.keys() == {Lack.NEW_READING_BEGUN}


def test_a_new_reading_has_no_hole_of_the_former_one() -> None:
    known = replace(READ_WHOLE, hole_end=9)
    assert reading_after(E.UNREADABLE, start=known).hole_end == 9
    cut = reading_after(E.CUT, start=known)
    assert (cut.hole_end, cut.number) == (0, 1)
    begun = reading_after(E.READ_AGAIN, start=replace(cut, hole_end=4))
    assert (begun.hole_end, begun.number) == (0, 2)


def test_what_changes_nothing_is_the_same_object() -> None:
    known = reading_after((E.LIMITED, 5))
    assert after(known, E.REACHED, shown())[0] is known


@pytest.mark.parametrize("lack", [lack for lack in Lack if lack is not Lack.NOTHING])
def test_what_is_shown_again_changes_nothing_that_is_stored_unless_it_counts(lack: Lack) -> None:
    """A partition that is behind may have a rest in every batch."""
    begins = [event for (row, event), cell in READING_TRANSITIONS.items() if (row, cell.lack) == (Lack.NOTHING, lack)]
    for event in begins:
        known, _ = after(READ_WHOLE, event, shown(5))
        again, effects = after(known, event, shown(8, barrier=2, since_ms=200))
        counted = LackSince(5, 2, 2, 100) if LACKS[lack].is_counted else LackSince(5, 1, 1, 100)
        assert again.lacks == {lack: counted}
        assert LACKS[lack].is_counted or effects or again is known


@pytest.mark.parametrize(
    ("partition", "lack", "expected"),
    [
        (DATA, Lack.REST, Unread(rests={DATA})),
        (DATA, Lack.RANGE, Unread(gaps={DATA})),
        (DATA, Lack.CENSUS, Unread(gaps={DATA})),
        (DATA, Lack.NAME, ALL_READ),
        (DATA, Lack.DESCRIPTION, ALL_READ),
        (LOG, Lack.RANGE, Unread(logs={LOG})),
        (LOG, Lack.RANGE_BEGUN, ALL_READ),
        (LOG, Lack.NEW_READING, Unread(logs={LOG})),
        (LOG, Lack.NEW_READING_BEGUN, ALL_READ),
        (LOG, Lack.FIRST_READING, Unread(never={LOG})),
        (LOG, Lack.RECREATED, Unread(recreated={LOG: 1})),
    ],
)
def test_the_proof_sees_what_is_unread(partition: TopicPartition, lack: Lack, expected: Unread) -> None:
    assert unread_in({partition: reading_after(*WAYS[lack])}) == expected


def test_times_move_with_our_clock() -> None:
    known = reading_after((E.UNREADABLE, 5))
    assert known.with_ours_set(50).lacks[Lack.RANGE] == LackSince(5, 1, 1, 150)
