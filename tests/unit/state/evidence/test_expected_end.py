"""How a live transaction ends, as a table: by its state, its own timeout, the policy, and what is proven."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from txnwatch.state.evidence.screening import ExpectedEnd, expected_end
from txnwatch.state.model.transaction import DescribedTransaction
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS, DetectionPolicy, Verdict, WillEndBy

START_MS = 1_700_000_000_000
DUE_MS = START_MS + 60_000
ONGOING = DescribedTransaction("checkout-1", 1, S.ONGOING, 1000, 0, 60_000, START_MS)
USUAL = DetectionPolicy()
SLOW_SCAN = DetectionPolicy(coordinator_scan_interval_ms=60_000)
LARGE_BUFFER = DetectionPolicy(late_buffer_ms=30_000)

CASES: dict[str, tuple[DescribedTransaction, Verdict | None, DetectionPolicy, int, ExpectedEnd]] = {
    "young": (ONGOING, None, USUAL, 0, ExpectedEnd(WillEndBy.TIMEOUT, DUE_MS, DUE_MS + 10_000)),
    "long running": (
        ONGOING,
        Verdict.LONG_RUNNING,
        USUAL,
        50_000,
        ExpectedEnd(WillEndBy.TIMEOUT, DUE_MS, DUE_MS + 10_000),
    ),
    "at the end of the buffer": (
        ONGOING,
        None,
        USUAL,
        75_000,
        ExpectedEnd(WillEndBy.TIMEOUT, DUE_MS, DUE_MS + 10_000),
    ),
    "past it by our clock alone": (
        ONGOING,
        None,
        USUAL,
        75_001,
        ExpectedEnd(WillEndBy.TIMEOUT_IN_DOUBT, DUE_MS, DUE_MS + 10_000),
    ),
    "a larger buffer is configured": (
        ONGOING,
        None,
        LARGE_BUFFER,
        100_000,
        ExpectedEnd(WillEndBy.TIMEOUT, DUE_MS, DUE_MS + 10_000),
    ),
    "a longer scan interval is configured": (
        ONGOING,
        None,
        SLOW_SCAN,
        125_000,
        ExpectedEnd(WillEndBy.TIMEOUT, DUE_MS, DUE_MS + 60_000),
    ),
    "its coordinator is late, whatever our clock shows": (
        ONGOING,
        Verdict.LATE,
        USUAL,
        10_000,
        ExpectedEnd(WillEndBy.LATE_COORDINATOR, DUE_MS, DUE_MS + 10_000),
    ),
    "two-phase": (
        replace(ONGOING, timeout_ms=TWO_PHASE_TIMEOUT_MS),
        None,
        USUAL,
        10**11,
        ExpectedEnd(WillEndBy.CLIENT),
    ),
    "decided": (replace(ONGOING, state=S.PREPARE_COMMIT), None, USUAL, 10**9, ExpectedEnd(WillEndBy.MARKERS)),
    "decided, two-phase, and stuck": (
        replace(ONGOING, state=S.PREPARE_ABORT, timeout_ms=TWO_PHASE_TIMEOUT_MS),
        Verdict.STUCK_PREPARE,
        USUAL,
        10**9,
        ExpectedEnd(WillEndBy.MARKERS),
    ),
    "without a start": (replace(ONGOING, start_ms=None), None, USUAL, 75_001, ExpectedEnd(WillEndBy.NO_START)),
    "being fenced": (
        replace(ONGOING, state=S.PREPARE_EPOCH_FENCE),
        None,
        USUAL,
        75_001,
        ExpectedEnd(WillEndBy.TIMEOUT_IN_DOUBT, DUE_MS, DUE_MS + 10_000),
    ),
}


@pytest.mark.parametrize(("described", "proven", "policy", "age_ms", "end"), CASES.values(), ids=CASES.keys())
def test_the_expected_end(
    described: DescribedTransaction,
    proven: Verdict | None,
    policy: DetectionPolicy,
    age_ms: int,
    end: ExpectedEnd,
) -> None:
    assert expected_end(described, proven, policy, START_MS + age_ms) == end
