"""No watcher ends a true incident because the clock of its machine, of another watcher or of a broker is wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation.mutants_of_watchers import MUTANTS_OF_WATCHERS, PlantedRule
from simulation.run import USUAL
from simulation.test_abort import LATE_OR_LOST
from simulation.watchers_clocks import run_with_own_clocks
from support.seeds import in_proportion

RUNS = in_proportion(8)
SETTINGS = (USUAL, LATE_OR_LOST)
_MOST_SEEDS = 100


def test_no_true_incident_is_refuted_whatever_the_clocks_show() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        for setting in SETTINGS:
            outcome = run_with_own_clocks(seed, setting)
            assert not outcome.problems, f"seed {seed}: {outcome.problems}"
            seen += outcome.seen
    assert seen["open, of first: late"] > 0, seen
    assert seen["open, of second: hanging"] > RUNS, seen


@pytest.mark.parametrize(("mutant", "first"), MUTANTS_OF_WATCHERS)
def test_a_planted_bug_is_found(mutant: type[PlantedRule], first: int) -> None:
    def is_found(seed: int) -> bool:
        outcomes = (run_with_own_clocks(seed, setting) for setting in SETTINGS)
        return any(problem.startswith("FALSE REFUTATION") for outcome in outcomes for problem in outcome.problems)

    with mutant.patch():
        found = next((seed for seed in range(first, first + _MOST_SEEDS) if is_found(seed)), None)
    assert found is not None, f"{mutant.__name__}, and {_MOST_SEEDS} seeds do not show it"
    assert not is_found(found)
