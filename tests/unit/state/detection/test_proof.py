"""The table of the proof is complete, and its phases are stored without loss."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from txnwatch.state.detection.proof import (
    PHASE_MEANS,
    TRANSITIONS,
    BarrierShows,
    Output,
    Phase,
    in_phase,
    phase_of,
)
from txnwatch.state.model.transaction import Span

SPAN = Span("one", 5, 0, 0, 9, 0, 0, 1)
AFTER_A_FIRST_LOOK = {Phase.UNOWNED, Phase.HANGING, Phase.UNOWNED_AGAIN}
STILL_OPEN = {BarrierShows.HELD_STILL_OPEN, BarrierShows.UNOWNED_STILL_OPEN}
HELD = {BarrierShows.HELD, BarrierShows.HELD_STILL_OPEN}


def test_every_phase_has_a_cell_for_all_that_a_barrier_can_show() -> None:
    possible = {
        (phase, shows)
        for phase in Phase
        for shows in BarrierShows
        if phase in AFTER_A_FIRST_LOOK or shows not in STILL_OPEN
    }
    assert TRANSITIONS.keys() == possible
    assert PHASE_MEANS.keys() == set(Phase)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("before", Phase)
def test_a_phase_is_stored_and_read_back_whatever_the_phase_before(before: Phase, phase: Phase) -> None:
    span = in_phase(in_phase(SPAN, before, 3), phase, 7)
    assert phase_of(span) is phase
    assert (span.uncovered_at is not None) is (phase in AFTER_A_FIRST_LOOK)


def test_the_first_look_keeps_its_barrier_until_the_proof_starts_again() -> None:
    unowned = in_phase(SPAN, Phase.UNOWNED, 3)
    assert in_phase(unowned, Phase.HANGING, 7).uncovered_at == 3
    held = in_phase(replace(unowned, reseen_at=4), Phase.OPEN, 7)
    assert (held.uncovered_at, held.reseen_at) == (None, None)
    assert in_phase(held, Phase.UNOWNED, 8).uncovered_at == 8


@pytest.mark.parametrize(("phase", "shows"), TRANSITIONS)
def test_only_a_second_look_without_an_owner_at_open_data_gives_a_candidate(phase: Phase, shows: BarrierShows) -> None:
    after, output = TRANSITIONS[phase, shows]
    is_second = phase in AFTER_A_FIRST_LOOK and shows is BarrierShows.UNOWNED_STILL_OPEN
    assert (output is Output.CANDIDATE) is is_second
    assert (after in AFTER_A_FIRST_LOOK) is (shows not in HELD), "a live transaction that holds the span voids the look"


@pytest.mark.parametrize(("phase", "shows"), TRANSITIONS)
def test_a_reported_phase_never_becomes_unreported(phase: Phase, shows: BarrierShows) -> None:
    """Its end is emitted, so a phase that was reported never goes back to one that was not."""
    silent = {Phase.OPEN, Phase.UNOWNED}
    after, output = TRANSITIONS[phase, shows]
    if phase not in silent:
        assert after not in silent
    elif after not in silent:
        assert output in {Output.CANDIDATE, Output.STRAY_WRITE}
