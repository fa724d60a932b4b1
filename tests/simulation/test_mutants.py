"""Every planted bug makes the simulation fail: what passes here proves that the simulation can fail."""

from __future__ import annotations

import pytest

from simulation.clock_mutants import CLOCK_MUTANTS
from simulation.mutants import MUTANTS
from simulation.mutants_of_ends import MUTANTS_OF_ENDS
from simulation.mutants_of_followers import MUTANTS_OF_FOLLOWERS
from simulation.mutants_of_idleness import MUTANTS_OF_IDLENESS
from simulation.mutants_of_long_faults import MUTANTS_OF_LONG_FAULTS
from simulation.mutants_of_looks import MUTANTS_OF_LOOKS
from simulation.mutants_of_reading import MUTANTS_OF_READING
from simulation.mutants_of_shared_ids import MUTANTS_OF_SHARED_IDS
from simulation.mutants_of_sides import MUTANTS_OF_SIDES
from simulation.reader import WorldReader
from simulation.run import run
from simulation.world import Setting

_MOST_SEEDS = 600
_ALL = (
    *MUTANTS,
    *CLOCK_MUTANTS,
    *MUTANTS_OF_READING,
    *MUTANTS_OF_IDLENESS,
    *MUTANTS_OF_SHARED_IDS,
    *MUTANTS_OF_ENDS,
    *MUTANTS_OF_LONG_FAULTS,
    *MUTANTS_OF_LOOKS,
    *MUTANTS_OF_SIDES,
    *MUTANTS_OF_FOLLOWERS,
)


@pytest.mark.parametrize(("mutant", "setting", "first"), _ALL, ids=[mutant.__name__ for mutant, *_ in _ALL])
def test_a_planted_bug_is_found(mutant: type[WorldReader], setting: Setting, first: int) -> None:
    found = next((seed for seed in range(first, first + _MOST_SEEDS) if run(seed, setting, mutant).problems), None)
    assert found is not None, f"{mutant.__name__} went through {_MOST_SEEDS} seeds: {mutant.__doc__}"
    assert not run(found, setting).problems, "the seed fails without the planted bug, too"
