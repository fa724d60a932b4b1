"""The transaction around one offset, from the batches alone, however they arrive."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_marker
from txnwatch.streaming.log.lookups import TransactionAround

OURS, OTHER = 7, 8
LOG = [
    a_batch(0, producer_id=OURS, producer_epoch=3),
    a_marker(1, producer_id=OURS, producer_epoch=3, commit=True),
    a_batch(2, producer_id=OTHER),
    a_batch(3, producer_id=OURS, producer_epoch=4, count=2),
    a_batch(5, producer_id=OURS, transactional=False),
    a_batch(6, producer_id=OURS, producer_epoch=5),
    a_marker(7, producer_id=OTHER, commit=True),
    a_marker(8, producer_id=OURS, producer_epoch=6, commit=False),
    a_batch(9, producer_id=OURS, producer_epoch=7),
    a_marker(10, producer_id=OURS, producer_epoch=7, commit=True),
]


@pytest.mark.parametrize("at_a_time", [1, 3, len(LOG)])
@pytest.mark.parametrize(
    ("offset", "first", "epochs", "marker"),
    [(0, 0, [3], 1), (3, 3, [4, 5], 8), (4, 3, [4, 5], 8), (6, 3, [4, 5], 8), (9, 9, [7], 10)],
)
def test_a_transaction_is_what_is_between_two_markers_of_its_producer(
    at_a_time: int, offset: int, first: int, epochs: list[int], marker: int
) -> None:
    fold = TransactionAround(OURS, offset, 0, 11)
    for begin in range(0, len(LOG), at_a_time):
        if not fold.is_done:
            fold.feed(b"".join(LOG[begin : begin + at_a_time]))
    assert fold.marker is not None
    assert (fold.first_offset, list(fold.epochs), fold.marker.offset) == (first, epochs, marker)
    assert fold.marker.commit is (marker != 8)


def test_a_transaction_without_a_marker_has_none() -> None:
    fold = TransactionAround(OURS, 3, 0, 7)
    fold.feed(b"".join(LOG))
    assert (fold.first_offset, fold.marker, fold.is_done) == (3, None, True)


@pytest.mark.parametrize(("start", "offset", "is_certain"), [(0, 0, True), (0, 3, True), (2, 3, False), (1, 3, True)])
def test_a_beginning_is_certain_if_the_log_or_a_marker_begins_before_it(
    start: int, offset: int, *, is_certain: bool
) -> None:
    fold = TransactionAround(OURS, offset, start, 11)
    fold.feed(b"".join(LOG[start:]))
    assert fold.is_first_certain is is_certain
