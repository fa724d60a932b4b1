"""An incident about a transaction ends with the end of this transaction, also if others of its id follow in a batch."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

from simulation.failed_appends import FAILED_APPEND
from simulation.mutants_of_ends import APPENDS_FAIL, SLOW
from simulation.run import report, run, shrink
from support.seeds import in_proportion

FIRST_SEED = int(os.environ.get("TXNWATCH_FIRST_SEED", "0"))
SEEDS, WITHOUT_FAULTS = in_proportion(25), in_proportion(12)


def test_no_end_of_a_transaction_is_false() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        outcome = run(seed, SLOW)
        assert not outcome.problems, report(shrink(outcome))
        seen += outcome.seen
    assert seen["transaction committed"] > SEEDS // 4
    assert seen["transaction aborted"] > SEEDS // 2


def test_no_end_is_false_if_appends_fail_and_stay() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        outcome = run(seed, APPENDS_FAIL)
        assert not outcome.problems, report(shrink(outcome))
        seen += outcome.seen
    assert seen[FAILED_APPEND] > 5 * SEEDS
    assert seen["transaction committed"] > SEEDS // 4
    assert seen["transaction aborted"] > SEEDS


def test_without_faults_every_end_is_known() -> None:
    seen: Counter[str] = Counter()
    for seed in range(WITHOUT_FAULTS):
        seen += run(seed, replace(SLOW, faults=frozenset())).seen
    assert seen["transaction committed"] + seen["transaction aborted"] > 2 * WITHOUT_FAULTS
    assert not {"transaction no_longer_open", "transaction moved_on"} & seen.keys()
