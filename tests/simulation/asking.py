"""The view `api` against the model: open data is seen, time passes, and the coordinators are asked as it goes on.

FALSE: a span was confirmed, and at every moment from the first question to the last answer a marker was owed to it, or
it was not there. MISSED: the cluster is healed and nothing moves, and a span that hangs is not confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from simulation.faults import FAULTS
from simulation.shared_ids import TWO_IDS
from simulation.truth import Truth
from simulation.world import Setting, SpanId, World
from simulation.world_admin import WorldAdmin
from support.plans import run_reads
from txnwatch.state.evidence.confirmation import Answer, SpanConfirmation
from txnwatch.state.evidence.screening import open_spans
from txnwatch.state.incidents.confirm import confirm_asked
from txnwatch.state.incidents.wanted import Plan
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.values import LONG_AGO, TimestampMs

Confirm = Callable[[Sequence[SpanCandidate], TimestampMs], Plan[list[tuple[SpanCandidate, SpanConfirmation]]]]
_ROUNDS, _MOST_BEFORE, _MOST_BETWEEN = 12, 40, 12


@dataclass
class AskingOutcome:
    """What came of one seed."""

    problems: list[str] = field(default_factory=list)
    confirmed: int = 0
    refuted: int = 0


def ask(seed: int, setting: Setting, confirm: Confirm = confirm_asked) -> AskingOutcome:
    """Runs one world and asks about its open data; equal arguments give equal outcomes."""
    rng, asked = random.Random(seed), AskingOutcome()
    faults = setting.faults & {TWO_IDS, *(name for name in FAULTS if rng.random() < rng.choice((0.1, 0.4, 1.0)))}
    world = World(replace(setting, rate=rng.choice((0.5, 1.5, 4.0)), faults=faults), random.Random(seed + 1))
    for _ in range(_ROUNDS):
        _pass_time(world, rng.randrange(_MOST_BEFORE))
        seen = _seen(world)
        _pass_time(world, rng.randrange(_MOST_BEFORE))
        admin = WitnessAdmin(world)
        asked.problems.extend(
            f"FALSE: {name} at {world.tick}" for name in _confirmed(admin, seen, confirm, asked) - admin.owed_nothing
        )
    world.heal()
    world.setting = replace(world.setting, rate=0.0)
    world.replicate_all()
    world.look()
    admin = WitnessAdmin(world)
    admin.stands_still = True
    found = _confirmed(admin, _seen(world), confirm, asked)
    missed = {name for name in world.hanging.keys() - found if name.producer_id not in world.shared}
    asked.problems.extend(f"MISSED: {name}" for name in missed)
    return asked


class WitnessAdmin(WorldAdmin):
    """An admin that notes which spans were open, and owed no marker, at any moment while it was asked."""

    def __init__(self, world: World) -> None:
        super().__init__(world, Truth(), _MOST_BETWEEN)
        self.owed_nothing: set[SpanId] = set()

    def _time_passes(self) -> None:
        self._note()
        if not self.stands_still:
            for _ in range(self.world.rng.randrange(self.most_between)):
                self.world.step()
                self._note()

    def _note(self) -> None:
        for partition, log in self.world.data.items():
            for producer_id, known in log.producers.items():
                if known.open_start is not None and not self.world.coordinators.owes(producer_id, partition):
                    self.owed_nothing.add(SpanId(partition, log.topic_id, producer_id, known.open_start))


def _pass_time(world: World, steps: int) -> None:
    for _ in range(steps):
        world.step()


def _seen(world: World) -> list[SpanCandidate]:
    """The open data of every partition, as a log or a census shows it."""
    admin = WorldAdmin(world, Truth(), 0)
    admin.stands_still = True
    return open_spans(admin.read_partitions(world.data).values(), LONG_AGO)


def _confirmed(admin: WitnessAdmin, seen: list[SpanCandidate], confirm: Confirm, asked: AskingOutcome) -> set[SpanId]:
    names = set()
    for candidate, found in run_reads(confirm(seen, LONG_AGO), admin):  # type: ignore[arg-type]
        asked.refuted += found.answer is Answer.REFUTED
        if found.answer is Answer.CONFIRMED:
            assert found.producer is not None
            assert found.reading is not None
            start = found.producer.start_offset
            names.add(SpanId(candidate.partition, found.reading.topic_id, candidate.producer_id, start))
    asked.confirmed += len(names)
    return names
