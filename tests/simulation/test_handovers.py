"""Of two instances one tells everything once, wherever the lease goes; each rule is taken out, and it is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from simulation.divided_topics import run_divided
from simulation.handovers import HandoverWorld, run_handovers
from support.seeds import in_proportion
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents import untold
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.ledger import Ledger
from txnwatch.state.incidents.speaking import WHOLE
from txnwatch.state.incidents.untold import UntoldIncidents
from txnwatch.state.incidents.wanted import AskToSpeak, IsTopicRead, Wanted, Way
from txnwatch.state.model.incident import IncidentEvent

Planted = Callable[[], Any]
RUNS, _MOST_SEEDS = in_proportion(30), 20
_WAYS, _CLEAR = RunningLedger.ways, TopicOutbox.clear


def test_everything_is_told_once_wherever_the_lease_goes() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        world = run_handovers(seed)
        assert not world.problems, f"seed {seed}: {world.problems}"
        seen += world.seen
    assert min(seen[f"told by {name}"] for name in ("first", "second")) > RUNS, seen


def _always_speaks(self: RunningLedger) -> dict[type[Wanted[Any]], Way]:
    return {**_WAYS(self), AskToSpeak: lambda _: WHOLE}


def _one_reign(self: RunningLedger) -> dict[type[Wanted[Any]], Way]:
    return {**_WAYS(self), AskToSpeak: lambda _: self.role()._replace(tenure=0)}


def _read_in_any_case(self: RunningLedger) -> dict[type[Wanted[Any]], Way]:
    return {**_WAYS(self), IsTopicRead: lambda _: True}


def _lost(self: TopicOutbox) -> list[IncidentEvent]:
    _CLEAR(self)
    return []


def _nothing(*_: object, **__: object) -> None:
    pass


def _planted(target: object, name: str, instead: object) -> Planted:
    return lambda: mock.patch.object(target, name, instead)


# What is said, how it is planted, and the first seed that is tried.
PLANTED: dict[str, tuple[str, Planted, int]] = {
    "the gate is always open": ("SILENT", _planted(RunningLedger, "ways", _always_speaks), 0),
    "what is found in silence is dropped": ("LOST", _planted(UntoldIncidents, "keep", _nothing), 0),
    "a record of another writer is left": ("FORGED", _planted(UntoldIncidents, "mark", _nothing), 9),
    "the pause between two answers does not grow": ("ARGUING", _planted(untold, "LONGEST_PAUSE_MS", 0), 139),
    "the take-over drops open incidents": ("TWICE", _planted(Book, "adopt", _nothing), 0),
    "what was never on the topic is told as a change": (
        "NOT OPENED",
        _planted(IncidentStore, "top", IncidentStore.sequence),
        0,
    ),
    "the outcome of the former speaker is dropped": ("REPLACED", _planted(Book, "hear_outcome", _nothing), 0),
    "a lease is handed over without a last delivery": (
        "NOT FLUSHED",
        _planted(TopicOutbox, "deliver_last", _nothing),
        187,
    ),
    "a lease that is regained counts as never lost": ("TWICE", _planted(RunningLedger, "ways", _one_reign), 0),
    "a take-over does not wait for the topic": ("TWICE", _planted(RunningLedger, "ways", _read_in_any_case), 208),
    "what waits for the topic is dropped with the lease": ("NOT OPENED", _planted(TopicOutbox, "clear", _lost), 22),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_rule_is_found(name: str) -> None:
    assert_found(run_handovers, name, *PLANTED[name])


def assert_found(run: Callable[[int], HandoverWorld], name: str, kind: str, planted: Planted, first: int) -> None:
    with planted():
        worlds = ((seed, run(seed).problems) for seed in range(first, first + _MOST_SEEDS))
        found = next((seed for seed, problems in worlds if any(problem.startswith(kind) for problem in problems)), None)
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show {kind}"
    assert not run(found).problems, "the seed fails without the planted rule, too"


def test_two_watchers_with_other_topics_tell_what_both_know_once() -> None:
    for seed in range(RUNS // 3):
        world = run_divided(seed)
        assert not world.problems, f"seed {seed}: {world.problems}"


PLANTED_IN_DIVIDED: dict[str, tuple[str, Planted, int]] = {
    "each answers what the other one tells": ("ARGUING", _planted(Book, "is_told_by", lambda *_, **__: False), 0),
    "the outcome that the other one knows is not heard": (
        "REPLACED",
        _planted(Ledger, "hears", lambda self, _: not self.speaks),
        0,
    ),
}


@pytest.mark.parametrize("name", PLANTED_IN_DIVIDED)
def test_a_planted_rule_of_two_watchers_with_other_topics_is_found(name: str) -> None:
    assert_found(run_divided, name, *PLANTED_IN_DIVIDED[name])
