"""The code reads the table of verdicts: ranks, thresholds and families are its columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, transaction
from txnwatch.state.model.transaction import CoordinatorView
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import (
    TWO_PHASE_TIMEOUT_MS,
    VERDICTS,
    DetectionPolicy,
    Family,
    Severity,
    Verdict,
    overdue,
    rank,
    thresholds,
)

SCAN_MS = 10_000
POLICY = DetectionPolicy()
HOUR_MS = 3_600_000
ROOT = Path(__file__).parents[4]

# State, timeout -> the verdicts by ascending age, with the policy's default values.
THRESHOLDS: dict[str, tuple[S, int, list[tuple[str, int]]]] = {
    "an hour": (S.ONGOING, HOUR_MS, [("long_running", 2_880_000), ("late", 3_615_000)]),
    "a default client: a warning would come after its abort": (S.ONGOING, 60_000, [("late", 75_000)]),
    "the shortest with a warning": (S.ONGOING, 120_001, [("long_running", 120_000), ("late", 135_001)]),
    "two-phase": (S.ONGOING, TWO_PHASE_TIMEOUT_MS, []),
    "prepared": (S.PREPARE_COMMIT, 60_000, [("stuck_prepare", 30_000)]),
    "prepared, two-phase": (S.PREPARE_ABORT, TWO_PHASE_TIMEOUT_MS, [("stuck_prepare", 30_000)]),
    **{f"idle: {state}": (state, 60_000, []) for state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.DEAD)},
    "fencing": (S.PREPARE_EPOCH_FENCE, 60_000, []),
}


def a_view(state: S, timeout_ms: int) -> CoordinatorView:
    return replace(transaction(1, state, ORDERS).view, timeout_ms=timeout_ms)


@pytest.mark.parametrize(("state", "timeout_ms", "expected"), THRESHOLDS.values(), ids=THRESHOLDS.keys())
def test_the_thresholds_of_a_state(state: S, timeout_ms: int, expected: list[tuple[str, int]]) -> None:
    assert list(thresholds(a_view(state, timeout_ms), POLICY, SCAN_MS)) == expected


POLICIES = {
    "late": (DetectionPolicy(late_buffer_ms=1), S.ONGOING, 60_000, ("late", 70_001)),
    "stuck": (DetectionPolicy(stuck_prepare_ms=3), S.PREPARE_ABORT, 60_000, ("stuck_prepare", 3)),
    "long running": (
        DetectionPolicy(long_running_fraction=0.5, long_running_min_ms=0),
        S.ONGOING,
        60_000,
        ("long_running", 30_000),
    ),
}


@pytest.mark.parametrize(("policy", "state", "timeout_ms", "first"), POLICIES.values(), ids=POLICIES.keys())
def test_the_configured_policy_decides(
    policy: DetectionPolicy, state: S, timeout_ms: int, first: tuple[str, int]
) -> None:
    found = thresholds(a_view(state, timeout_ms), policy, SCAN_MS)
    assert found[0] == first
    verdict, age_ms = first
    assert overdue(found, age_ms) is None
    passed = overdue(found, age_ms + 1)
    assert passed is not None
    assert passed.verdict == verdict


def test_the_table_is_in_the_order_of_rank() -> None:
    assert [row.verdict for row in VERDICTS] == sorted(Verdict, key=rank)
    assert rank(Verdict.HANGING) < rank(Verdict.STUCK_PREPARE) < rank(Verdict.LATE) < rank(Verdict.LONG_RUNNING)
    timed = [row for row in VERDICTS if row.age_rule is not None]
    severities = list(Severity)
    assert [severities.index(row.severity) for row in timed] == sorted(severities.index(row.severity) for row in timed)


def test_a_verdict_without_an_age_is_about_a_span_and_the_others_are_not() -> None:
    assert all((row.age_rule is None) is (row.family is Family.SPAN) for row in VERDICTS)
    assert [row.verdict for row in VERDICTS if row.needs_marker] == [Verdict.HANGING]


def test_a_timed_verdict_is_named_in_at_most_four_production_files() -> None:
    """A new verdict of this kind is a row of the table, not a search through the code."""
    code = [path for part in ("state", "sinks", "streaming", "src/txnwatch") for path in (ROOT / part).rglob("*.py")]
    for row in VERDICTS:
        if row.age_rule is not None:
            naming = [path for path in code if f"Verdict.{row.verdict.name}" in path.read_text(encoding="utf-8")]
            assert len(naming) <= 4, f"{row.verdict}: {naming}"
