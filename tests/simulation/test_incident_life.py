"""The table of the life of an incident: each step that matters is taken out, and the simulation finds it.

A client forges events all the time. After each batch a consumer of the topic must see what the ledger knows.
"""

from __future__ import annotations

from unittest import mock

import pytest

from simulation.abort import run_with_abort
from simulation.run import USUAL
from simulation.test_abort import LATE_OR_LOST
from txnwatch.state.incidents.life import LIFE, Happening, Known, NextStep, step

_MOST_SEEDS = 60

# The step that is planted instead of the right one, and a seed from which on it is found soon.
PLANTED: dict[str, tuple[Happening, dict[str, NextStep], int]] = {
    "what is confirmed is not opened": (Happening.CONFIRMED, {"nothing": NextStep.NOTHING}, 0),
    "an end of another writer is believed": (Happening.RECORD_ENDS, {"found": NextStep.NOTHING}, 0),
    "a record that differs is not corrected": (Happening.RECORD_DIFFERS, {"found": NextStep.NOTHING}, 0),
    "a record before the finding is not corrected": (Happening.RECORD_DIFFERS, {"claimed": NextStep.NOTHING}, 535),
    "an older record stays the last one": (Happening.RECORD_IS_OLDER, {"found": NextStep.NOTHING}, 0),
    "an older record stays behind an end": (Happening.RECORD_IS_OLDER, {"ended": NextStep.NOTHING}, 0),
    "a record of the same sequence stays the last one": (Happening.RECORD_HIDES_LAST, {"found": NextStep.NOTHING}, 34),
    "an end before which another record came is not published again": (
        *(Happening.RECORD_BEFORE_END, {"ended": NextStep.NOTHING}, 0),
    ),
    "what had a spent id is forgotten": (
        *(Happening.ID_IS_SPENT, {"found": NextStep.NOTHING, "claimed": NextStep.NOTHING}, 4),
    ),
    "the next transaction continues the incident": (
        *(Happening.ANOTHER_CONFIRMED, {"found": NextStep.ADOPT, "claimed": NextStep.ADOPT}, 0),
    ),
}


def _is_found(seed: int) -> bool:
    return any(run_with_abort(seed, setting, forging=True).problems for setting in (USUAL, LATE_OR_LOST))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_step_is_found(name: str) -> None:
    happens, steps, first = PLANTED[name]
    with mock.patch.dict(LIFE, {happens: LIFE[happens]._replace(**steps)}):
        found = next((seed for seed in range(first, first + _MOST_SEEDS) if _is_found(seed)), None)
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show it"
    assert not _is_found(found), "the seed fails without the planted step, too"


def test_an_incident_is_opened_only_if_none_is_open_and_ends_only_once() -> None:
    opens = {NextStep.OPEN, NextStep.END_AND_OPEN}
    ends = {NextStep.END, NextStep.END_AND_OPEN, NextStep.END_AND_READ_AGAIN}
    for happens in Happening:
        for known in Known:
            then = step(known, happens)
            is_open = known in {Known.CLAIMED, Known.FOUND}
            assert then not in ends or is_open, (happens, known)
            assert then not in opens or not is_open or then is NextStep.END_AND_OPEN, (happens, known)
