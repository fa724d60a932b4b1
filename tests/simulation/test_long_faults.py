"""Faults that last, each alone and among all other faults: no verdict is false, and no hang is missed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import pytest

from simulation import faults, shared_ids
from simulation.long_faults import LOG_AWAY, LONG_FAULTS, MORE_LOGS, NOBODY_ENDS
from simulation.mutants_of_long_faults import AWAY, AWAY_AND_SHARED, MORE_AND_QUICK, MORE_AND_SLOW, NOBODY
from simulation.mutants_of_shared_ids import SHARED_AND_AWAY
from simulation.oracle import TOLD_WITHOUT
from simulation.restarts import STARTS_AGAIN
from simulation.run import USUAL, report, run, shrink
from simulation.world import Setting
from support.seeds import in_proportion

OF_ONE_DRIVER = replace(USUAL, faults=USUAL.faults - {STARTS_AGAIN})
ALL_FAULTS = replace(USUAL, faults=USUAL.faults | {*LONG_FAULTS})
SETTINGS = {
    LOG_AWAY: (AWAY, 40, {LOG_AWAY, TOLD_WITHOUT}),
    "and two ids with one producer id": (AWAY_AND_SHARED, 40, {LOG_AWAY, TOLD_WITHOUT, "two ids, candidate unknown"}),
    MORE_LOGS: (MORE_AND_QUICK, 20, {MORE_LOGS, "hang behind a stale view"}),
    f"{MORE_LOGS}, slowly": (MORE_AND_SLOW, 20, {MORE_LOGS}),
    NOBODY_ENDS: (NOBODY, 20, {NOBODY_ENDS, "cover in doubt"}),
    "all faults": (ALL_FAULTS, 60, {*LONG_FAULTS}),
}


@pytest.mark.parametrize(("setting", "usual", "needed"), SETTINGS.values(), ids=SETTINGS.keys())
def test_no_verdict_is_false_and_no_hang_is_missed(setting: Setting, usual: int, needed: set[str]) -> None:
    seen: Counter[str] = Counter()
    seeds = in_proportion(usual)
    for seed in range(seeds):
        outcome = run(seed, setting)
        assert not outcome.problems, report(shrink(outcome))
        seen += outcome.seen
    assert seeds < usual or seen.keys() >= needed, f"never happened: {sorted(needed - seen.keys())}"


@pytest.mark.parametrize(
    ("seed", "setting"),
    [(2_002_249, SHARED_AND_AWAY), (20_046_036, OF_ONE_DRIVER)],
    ids=["the other id has it already", "the other id gets it later"],
)
def test_what_a_restored_cluster_can_hide_is_an_id_that_begins_unread(seed: int, setting: Setting) -> None:
    """The one case in which the log that was read is not enough (docs/decisions/0053)."""
    assert not run(seed, setting).problems
    with (
        mock.patch.object(faults, "has_unread_owner", return_value=False),
        mock.patch.object(shared_ids, "unreadable_ids", return_value=set()),
    ):
        assert any("FALSE" in problem for problem in run(seed, setting).problems)
