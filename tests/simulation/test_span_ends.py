"""How a hang ended is true: also if the next transaction has absorbed it where nobody scans, between two looks."""

from __future__ import annotations

from collections import Counter
from unittest import mock

import pytest

from simulation.abort import run_with_abort
from simulation.mutants_of_sides import SIDES
from simulation.reader import WorldReader
from simulation.sides import ChangingSides
from simulation.span_ends import BETWEEN_LOOKS
from simulation.test_abort import LATE_OR_LOST
from simulation.world import Setting
from support.seeds import in_proportion
from txnwatch.state.evidence import ending

SEEDS = in_proportion(16)
_MOST_SEEDS = 60
WORLDS = [
    pytest.param(LATE_OR_LOST, WorldReader, 20, id="late or lost"),
    pytest.param(SIDES, ChangingSides, 130, id="sides"),
]


def problems(seed: int, setting: Setting, reader_of: type[WorldReader], seen: Counter[str] | None = None) -> list[str]:
    outcome = run_with_abort(seed, setting, reader_of, mode="off")
    if seen is not None:
        seen += outcome.seen
    return outcome.problems


@pytest.mark.parametrize(("setting", "reader_of", "first"), WORLDS)
def test_no_end_of_a_hang_is_false(setting: Setting, reader_of: type[WorldReader], first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, first + SEEDS):
        found = problems(seed, setting, reader_of, seen)
        assert not found, f"seed {seed}: {found}"
    assert SEEDS < 25 or seen[BETWEEN_LOOKS] > 0, seen


@pytest.mark.parametrize(("setting", "reader_of", "first"), WORLDS)
def test_that_data_of_a_newer_epoch_is_not_looked_at_is_found(
    setting: Setting, reader_of: type[WorldReader], first: int
) -> None:
    seeds = range(first, first + _MOST_SEEDS)
    with mock.patch.object(ending, "is_joined", return_value=False):
        found = next((seed for seed in seeds if "FALSE END" in str(problems(seed, setting, reader_of))), None)
    assert found is not None, f"the epoch of the data does not count, and {_MOST_SEEDS} seeds do not show it"
    assert not problems(found, setting, reader_of), "the seed fails without the planted bug, too"
