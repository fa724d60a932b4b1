"""Every planted bug turns the simulation red: what passes here proves that the simulation can fail."""

from __future__ import annotations

import pytest

from simulation.mutants import MUTANTS
from simulation.reader import Reader
from simulation.run import run

_MOST_SEEDS = 600


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: type[Reader]) -> None:
    found = next((seed for seed in range(_MOST_SEEDS) if run(seed, reader_of=mutant).problems), None)
    assert found is not None, f"{mutant.__name__} went through {_MOST_SEEDS} seeds: {mutant.__doc__}"
