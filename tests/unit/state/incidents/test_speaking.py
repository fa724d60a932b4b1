"""How long an instance was silent says whether another one has spoken: the only instance is never silent for long."""

from __future__ import annotations

import pytest

from txnwatch.state.incidents.speaking import LONGEST_SILENCE_MS, SESSION_MS, UNHEARD_MS, Speaking
from txnwatch.state.model.ports import LeaseView

HELD, ANOTHERS, UNKNOWN = LeaseView.HELD, LeaseView.ANOTHERS, LeaseView.UNKNOWN
LOOK_MS = 500
Looks = list[tuple[int, LeaseView]]


def looks(lease: LeaseView, for_ms: int, each_ms: int = LOOK_MS) -> Looks:
    return [(each_ms, lease)] * (for_ms // each_ms)


FIRST: Looks = [(0, UNKNOWN)]
SILENCES: dict[str, tuple[Looks, bool]] = {
    "a start that waits for the session of its former process": ([*looks(ANOTHERS, SESSION_MS), (500, HELD)], False),
    "a start without a coordinator": ([*FIRST, *looks(UNKNOWN, UNHEARD_MS)], False),
    "a start without a coordinator, with long rounds": (
        [*FIRST, *looks(UNKNOWN, LONGEST_SILENCE_MS, SESSION_MS)],
        False,
    ),
    "a start whose first micro-batches take minutes": (
        [*FIRST, *looks(ANOTHERS, 600_000, 200_000), (500, HELD)],
        False,
    ),
    "a start beside a speaker, an hour ago": ([*looks(ANOTHERS, 3_600_000), (500, HELD)], True),
    "a short loss": ([(0, HELD), *looks(ANOTHERS, UNHEARD_MS), (500, HELD)], False),
    "a long loss": ([(0, HELD), *looks(ANOTHERS, LONGEST_SILENCE_MS), (500, HELD)], True),
    "a pause of the process": ([(0, HELD), (LONGEST_SILENCE_MS + 1, HELD)], True),
    "an hour of speaking": ([(0, HELD), *looks(HELD, 3_600_000)], False),
    "two long losses": ([(0, HELD), *([*looks(ANOTHERS, 70_000), (500, HELD)] * 2)], True),
}


@pytest.mark.parametrize("name", SILENCES)
def test_a_silence_that_is_longer_than_the_law_allows_one_alone_is_counted(name: str) -> None:
    happens, expected = SILENCES[name]
    speaking, now_ms = Speaking(), 10**9
    for after_ms, lease in happens:
        now_ms += after_ms
        speaking.look(lease, now_ms)
    assert speaking.speaks
    assert bool(speaking.silences) is expected
