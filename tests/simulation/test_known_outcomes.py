"""Of two watchers one speaks, and one does not know the outcome of many hangs: no known outcome is lost.

A planted bug takes out one rule of speaking: each must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest

from simulation.run import USUAL
from simulation.test_abort import LATE_OR_LOST
from simulation.two_watchers import run_two_watchers
from support.seeds import in_proportion
from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.incidents.own_findings import OwnFindings
from txnwatch.state.incidents.untold import UntoldIncidents

RUNS = in_proportion(8)
_MOST_SEEDS = 20


@pytest.mark.parametrize("faulty", [False, True])
def test_one_voice_tells_everything_once_whoever_has_it(*, faulty: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        for setting in (USUAL, LATE_OR_LOST):
            outcome = run_two_watchers(seed, setting, faulty=faulty)
            assert not outcome.problems, f"seed {seed}: {outcome.problems}"
            seen += outcome.seen
    assert seen["second follows first"] > 0, seen
    assert seen["first follows second"] > 0, seen
    assert all(seen[f"lease: {what}"] > 0 for what in ("killed", "awake again", "coordinator away") if faulty), seen


def test_a_forger_beside_them_harms_nothing_and_hides_nothing_for_ever() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        for setting in (USUAL, LATE_OR_LOST):
            outcome = run_two_watchers(seed, setting, faulty=True, forging=True)
            assert not outcome.problems, f"seed {seed}: {outcome.problems}"
            seen += outcome.seen
    assert seen["first follows the forger"] > RUNS, seen
    assert seen["second follows the forger"] > RUNS, seen


class PlantedMethod(NamedTuple):
    """A method of the product that is replaced, and a seed from which on it is found soon."""

    of: type
    method: str
    instead: Callable[..., Any] | property
    first: int = 0


class _NothingStays(set[str]):
    def add(self, _: str) -> None:
        """Keeps nothing."""


_begin = OwnFindings.__post_init__


def _without_stray_writes(self: OwnFindings, before: StoredFindings | None) -> None:
    _begin(self, before)
    self.stray_writes = _NothingStays()


PLANTED: dict[str, PlantedMethod] = {
    "what was not told is forgotten": PlantedMethod(UntoldIncidents, "keep", lambda *_: None, 20),
    "what was never published is told as an update": PlantedMethod(UntoldIncidents, "take_opening", lambda *_: None, 5),
    "what the speaker has told is told again": PlantedMethod(UntoldIncidents, "told", lambda *_: None),
    "the outcome of the former speaker is dropped": PlantedMethod(Book, "hear_outcome", lambda *_: None, 71),
    "two that speak do not hear each other": PlantedMethod(Ledger, "hears", lambda self, _: not self.speaks, 38),
    "what another instance has told is not taken over": PlantedMethod(Book, "adopt", lambda *_: None),
    "a stray write is nobody's own finding": PlantedMethod(OwnFindings, "__post_init__", _without_stray_writes, 151),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_rule_that_is_taken_out_is_found(name: str) -> None:
    def is_found(seed: int) -> bool:
        return any(run_two_watchers(seed, setting, faulty=True).problems for setting in (USUAL, LATE_OR_LOST))

    planted = PLANTED[name]
    with mock.patch.object(planted.of, planted.method, planted.instead):
        seeds = range(planted.first, planted.first + _MOST_SEEDS)
        found = next((seed for seed in seeds if is_found(seed)), None)
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show it"
    assert not is_found(found)
