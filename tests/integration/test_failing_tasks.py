"""Tasks that fail, executors that are killed, state that moves: every batch emits what a plain run emits.

The facts come from a synthetic source, so that every attempt at a batch reads the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.failing_tasks import WAYS, Plan, executed, failed, handled, plain

TESTS = Path(__file__).resolve().parents[1]
MEMORY_MB = 1024


def assert_same(found: dict[int, list[str]], batches: range) -> None:
    expected = plain(batches.stop - 1)
    assert found.keys() >= set(batches)
    assert [batch for batch in batches if found[batch] != expected[batch]] == []


def expected_failures(plan: Plan) -> set[tuple[int, str]]:
    failures = ((batch, plan.failure_of(batch)) for batch in range(1, plan.batches + 1))
    return {(batch, failure.way) for batch, failure in failures if failure is not None}


def test_a_plain_run_has_candidates_ends_and_open_transactions() -> None:
    text = str(plain(10))
    assert all(name in text for name in ("SpanCandidate(", "SpanEnded(", "OpenSpan("))


@pytest.mark.long
def test_failed_attempts_change_no_output(tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), "local[2,4]", batches=10, seed=1)
    assert_same(executed(plan, TESTS), range(1, plan.batches + 1))
    assert failed(tmp_path) >= expected_failures(plan)
    assert {way for _, way in failed(tmp_path)} == set(WAYS)


@pytest.mark.long
def test_killed_executors_change_no_output(tmp_path: Path) -> None:
    plan = Plan(str(tmp_path), f"local-cluster[2,1,{MEMORY_MB}]", batches=24, seed=2, kills=(6, 14))
    assert_same(executed(plan, TESTS), range(1, plan.batches + 1))
    assert failed(tmp_path) >= expected_failures(plan)
    executors = {bucket: {row.executor for row in handled(tmp_path) if row.bucket == bucket} for bucket in range(16)}
    assert all(len(of_bucket) > 1 for of_bucket in executors.values()), "every bucket has moved"


@pytest.mark.long
def test_a_restart_with_more_executors_continues_from_the_checkpoint(tmp_path: Path) -> None:
    one = Plan(str(tmp_path), f"local-cluster[1,1,{MEMORY_MB}]", batches=8)
    assert_same(executed(one, TESTS), range(1, one.batches + 1))
    two = Plan(str(tmp_path), f"local-cluster[2,1,{MEMORY_MB}]", batches=18, seed=3)
    assert_same(executed(two, TESTS), range(one.batches + 2, two.batches + 1))
    later = [row for row in handled(tmp_path) if row.batch > one.batches + 1]
    assert len({row.executor for row in later}) > 1, "both executors have worked"
