"""Who ended it, as a table; and which live transactions hold the span of an open incident."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import transaction
from support.incidents import OPEN_SINCE_MS, an_event
from txnwatch.state.evidence.ending import ended_by, is_held, span_resolution
from txnwatch.state.model.findings import SpanEnd, SpanEnded
from txnwatch.state.model.incident import EndKind
from txnwatch.state.model.transaction import (
    CoordinatorView,
    DescribedTransaction,
    Marker,
    NotDescribed,
    Span,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import Problem, TopicPartition

PARTITION = TopicPartition("orders", 3)
SAME, RAISED = Marker(120, 2, False, 0, 0), Marker(120, 3, False, 0, 0)
IDLE = DescribedTransaction("payments", 1, TransactionState.COMPLETE_ABORT, 4711, 2, 60_000, OPEN_SINCE_MS - 5_000)
UNREADABLE = NotDescribed("payments", Problem("NOT_COORDINATOR"))
LATER_MS = OPEN_SINCE_MS + 5_000
LIVE = replace(IDLE, state=TransactionState.ONGOING, partitions=frozenset({PARTITION}), start_ms=LATER_MS)

NEVER = replace(IDLE, state=TransactionState.EMPTY, start_ms=None)
VIEW = transaction(
    *(1, TransactionState.COMPLETE_ABORT, PARTITION),
    producer_id=4711,
    transactional_id="payments",
    producer_epoch=2,
    start_ms=IDLE.start_ms,
).view
ADMINISTRATOR = "administrator"

WHO = {
    "a raised epoch": (RAISED, IDLE, VIEW, "coordinator"),
    "a raised epoch, and nobody answers": (RAISED, None, VIEW, "coordinator"),
    "the same epoch, idle since before": (SAME, IDLE, VIEW, ADMINISTRATOR),
    "the same epoch, never began": (SAME, NEVER, None, ADMINISTRATOR),
    "the same epoch, the id is gone": (SAME, UnknownTransactionalId("payments", 1), VIEW, ADMINISTRATOR),
    "the same epoch, the id moved on": (SAME, replace(IDLE, producer_id=4712), VIEW, ADMINISTRATOR),
    "the same epoch, but a later transaction has ended": (SAME, replace(IDLE, start_ms=LATER_MS), VIEW, "unknown"),
    "a later transaction has ended, by a clock that is behind ours": (
        *(SAME, replace(IDLE, start_ms=OPEN_SINCE_MS - 1), VIEW),
        "unknown",
    ),
    "the span was proven beside a live transaction elsewhere": (
        *(SAME, IDLE, replace(VIEW, state=TransactionState.ONGOING)),
        "unknown",
    ),
    "the same epoch, and this process has proven nothing": (SAME, IDLE, None, "unknown"),
    "the same epoch, a transaction is live": (SAME, LIVE, VIEW, "unknown"),
    "the same epoch, and nobody answers": (SAME, None, VIEW, "unknown"),
    "the same epoch, and it cannot be read": (SAME, UNREADABLE, VIEW, "unknown"),
}


@pytest.mark.parametrize(("marker", "owner", "view", "who"), WHO.values(), ids=WHO.keys())
def test_the_marker_has_the_expected_writer(
    marker: Marker, owner: TransactionDescription | None, view: CoordinatorView | None, who: str
) -> None:
    assert ended_by(marker, an_event(), owner, view) == who


SPAN = Span("one", 5, 2, 2, 9, 0, 0, 1)
LATER = replace(IDLE, producer_epoch=3, start_ms=LATER_MS)
ENDS = {
    "a later transaction has ended with this epoch": (RAISED, LATER, VIEW, EndKind.ABSORBED),
    "the id has begun its first transaction": (RAISED, LATER, replace(VIEW, start_ms=None), EndKind.ABSORBED),
    "the id has begun no other": (RAISED, replace(LATER, start_ms=IDLE.start_ms), VIEW, EndKind.ABORTED),
    "the id has begun none": (RAISED, replace(LATER, start_ms=None), VIEW, EndKind.ABORTED),
    "the later one has ended with another epoch": (RAISED, replace(LATER, producer_epoch=4), VIEW, EndKind.ABORTED),
    "the later one is open": (RAISED, replace(LATER, state=TransactionState.ONGOING), VIEW, EndKind.ABORTED),
    "the later one was committed": (
        *(RAISED, replace(LATER, state=TransactionState.COMPLETE_COMMIT), VIEW),
        EndKind.ABORTED,
    ),
    "the later one has the same epoch": (SAME, replace(LATER, producer_epoch=2), VIEW, EndKind.ABORTED),
    "the later one has another producer id": (RAISED, replace(LATER, producer_id=4712), VIEW, EndKind.ABORTED),
    "it was proven beside a live one": (
        *(RAISED, LATER, replace(VIEW, state=TransactionState.ONGOING)),
        EndKind.ABORTED,
    ),
    "this process has proven nothing": (RAISED, LATER, None, EndKind.ABORTED),
    "nobody answers": (RAISED, None, VIEW, EndKind.ABORTED),
}


@pytest.mark.parametrize(("marker", "owner", "view", "how"), ENDS.values(), ids=ENDS.keys())
def test_data_is_absorbed_only_by_a_transaction_that_began_after_the_proof_and_ended_with_its_epoch(
    marker: Marker, owner: TransactionDescription | None, view: CoordinatorView | None, how: EndKind
) -> None:
    ended = SpanEnded(4711, PARTITION, SPAN, SpanEnd.MARKER, marker)
    assert span_resolution(ended, an_event(), owner, 5, view).how is how


def test_a_span_without_an_owner_is_ended_by_an_administrator() -> None:
    assert ended_by(SAME, an_event(transactional_id=None), None, None) == "administrator"


HELD = {
    "a live transaction holds it": (LIVE, True),
    "by our clock, it began before the data": (replace(LIVE, start_ms=OPEN_SINCE_MS - 1), True),
    "a live one holds another partition": (replace(LIVE, partitions=frozenset({TopicPartition("orders", 4)})), False),
    "another producer id": (replace(LIVE, producer_id=1), False),
    "idle": (IDLE, False),
    "without a start": (replace(LIVE, start_ms=None), True),
    "unreadable": (UNREADABLE, False),
    "unknown to its coordinator": (UnknownTransactionalId("payments", 1), False),
}


@pytest.mark.parametrize(("owner", "held"), HELD.values(), ids=HELD.keys())
def test_a_live_owner_gives_the_expected_answer(owner: TransactionDescription, *, held: bool) -> None:
    assert is_held(an_event(), owner) is held
