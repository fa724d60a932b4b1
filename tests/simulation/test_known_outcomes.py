"""Of two watchers one does not know the outcome of many hangs: it never replaces the outcome that the other one knows.

A planted bug lets one kind of event not wait: each must be found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import pytest

from simulation.abort import run_with_abort
from simulation.run import USUAL
from simulation.test_abort import LATE_OR_LOST
from simulation.two_watchers import run_two_watchers
from support.seeds import in_proportion
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.incidents.speakers import Silence
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs

RUNS = in_proportion(12)
_MOST_SEEDS = 20
IsKept = Callable[[Silence, IncidentEvent, TimestampMs], bool]


def test_unknown_replaces_no_outcome_that_the_other_watcher_knows() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        for setting in (USUAL, LATE_OR_LOST):
            outcome = run_two_watchers(seed, setting)
            assert not outcome.problems, f"seed {seed}: {outcome.problems}"
            seen += outcome.seen
    assert seen["second follows first"] > RUNS, seen
    assert seen["first follows second"] > RUNS, seen


def test_an_end_that_comes_late_has_the_outcome_at_last() -> None:
    for seed in range(RUNS):
        for setting in (USUAL, LATE_OR_LOST):
            outcome = run_two_watchers(seed, setting, slow=True)
            assert not outcome.problems, f"seed {seed}: {outcome.problems}"


def _unless(does_not_wait: Callable[[IncidentEvent], bool]) -> IsKept:
    is_kept = Silence.keep_back
    return lambda self, event, now_ms: is_kept(self, event, now_ms) and not does_not_wait(event)


class PlantedMethod(NamedTuple):
    """A method that is replaced, and a seed from which on it is found soon."""

    of: type
    method: str
    instead: Callable[..., bool]
    first: int


PLANTED: dict[str, PlantedMethod] = {
    "an end does not wait": PlantedMethod(Silence, "keep_back", _unless(lambda event: not event.is_open), 0),
    "a change does not wait": PlantedMethod(Silence, "keep_back", _unless(lambda event: event.is_open), 145),
    "a decision does not wait": PlantedMethod(Ledger, "leaves_decision", lambda *_: False, 80),
}


@pytest.mark.parametrize("name", PLANTED)
def test_an_event_that_does_not_wait_is_found(name: str) -> None:
    planted = PLANTED[name]

    def is_found(seed: int) -> bool:
        return any(run_two_watchers(seed, setting).problems for setting in (USUAL, LATE_OR_LOST))

    with mock.patch.object(planted.of, planted.method, planted.instead):
        seeds = range(planted.first, planted.first + _MOST_SEEDS)
        found = next((seed for seed in seeds if is_found(seed)), None)
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show it"
    assert not is_found(found)


def test_an_end_that_waits_for_ever_is_found() -> None:
    def is_found(seed: int) -> bool:
        outcome = run_with_abort(seed, LATE_OR_LOST, forging=True, beats=True)
        return any(problem.startswith("HIDDEN END") for problem in outcome.problems)

    with mock.patch.object(Silence, "ends_to_publish", return_value=[]):
        found = next((seed for seed in range(_MOST_SEEDS) if is_found(seed)), None)
    assert found is not None
    assert not is_found(found)
