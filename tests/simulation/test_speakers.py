"""Of several instances one speaks, and nobody is silent for longer than a session, whatever fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock
from weakref import WeakSet

import pytest

from simulation.speakers import Group, run_speakers
from support.seeds import in_proportion
from txnwatch.sinks.incidents.group_lease import SpeakerGate
from txnwatch.state.incidents import speaking
from txnwatch.state.incidents.speaking import WHOLE, SpeakerRole, Speaking
from txnwatch.state.model.ports import LeaseView

RUNS = in_proportion(40)
_MOST_SEEDS = 200
_LOOK, _ROLE, _HEAR = Speaking.look, SpeakerGate.role, SpeakerGate.hear


def test_one_instance_speaks_whatever_fails() -> None:
    seen: Counter[str] = Counter()
    for seed in range(RUNS):
        world = run_speakers(seed)
        assert not world.problems, f"seed {seed}: {world.problems}"
        seen += world.seen
    for what in ("kill", "stop", "pause", "cut", "upgrade"):
        assert seen[f"{what} the speaker"] > 0, seen
    for what in ("orders", "transactions"):
        assert seen[f"1 tell {what}, coordinator away"] > seen[f"2 tell {what}, coordinator away"], seen


def _never_by_itself(self: Speaking, lease: LeaseView, now_ms: Any) -> bool:
    return _LOOK(self, LeaseView.ANOTHERS if lease is LeaseView.UNKNOWN else lease, now_ms)


def _always_goes_on(self: Speaking, lease: LeaseView, now_ms: Any) -> bool:
    return self.speaks or _LOOK(self, lease, now_ms)


_HAVE_HEARD: WeakSet[SpeakerGate] = WeakSet()


def _hear(self: SpeakerGate) -> None:
    _HAVE_HEARD.add(self)
    _HEAR(self)


def _not_after_a_heartbeat(self: SpeakerGate) -> SpeakerRole:
    role = _ROLE(self)
    return role._replace(tells_transactions=role.tells_transactions and self not in _HAVE_HEARD)


def _speakers_of_other_topics_all_tell(self: SpeakerGate) -> SpeakerRole:
    role = _ROLE(self)
    return WHOLE if role.speaks else role


PLANTED: dict[str, Callable[[], Any]] = {
    "without a coordinator nobody speaks": lambda: mock.patch.object(Speaking, "look", _never_by_itself),
    "who has spoken goes on for ever": lambda: mock.patch.object(Speaking, "look", _always_goes_on),
    "without a coordinator everybody waits for ever": lambda: mock.patch.object(speaking, "UNHEARD_MS", 10**9),
    "a newcomer gets the lease": lambda: mock.patch.object(Group, "is_sticky", False),
    "a heartbeat decides who tells transactions": lambda: mock.patch.multiple(
        SpeakerGate, hear=_hear, role=_not_after_a_heartbeat
    ),
    "all speakers tell transactions": lambda: mock.patch.object(
        SpeakerGate, "role", _speakers_of_other_topics_all_tell
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    with PLANTED[name]():
        found = next((seed for seed in range(_MOST_SEEDS) if run_speakers(seed).problems), None)
    assert found is not None, f"{name}, and {_MOST_SEEDS} seeds do not show it"
    assert not run_speakers(found).problems
