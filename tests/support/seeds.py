"""How many random examples a test runs: seeds of a simulation, logs, examples of hypothesis.

`make test` repeats the same examples in each run, so it has few of them. `make long` and `make nightly` run more:
TXNWATCH_SEEDS is the number for the first test of the simulation (simulation/test_simulation.py), and every other
number is in proportion to it.
"""

from __future__ import annotations

import os

USUAL = 150
SEEDS = int(os.environ.get("TXNWATCH_SEEDS", str(USUAL)))


def in_proportion(usual: int) -> int:
    """How many examples a test runs now that has `usual` examples in `make test`."""
    return max(1, usual * SEEDS // USUAL)
