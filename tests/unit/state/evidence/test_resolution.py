"""Who ended it, as a table; and which live transactions hold the span of an open incident."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import transaction
from support.incidents import OPEN_SINCE_MS, an_event
from txnwatch.state.evidence.ending import ended_by, is_held
from txnwatch.state.model.transaction import (
    CoordinatorView,
    DescribedTransaction,
    Marker,
    NotDescribed,
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
