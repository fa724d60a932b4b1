"""The next record that a read_committed consumer gets, from the batches alone, however they arrive."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_marker
from txnwatch.streaming.log.visible_ahead import Place, VisibleAhead

OURS, OTHER = 7, 8
LOG = [
    a_batch(0, producer_id=OURS),
    a_marker(1, producer_id=OURS, commit=False),
    a_batch(2, producer_id=OURS),  # committed, by a marker behind that of the other one
    a_batch(3, producer_id=OTHER),
    a_marker(4, producer_id=OTHER, commit=True),
    a_marker(5, producer_id=OURS, commit=True),
    a_marker(6, producer_id=OURS, commit=True),
    a_batch(8, producer_id=OURS),
    a_marker(9, producer_id=OURS, commit=False),
    a_batch(10, producer_id=OTHER),  # open
]
END, STABLE = 11, 10
CASES = {
    "an aborted record": (0, Place.RECORD, 2),
    "an abort marker": (1, Place.ABORT_MARKER, 2),
    "a record whose marker is not the first": (2, Place.RECORD, 2),
    "a record": (3, Place.RECORD, 3),
    "a commit marker": (4, Place.COMMIT_MARKER, None),
    "only markers and aborted records are left": (5, Place.COMMIT_MARKER, None),
    "compaction has removed it": (7, Place.NOTHING, None),
}


def walked(start: int, at_a_time: int = 1, *, stable: int = STABLE, end: int = END) -> VisibleAhead:
    fold = VisibleAhead(start, end, stable)
    left = LOG[:]
    while left and not fold.is_done:
        fold.feed(b"".join(left[:at_a_time]))
        left = left[at_a_time:]
    return fold


@pytest.mark.parametrize("at_a_time", [1, 3, len(LOG)])
@pytest.mark.parametrize(("start", "at", "visible"), CASES.values(), ids=CASES.keys())
def test_the_next_record_is_the_first_that_is_committed(
    start: int, at: Place, visible: int | None, at_a_time: int
) -> None:
    fold = walked(start, at_a_time)
    assert (fold.at, fold.visible) == (at, visible)


def test_the_walk_ends_as_soon_as_nothing_can_change_the_answer() -> None:
    assert walked(3).position < 8
    plain = VisibleAhead(0, 1_000, 1_000)
    plain.feed(a_batch(0, transactional=False))
    assert (plain.is_done, plain.visible) == (True, 0)


def test_a_record_above_the_last_stable_offset_is_not_got() -> None:
    assert walked(2, stable=2).visible is None
    assert walked(3, stable=4).visible == 3


def test_a_transaction_that_is_not_decided_within_the_range_gives_nothing() -> None:
    fold = walked(2, end=4)
    assert (fold.visible, fold.is_done) == (None, True)
