"""How an incident ends, as a table: by what ended the span, or by what the coordinator did next."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from support.facts import ORDERS, START_MS, transaction
from support.incidents import an_event
from txnwatch.state.evidence.ending import span_resolution, transaction_resolution
from txnwatch.state.model.facts import TransactionEnd
from txnwatch.state.model.findings import SpanEnd, SpanEnded, TransactionMoved
from txnwatch.state.model.incident import Action, Decision, EndedBy, EndKind
from txnwatch.state.model.transaction import CoordinatorView, Marker, Span
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import Verdict

E, K = SpanEnd, EndKind
EVENT = an_event(transactional_id=None)
MARKER = Marker(120, EVENT.producer_epoch, commit=False, coordinator_epoch=0, timestamp_ms=0)
RAISED = msgspec.structs.replace(MARKER, producer_epoch=EVENT.producer_epoch + 1, commit=True)
SPAN = Span("one", 5, 0, 0, 9, 0, 0, 1)

SPANS: dict[str, tuple[SpanEnd, Marker | None, Marker | None, tuple[EndKind, EndedBy, int | None]]] = {
    "a marker of an administrator": (E.MARKER, MARKER, None, (K.ABORTED, EndedBy.ADMINISTRATOR, 120)),
    "our marker": (E.MARKER, MARKER, MARKER, (K.ABORTED, EndedBy.TXNWATCH, 120)),
    "a marker of the coordinator": (E.MARKER, RAISED, None, (K.COMMITTED, EndedBy.COORDINATOR, 120)),
    "absorbed": (E.ABSORBED, RAISED, None, (K.ABSORBED, EndedBy.NEXT_TRANSACTION, 120)),
    "one of several markers": (E.MARKER, None, None, (K.NO_LONGER_OPEN, EndedBy.UNKNOWN, None)),
    "one of several markers, and our own is known": (E.MARKER, None, MARKER, (K.NO_LONGER_OPEN, EndedBy.UNKNOWN, None)),
    "absorbed, by one of several markers": (E.ABSORBED, None, None, (K.NO_LONGER_OPEN, EndedBy.UNKNOWN, None)),
    "the partition is gone": (E.PARTITION_GONE, None, None, (K.PARTITION_GONE, EndedBy.ADMINISTRATOR, None)),
    "truncated": (E.TRUNCATED, None, None, (K.TRUNCATED, EndedBy.UNKNOWN, None)),
    "a census did not show it": (E.CENSUS, None, None, (K.NO_LONGER_OPEN, EndedBy.UNKNOWN, None)),
}


@pytest.mark.parametrize(("how", "marker", "ours", "end"), SPANS.values(), ids=SPANS.keys())
def test_the_end_of_a_span(
    how: SpanEnd, marker: Marker | None, ours: Marker | None, end: tuple[EndKind, EndedBy, int | None]
) -> None:
    found = span_resolution(SpanEnded(EVENT.producer_id, ORDERS, SPAN, how, marker), EVENT, None, 5, ours=ours)
    assert (found.how, found.by, found.marker_offset, found.at_ms) == (*end, 5)


@pytest.mark.parametrize(
    ("start", "began_after", "is_its_own"), [(0, 3, True), (1, 3, False), (-1, 3, False), (1, 0, True)]
)
def test_the_marker_of_other_data_of_the_producer_is_no_end(start: int, began_after: int, *, is_its_own: bool) -> None:
    """If nobody saw the span begin, it may begin lower than what was read of it. A truncated log is written again."""
    assert EVENT.txn_start_offset is not None
    first = EVENT.txn_start_offset + start
    span = msgspec.structs.replace(SPAN, start_offset=first, began_after=began_after)
    end = span_resolution(SpanEnded(EVENT.producer_id, ORDERS, span, E.MARKER, MARKER), EVENT, None, 5)
    assert end.how is (K.ABORTED if is_its_own else K.NO_LONGER_OPEN)


def test_an_announced_marker_that_is_not_proven_to_be_ours_is_named_as_such() -> None:
    announced = replace(EVENT, action=Action(decision=Decision.ABORT, by="here", at_ms=1))
    ended = SpanEnded(EVENT.producer_id, ORDERS, SPAN, E.MARKER, MARKER)
    assert "cannot prove" in (span_resolution(ended, announced, None, 5).detail or "")
    assert span_resolution(ended, EVENT, None, 5).detail is None


def test_an_end_by_one_of_several_markers_says_that_it_is_not_known_which() -> None:
    ended = SpanEnded(EVENT.producer_id, ORDERS, SPAN, E.MARKER, None)
    assert "several markers" in (span_resolution(ended, EVENT, None, 5).detail or "")


BEFORE = transaction(1, S.ONGOING, ORDERS).view
COMMITTED = TransactionEnd(S.COMPLETE_COMMIT, EndedBy.CLIENT, 2, 5)
ABORTED = TransactionEnd(S.PREPARE_ABORT, EndedBy.COORDINATOR, 2, 5)
ANOTHER = transaction(9, S.COMPLETE_COMMIT, start_ms=START_MS + 1).view
RESTORED = transaction(9, S.DEAD, transactional_id="restored").view
MOVES: dict[str, tuple[CoordinatorView, TransactionEnd | None, EndKind, EndedBy]] = {
    "committed": (ANOTHER, COMMITTED, K.COMMITTED, EndedBy.CLIENT),
    "aborted, and the newest state is a commit": (ANOTHER, ABORTED, K.ABORTED, EndedBy.COORDINATOR),
    "its end is not known, and the newest state is a commit": (ANOTHER, None, K.NO_LONGER_OPEN, EndedBy.UNKNOWN),
    "ongoing again": (transaction(2, S.ONGOING, ORDERS).view, None, K.MOVED_ON, EndedBy.COORDINATOR),
    "initialised": (transaction(2, S.EMPTY, start_ms=None).view, None, K.NO_LONGER_OPEN, EndedBy.UNKNOWN),
    "forgotten": (transaction(2, S.DEAD, ORDERS).view, None, K.NO_LONGER_OPEN, EndedBy.UNKNOWN),
    "another id has its producer id": (RESTORED, None, K.NO_LONGER_OPEN, EndedBy.UNKNOWN),
}


@pytest.mark.parametrize(("after", "end", "how", "by"), MOVES.values(), ids=MOVES.keys())
def test_the_end_of_a_transaction(
    after: CoordinatorView, end: TransactionEnd | None, how: EndKind, by: EndedBy
) -> None:
    found = transaction_resolution(TransactionMoved(1, Verdict.LATE, BEFORE, after, end), 5)
    assert (found.how, found.by) == (how, by)
