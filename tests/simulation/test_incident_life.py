"""The table of the life of an incident: each step that matters is taken out, and the simulation finds it.

A client forges events all the time. After each batch a consumer of the topic must see what the ledger knows.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import pytest

from simulation.abort import run_with_abort
from simulation.run import USUAL
from simulation.test_abort import LATE_OR_LOST
from simulation.world import Setting
from txnwatch.state.incidents.life import LIFE, Happening, Known, NextStep, step

_MOST_SEEDS = 60


class Planted(NamedTuple):
    """A step instead of the right one, and a seed from which on it is found soon.

    Attributes:
        forging: whether a client forges events.
        hides: whether it also writes records that are no events.
        mode: of the automatic abort, whose decisions are published behind any record.
    """

    happens: Happening
    steps: dict[str, NextStep]
    first: int = 0
    forging: bool = True
    hides: bool = False
    mode: str = "on"
    settings: tuple[Setting, ...] = (USUAL, LATE_OR_LOST)

    def is_found(self, seed: int) -> bool:
        """Whether one of the worlds of a seed shows it."""
        how: dict[str, Any] = {"forging": self.forging, "hides": self.hides, "mode": self.mode}
        return any(run_with_abort(seed, setting, **how).problems for setting in self.settings)


H, NO_STEP = Happening, NextStep.NOTHING
PLANTED: dict[str, Planted] = {
    "what is confirmed is not opened": Planted(H.CONFIRMED, {"nothing": NO_STEP}),
    "a hang stays a stray write": Planted(
        *(H.CONFIRMED_OTHERWISE, {"found": NO_STEP, "claimed": NO_STEP}, 48), forging=False
    ),
    "the next transaction continues the incident": Planted(
        H.ANOTHER_CONFIRMED, {"found": NextStep.ADOPT, "claimed": NextStep.ADOPT}, 62
    ),
    "a stray write is not told": Planted(H.STRAY_WRITE, {"nothing": NO_STEP}, 6, forging=False),
    "a decision is not told": Planted(H.DECIDED, {"found": NO_STEP, "claimed": NO_STEP}, forging=False),
    "a change is not told": Planted(H.CHANGED, {"found": NO_STEP, "claimed": NO_STEP}, forging=False),
    "an outcome that no longer counts stays": Planted(
        H.WITHDRAWN, {"found": NO_STEP}, 1524, forging=False, settings=(LATE_OR_LOST,)
    ),
    "an end is not told": Planted(H.OVER, {"found": NO_STEP, "claimed": NO_STEP}, forging=False),
    "a second incident about a transaction stays open": Planted(H.DOUBLED, {"found": NO_STEP, "claimed": NO_STEP}, 409),
    "a live transaction is not defended": Planted(H.CONTRADICTED, {"claimed": NO_STEP}, 165),
    "a record of another writer is believed": Planted(H.FOREIGN_RECORD, {"found": NO_STEP}),
    "a record after our end stays the last one": Planted(H.FOREIGN_RECORD, {"ended": NO_STEP}),
    "what had a spent id is forgotten": Planted(H.ID_IS_SPENT, {"found": NO_STEP, "claimed": NO_STEP}, 4),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_step_is_found(name: str) -> None:
    planted = PLANTED[name]
    with mock.patch.dict(LIFE, {planted.happens: LIFE[planted.happens]._replace(**planted.steps)}):
        found = next(
            (seed for seed in range(planted.first, planted.first + _MOST_SEEDS) if planted.is_found(seed)), None
        )
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show it"
    assert not planted.is_found(found), "the seed fails without the planted step, too"


def test_a_step_is_planted_in_each_row_that_has_one() -> None:
    with_steps = {happens for happens in Happening if any(step(known, happens) is not NO_STEP for known in Known)}
    # A takeover follows two that have spoken, so no world keeps two ids; test_names_of_hangs.py shows the step.
    assert {planted.happens for planted in PLANTED.values()} == with_steps - {H.EARLIER_ID}


def test_an_incident_is_opened_only_if_none_is_open_and_ends_only_once() -> None:
    opens = {NextStep.OPEN, NextStep.END_AND_OPEN}
    ends = {NextStep.END, NextStep.END_AND_OPEN}
    for happens in Happening:
        for known in Known:
            then = step(known, happens)
            is_open = known in {Known.CLAIMED, Known.FOUND}
            assert then not in ends or is_open, (happens, known)
            assert then not in opens or not is_open or then is NextStep.END_AND_OPEN, (happens, known)
