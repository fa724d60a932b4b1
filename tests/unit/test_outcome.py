"""How a hanging transaction would have ended: said only where it is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import ORDERS, PAYMENTS, START_MS, a_marker, transaction
from txnwatch.state.outcome import expected_outcome
from txnwatch.state.transaction import CoordinatorView, Marker, Span
from txnwatch.state.transaction import TransactionState as S

SPAN = Span("orders-id", 50, 0, 0, 55, START_MS, START_MS, 1)
COMMITTED = transaction(1, S.COMPLETE_COMMIT, ORDERS).view
ABORTED = transaction(1, S.COMPLETE_ABORT, ORDERS).view
ITS_MARKER = a_marker(40, commit=False)

CASES: dict[str, tuple[CoordinatorView | None, Marker | None, int | None, str]] = {
    "committed, the partition never had a marker": (COMMITTED, None, -1, "commit"),
    "aborted, the partition never had a marker": (ABORTED, None, -1, "abort"),
    "committed, some marker was there that we did not see": (COMMITTED, None, 4, "unknown"),
    "aborted with its marker, data after it": (ABORTED, ITS_MARKER, 0, "none"),
    "committed, and the COMMIT before may be the one of the transaction before": (
        COMMITTED,
        a_marker(40, commit=True, timestamp_ms=START_MS + 50),
        0,
        "unknown",
    ),
    "committed with its marker, surely later than its beginning, data after it": (
        COMMITTED,
        a_marker(40, commit=True, timestamp_ms=START_MS + 60_000),
        0,
        "none",
    ),
    "the marker before is of another outcome": (ABORTED, a_marker(40, commit=True), 0, "unknown"),
    "the marker before is of another epoch": (ABORTED, a_marker(40, epoch=1), 0, "unknown"),
    "the marker before is older than the transaction": (
        ABORTED,
        a_marker(40, timestamp_ms=START_MS - 60_000),
        0,
        "unknown",
    ),
    "the last transaction held other partitions": (
        transaction(1, S.COMPLETE_COMMIT, PAYMENTS).view,
        None,
        -1,
        "unknown",
    ),
    "initialised under this epoch, nothing was ever added": (transaction(1, S.EMPTY).view, None, -1, "none"),
    "initialised under a later epoch": (transaction(1, S.EMPTY, producer_epoch=1).view, None, -1, "unknown"),
    "initialised after a transaction": (transaction(1, S.EMPTY, ORDERS).view, None, -1, "unknown"),
    "live elsewhere": (transaction(1, S.ONGOING, PAYMENTS).view, None, -1, "unknown"),
    "the coordinator forgot it": (None, None, -1, "unknown"),
    "moved on to another producer id": (replace(COMMITTED, superseded_by=9), None, -1, "unknown"),
}


@pytest.mark.parametrize(("view", "marker", "coordinator_epoch", "outcome"), CASES.values(), ids=CASES.keys())
def test_expected_outcome(
    view: CoordinatorView | None, marker: Marker | None, coordinator_epoch: int | None, outcome: str
) -> None:
    assert expected_outcome(ORDERS, SPAN, view, marker, coordinator_epoch) == outcome
