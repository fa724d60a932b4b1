"""Our own clock is set forward and back: a bucket finds the same at the same barrier as if nobody had touched it."""

from __future__ import annotations

import random
from collections import Counter
from unittest import mock

import pytest
from msgspec.structs import replace

from support.changing_clocks import DEPENDS_ON_EVALUATIONS, Batches, Run
from support.seeds import in_proportion
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.findings import CoverInDoubt, Finding, OwnerInDoubt
from txnwatch.state.model.verdicts import Verdict

SEEDS, BATCHES = in_proportion(16), 150
_AWAY_MS = 10**12  # so that no clock shows a time before 1970
SET_BY_MS = (-3_600_000, -90_000, -2_000, 2_000, 90_000, 3_600_000)


class OurClock:
    """Shows the facts as a machine has them whose clock is set now and then."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._offset_ms = _AWAY_MS

    def shown(self, facts: list[Fact]) -> list[Fact]:
        set_by_ms = self._rng.choice(SET_BY_MS) if self._rng.random() < 0.1 else 0
        self._offset_ms += set_by_ms
        return [self._shown(fact, set_by_ms) for fact in facts]

    def _shown(self, fact: Fact, set_by_ms: int) -> Fact:
        if isinstance(fact, Barrier):
            return replace(
                fact,
                data_listed_ms=fact.data_listed_ms + self._offset_ms,
                coordinator_listed_ms=fact.coordinator_listed_ms + self._offset_ms,
                clocks={broker: clock.with_ours_set(self._offset_ms) for broker, clock in fact.clocks.items()},
                clock_set_by_ms=set_by_ms,
            )
        if hasattr(fact, "listed_ms"):
            return replace(fact, listed_ms=fact.listed_ms + self._offset_ms)
        return fact


def without_our_times(findings: list[Finding]) -> list[object]:
    """Ages are differences, so they stay; the times of our clock differ."""
    return [
        (
            type(finding).__name__,
            *(getattr(finding, name, None) for name in ("verdict", "producer_id", "partition", "age_ms", "overdue_ms")),
        )
        for finding in findings
        if not isinstance(finding, DEPENDS_ON_EVALUATIONS) and not _asks_again(finding)
    ]


def _asks_again(finding: Finding) -> bool:
    """When a question is repeated depends on when a producer is evaluated; a clock that is set has all evaluated."""
    return isinstance(finding, OwnerInDoubt | CoverInDoubt) and finding.candidate.span.emission is not None


def run() -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        batches, clock = Batches(seed), OurClock(seed)
        untouched, ours = Run(of_all=False), Run(of_all=False)
        for _ in range(BATCHES):
            facts = batches.facts()
            expected, found = (
                without_our_times(untouched.batch(facts)),
                without_our_times(ours.batch(clock.shown(facts))),
            )
            assert found == expected, (seed, batches.number)
            seen.update(str(one[1] or one[0]) for one in expected)  # type: ignore[index]
    return seen


def test_findings_do_not_depend_on_our_clock() -> None:
    seen = run()
    expected = (Verdict.LATE, Verdict.STUCK_PREPARE, Verdict.LONG_RUNNING, Verdict.HANGING)
    assert min(seen[str(name)] for name in expected) > 0, seen


def test_times_that_are_not_moved_are_noticed() -> None:
    with mock.patch.object(buckets, "move_times"), pytest.raises(AssertionError):
        run()
