"""A producer's last marker below an offset: known only where nothing above it is missing."""

from __future__ import annotations

import pytest

from support.batches import a_batch, a_marker
from txnwatch.streaming.past import LastMarker

MINE, OTHER = 7, 8
DATA = a_batch(0, producer_id=MINE)
FIRST = a_marker(1, producer_id=MINE, producer_epoch=1, commit=True)
LAST = a_marker(3, producer_id=MINE, producer_epoch=2, commit=False)
THEIRS = a_marker(4, producer_id=OTHER)


@pytest.mark.parametrize(
    ("start", "batches", "marker", "has_hole"),
    [
        pytest.param(0, [DATA], None, False, id="none"),
        pytest.param(0, [DATA, FIRST, a_batch(2, producer_id=MINE), LAST, THEIRS], 3, False, id="the last of its own"),
        pytest.param(0, [FIRST, a_batch(2, producer_id=OTHER)], 1, True, id="a hole below it hides nothing later"),
        pytest.param(0, [DATA, FIRST, THEIRS], None, True, id="what is missing above it may have been a later one"),
        pytest.param(0, [DATA, FIRST, a_batch(9, producer_id=OTHER)], None, True, id="also what is missing to the end"),
        pytest.param(1, [FIRST], 1, False, id="the first of the range"),
    ],
)
def test_the_last_marker(start: int, batches: list[bytes], marker: int | None, has_hole: bool) -> None:  # noqa: FBT001
    fold = LastMarker(MINE, start, 5)
    fold.feed(b"".join(batches))
    assert (fold.marker.offset if fold.marker is not None else None, fold.has_hole) == (marker, has_hole)
