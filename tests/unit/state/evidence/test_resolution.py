"""Who ended it, as a table; and what a live owner means for an open incident."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.incidents import OPEN_SINCE_MS, an_event
from txnwatch.state.evidence.ending import ended_by, is_held, is_refuted
from txnwatch.state.model.transaction import (
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
LIVE = replace(IDLE, state=TransactionState.ONGOING, partitions=frozenset({PARTITION}), start_ms=OPEN_SINCE_MS + 5_000)

WHO = {
    "a raised epoch": (RAISED, IDLE, "coordinator"),
    "a raised epoch, and nobody answers": (RAISED, None, "coordinator"),
    "the same epoch, idle since before": (SAME, IDLE, "administrator"),
    "the same epoch, never began": (SAME, replace(IDLE, state=TransactionState.EMPTY, start_ms=None), "administrator"),
    "the same epoch, the id is gone": (SAME, UnknownTransactionalId("payments", 1), "administrator"),
    "the same epoch, the id moved on": (SAME, replace(IDLE, producer_id=4712), "administrator"),
    "the same epoch, but a later transaction has ended": (SAME, replace(IDLE, start_ms=OPEN_SINCE_MS + 1), "unknown"),
    "the same epoch, a transaction is live": (SAME, LIVE, "unknown"),
    "the same epoch, and nobody answers": (SAME, None, "unknown"),
    "the same epoch, and it cannot be read": (SAME, UNREADABLE, "unknown"),
}


@pytest.mark.parametrize(("marker", "owner", "who"), WHO.values(), ids=WHO.keys())
def test_the_marker_has_the_expected_writer(marker: Marker, owner: TransactionDescription | None, who: str) -> None:
    assert ended_by(marker, an_event(), owner) == who


def test_a_span_without_an_owner_is_ended_by_an_administrator() -> None:
    assert ended_by(SAME, an_event(transactional_id=None), None) == "administrator"


HELD = {
    "a later transaction holds it": (LIVE, True, False),
    "its own transaction holds it": (replace(LIVE, start_ms=OPEN_SINCE_MS - 1), True, True),
    "a live one holds another partition": (
        replace(LIVE, partitions=frozenset({TopicPartition("orders", 4)})),
        *2 * (False,),
    ),
    "another producer id": (replace(LIVE, producer_id=1), False, False),
    "idle": (IDLE, False, False),
    "without a start": (replace(LIVE, start_ms=None), True, False),
    "unreadable": (UNREADABLE, False, False),
    "unknown to its coordinator": (UnknownTransactionalId("payments", 1), False, False),
}


@pytest.mark.parametrize(("owner", "held", "refuted"), HELD.values(), ids=HELD.keys())
def test_a_live_owner_gives_the_expected_answer(owner: TransactionDescription, held: bool, refuted: bool) -> None:  # noqa: FBT001
    assert (is_held(an_event(), owner), is_refuted(an_event(), owner)) == (held, refuted)
