"""How a span ends that a census has shown ahead of the scan, if a range has several markers of its producer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from support.batches import a_batch
from support.batches import a_marker as a_marker_batch
from support.facts import ORDERS, TOPIC_IDS, BucketRun
from support.facts import census as census_of
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact
from txnwatch.state.model.findings import SpanCandidate, SpanEnded, StrayWrite
from txnwatch.streaming.log.partition_fold import PartitionFold

START, END = 50, 200
AT = 100  # where the hanging transaction begins
BEHIND: dict[str, Any] = {"limited_data": {ORDERS}}
DATA, COMMIT, ABORT = "data", "commit", "abort"
NEWER = "data of a newer epoch"
Log = tuple[tuple[int, str], ...]


def log_of(entries: Log) -> bytes:
    batches, epoch = [], 0
    for offset, what in entries:
        epoch += what is NEWER
        if what in {DATA, NEWER}:
            batches.append(a_batch(offset, producer_epoch=epoch))
        else:
            batches.append(a_marker_batch(offset, commit=what is COMMIT, producer_epoch=epoch))
    return b"".join(batches)


def reported_ahead() -> BucketRun:
    """A census has shown a hang at 100, ahead of the scan, and it is reported."""
    run = BucketRun(step_ms=1_500)
    taken, *opened = census_of(AT, scanned=False)
    assert isinstance(taken, CensusTaken)
    census: list[Fact] = [
        CensusTaken({ORDERS: CensusListing(TOPIC_IDS["orders"], END, AT, False, False, is_behind=True)}),
        *opened,
    ]
    findings = [one for facts in (census, [], census, []) for one in run.batch(*facts, **BEHIND)]
    assert any(isinstance(one, SpanCandidate) for one in findings)
    return run


def ends(entries: Log, *bounds: int) -> tuple[list[int | None], list[tuple[int, int | None]], int | None]:
    """The markers that ended the span, the stray writes with theirs, and what is open then, read in these ranges."""
    run, encoded, found, strays = reported_ahead(), log_of(entries), list[int | None](), list[tuple[int, int | None]]()
    for start, end in pairwise(bounds):
        fold = PartitionFold(start, end)
        fold.feed(encoded)
        for one in run.batch(*fold.facts(ORDERS, TOPIC_IDS["orders"], run.now_ms), **BEHIND):
            if isinstance(one, SpanEnded) and one.span.start_offset == AT:
                found.append(one.marker.offset if one.marker is not None else None)
            elif isinstance(one, StrayWrite):
                marker = one.joined.marker
                strays.append((one.joined.start_offset, marker.offset if marker is not None else None))
    span = run.producer().spans.get(ORDERS)
    return found, strays, span.start_offset if span is not None else None


BEFORE = ((60, COMMIT),)
# What the log has; which marker ended the span at 100, and which of them one range of the whole log shows.
LOGS: dict[str, tuple[Log, int, int | None]] = {
    "its marker is the first of the range": (((AT, DATA), (110, ABORT), (120, DATA), (130, COMMIT)), 110, 110),
    "its marker is the last of the range": ((*BEFORE, (AT, DATA), (110, ABORT)), 110, 110),
    "it has more data": ((*BEFORE, (AT, DATA), (105, DATA), (110, ABORT)), 110, 110),
    "several markers are before it": ((*BEFORE, (70, DATA), (80, ABORT), (AT, DATA), (110, ABORT)), 110, 110),
    "a later transaction ended in the range": (
        (*BEFORE, (AT, DATA), (110, ABORT), (120, DATA), (130, COMMIT)),
        110,
        None,
    ),
    "a later transaction ended, and one is open": (
        (*BEFORE, (AT, DATA), (110, ABORT), (120, DATA), (130, COMMIT), (140, DATA)),
        110,
        None,
    ),
    "a later marker without data": ((*BEFORE, (AT, DATA), (110, ABORT), (120, COMMIT)), 110, None),
    "another transaction has joined it": ((*BEFORE, (AT, DATA), (105, NEWER), (110, COMMIT)), 110, 110),
    "another has joined it, and a later one ended": (
        (*BEFORE, (AT, DATA), (105, NEWER), (110, COMMIT), (120, DATA), (130, ABORT)),
        110,
        110,
    ),
}


@pytest.mark.parametrize(("entries", "marker", "shown"), LOGS.values(), ids=LOGS.keys())
def test_a_range_with_several_markers_shows_no_other_end_than_smaller_ranges(
    entries: Log, marker: int, shown: int | None
) -> None:
    by_offset = ends(entries, START, *(offset for offset, _ in entries), END)
    assert by_offset[0] == [marker]
    found, strays, open_at = ends(entries, START, END)
    assert found == [shown]
    assert open_at == by_offset[2]
    assert [start for start, _ in strays] == [start for start, _ in by_offset[1]]
