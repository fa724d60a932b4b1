"""Partitions that change their sides at random lose nothing and prove nothing false."""

from __future__ import annotations

from collections import Counter

from simulation.mutants_of_sides import SIDES
from simulation.run import USUAL, report, run, shrink
from simulation.sides import ChangingSides
from support.seeds import in_proportion


def test_a_change_of_sides_proves_nothing_false_and_loses_nothing() -> None:
    seen: Counter[str] = Counter()
    for setting, seeds in ((USUAL, in_proportion(40)), (SIDES, in_proportion(25))):
        for seed in range(seeds):
            outcome = run(seed, setting, ChangingSides)
            assert not outcome.problems, report(shrink(outcome, ChangingSides))
            seen += outcome.seen
    assert {"span hangs", "ended: marker", "ended: census", "a scan ends", "a scan begins again"} <= seen.keys()


def test_a_topic_made_anew_while_it_is_looked_at_is_a_new_one() -> None:
    assert run(482, USUAL, ChangingSides).problems == []
