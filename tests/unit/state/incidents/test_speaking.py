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
# What the coordinator answers, and whether another instance is heard that says it speaks.
ALONE: dict[str, Looks] = {
    "a start that waits for the session of its former process": [*looks(ANOTHERS, SESSION_MS), (500, HELD)],
    "a start without a coordinator": [*FIRST, *looks(UNKNOWN, UNHEARD_MS)],
    "a start without a coordinator, with long rounds": [*FIRST, *looks(UNKNOWN, LONGEST_SILENCE_MS, SESSION_MS)],
    "a start whose first micro-batches take minutes": [*FIRST, *looks(ANOTHERS, 600_000, 200_000), (500, HELD)],
    "a long micro-batch while the coordinator is away": [(0, HELD), (8_000, UNKNOWN), *looks(UNKNOWN, UNHEARD_MS)],
    "a pause of minutes": [(0, HELD), (180_000, HELD)],
    "an hour in which a stranger has the lease": [(0, HELD), *looks(ANOTHERS, 3_600_000), (500, HELD)],
    "an hour of speaking": [(0, HELD), *looks(HELD, 3_600_000)],
}
BESIDE_A_SPEAKER: dict[str, tuple[Looks, bool]] = {
    "a start, an hour ago": ([*looks(ANOTHERS, 3_600_000), (500, HELD)], True),
    "a short loss": ([(0, HELD), *looks(ANOTHERS, UNHEARD_MS), (500, HELD)], False),
    "a long loss": ([(0, HELD), *looks(ANOTHERS, LONGEST_SILENCE_MS), (500, HELD)], True),
    "a pause of minutes, and then silence": ([(0, HELD), (180_000, ANOTHERS), (500, ANOTHERS), (500, HELD)], True),
    "an hour of speaking beside one that speaks, too": ([(0, HELD), *looks(HELD, 3_600_000)], False),
}


def silences(happens: Looks, *, is_heard: bool) -> int:
    speaking, now_ms = Speaking(), 10**9
    for after_ms, lease in happens:
        now_ms += after_ms
        speaking.look(lease, now_ms)
        if is_heard:
            speaking.hear(now_ms)
    assert speaking.speaks
    return speaking.silences


@pytest.mark.parametrize("name", ALONE)
def test_who_hears_no_other_speaker_is_taken_as_the_only_one(name: str) -> None:
    assert silences(ALONE[name], is_heard=False) == 0


@pytest.mark.parametrize("name", BESIDE_A_SPEAKER)
def test_who_hears_another_one_and_is_silent_for_long_is_not_the_only_one(name: str) -> None:
    happens, expected = BESIDE_A_SPEAKER[name]
    assert bool(silences(happens, is_heard=True)) is expected
