"""Whatever is lost of the coordinators' log before it is read, no outcome is false and no transaction is harmed."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from simulation.lives import live
from simulation.outcome_mutants import PLANTED, Planted
from support.seeds import in_proportion

LIVES = in_proportion(25)
FIRST_SEED = int(os.environ.get("TXNWATCH_FIRST_SEED", "0"))


def test_no_outcome_is_false_and_none_is_switched_off() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + LIVES):
        outcome = live(seed)
        assert not outcome.problems, f"seed {seed}: {outcome.problems[0]}\n" + "\n".join(outcome.timeline)
        seen += outcome.seen
    for needed in (
        "a client goes on without its record",
        "aborts verified",
        "an operator fences",
        "doubt: began_before_election",
        "doubt: log_election",
        "outcome: abort",
        "outcome: none",
        "unread records are lost",
    ):
        assert seen[needed] > 0, seen


def test_no_outcome_is_false_where_a_leader_epoch_survives_a_power_failure() -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + LIVES):
        outcome = live(seed, keeps_epochs=True)
        assert not outcome.problems, f"seed {seed}: {outcome.problems[0]}\n" + "\n".join(outcome.timeline)
        seen += outcome.seen
    for needed in (
        "a client goes on without its record",
        "aborts verified",
        "doubt: leader_not_watched",
        "doubt: listing_awaited",
        "outcome found later: abort",
        "tail lost under one leader epoch",
    ):
        assert seen[needed] > 0, seen


@pytest.mark.parametrize(("planted", "seed"), PLANTED, ids=[planted.__name__ for planted, _ in PLANTED])
def test_a_planted_bug_is_found(planted: Planted, seed: int) -> None:
    assert live(seed).problems == [], "the seed fails without the planted bug, too"
    with planted():
        assert live(seed).problems != [], planted.__doc__
