"""The real ledger and the real automatic abort in a simulated cluster, and the truth about whose data they end.

Between any two of their requests anything may happen: clients resume, begin, commit, are fenced; leaders move; faults.
HARM: a marker was taken, and the data it decided belongs, in part, to a transaction that its client was told had
committed, or that its coordinator still owned at that moment. LIE: an incident was opened with an expected outcome
that is not what the owners of its data were told, or an abort is called verified and no ABORT marker closed the data.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from unittest import mock

from simulation import run as running
from simulation.faults import FAULTS
from simulation.judge import Judge
from simulation.reader import Said
from simulation.run import Outcome
from simulation.truth import Truth, witnessed
from simulation.world import Setting, World
from simulation.world_admin import WorldAdmin
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.incidents import an_event, an_evidence
from support.recording_sink import RecordingSink
from txnwatch.sinks.abort import AutoAbort
from txnwatch.sinks.commands import Origin
from txnwatch.sinks.ledger import Ledger
from txnwatch.sinks.marking import VERIFIED
from txnwatch.sinks.outbox import Outbox
from txnwatch.state.abort_case import AbortPolicy
from txnwatch.state.abort_plan import partition_of
from txnwatch.state.emitted import Emitted
from txnwatch.state.incident import OPENED, IncidentEvent
from txnwatch.state.outcome import UNKNOWN
from txnwatch.state.ports import (
    TransactionAdmin,
)
from txnwatch.state.verdict import Verdict

EAGER = AbortPolicy(after_ms=0, budget_per_hour=None, breaker_incidents=None)
_BATCH_MS = 70_000  # so that every pause between two tries is over
_RACES, _AT_ONCE = 40, 2


class Actors:
    """The product's side: a ledger and the abort, over a world."""

    def __init__(self, world: World, truth: Truth, most_between: int) -> None:
        self.world, self.truth = world, truth
        self.admin = WorldAdmin(world, truth, most_between)
        self.calls = 0
        self.problems: list[str] = []
        outbox = Outbox(RecordingSink(), lambda _: None)
        admin: TransactionAdmin = self.admin  # type: ignore[assignment]
        self.ledger = Ledger(
            Origin("cluster", "simulated:1"), admin, FakeGroups(), [outbox], self.now_ms, on_event=self._told
        )
        self.abort = AutoAbort("on", EAGER, 0, self.ledger, FakeLease(), "simulated", self.now_ms)

    def now_ms(self) -> int:
        """Later with each batch, so that every pause between two tries is over."""
        return self.world.coordinators.now_ms + self.calls * _BATCH_MS

    def batch(self, emitted: Sequence[Emitted]) -> list[str]:
        """One micro-batch; returns what is wrong."""
        self.calls += 1
        self.abort.recover()
        self.ledger.on_batch(emitted)
        self.abort.on_batch()
        self.world.seen.update(self.abort.counts)
        self.abort.counts.clear()
        problems = [*self.problems, *(f"HARM: {harm}" for harm in self.admin.harm)]
        self.problems.clear()
        self.admin.harm.clear()
        return problems

    def _told(self, event: IncidentEvent) -> None:
        self._opened(event)
        self._verified(event)

    def _verified(self, event: IncidentEvent) -> None:
        log = self.world.data.get(partition_of(event)) if event.topic is not None else None
        if event.action is None or event.action["result"] != VERIFIED or log is None or log.topic_id != event.topic_id:
            return
        closing = self.admin.decided_by(log, event.producer_id, event.txn_start_offset or 0)
        self.world.seen["verified by a marker"] += 1
        if closing is None or closing.commit:
            self.problems.append(f"LIE: {event.subject} is verified to be aborted, and what closed it is {closing}")

    def _opened(self, event: IncidentEvent) -> None:
        if event.status != OPENED or event.verdict != Verdict.HANGING or event.expected_outcome == UNKNOWN:
            return
        self.world.seen[f"outcome: {event.expected_outcome}"] += 1
        log = self.world.data.get(partition_of(event))
        if log is None or log.topic_id != event.topic_id:
            return
        # An outcome is one of the data that was confirmed; what is written since is for the abort to see.
        last = event.evidence["last_sequence"]
        owners = self.truth.outcomes(self.world, log, event.producer_id, event.txn_start_offset or 0, last)
        if not owners <= {event.expected_outcome}:
            self.problems.append(f"LIE: {event.subject} says {event.expected_outcome}, and its owners {owners}")


class AbortingJudge(Judge):
    """A judge behind whom the abort acts on every batch that was committed."""

    def __init__(self, world: World, truth: Truth) -> None:
        super().__init__(world)
        self.actors = Actors(world, truth, most_between=3)

    def hear(self, said: Said) -> None:
        """See Judge."""
        super().hear(said)
        self.actors.admin.stands_still = self.world.setting.rate == 0.0
        if said.is_committed and not self.problems:
            self.problems.extend(self.actors.batch(said.emitted))


def run_with_abort(seed: int, setting: Setting) -> Outcome:
    """One seed of the whole product; equal arguments give equal outcomes."""
    with (
        witnessed(Truth()) as truth,
        mock.patch.object(running, "Judge", lambda world: AbortingJudge(world, truth)),
    ):
        return running.run(seed, setting)


def run_race(seed: int) -> tuple[list[str], Counter[str]]:
    """Incidents about whatever is open, hanging or not, against clients that go on; what is wrong, what happened.

    The outcome an incident is given is the one its owners have been told so far, as it is when it is found by the
    state; for data of a live transaction it is a lie, and the incident lives for one decision only.
    """
    with witnessed(Truth()) as truth:
        rng = random.Random(seed)
        # A coordinator that forgets what it has decided, between the last look and the marker, is beyond any look.
        usual = [name for name in FAULTS if name not in {"unclean failover of the log", "forgotten id"}]
        names = [name for name in usual if rng.random() < 0.3] + ["lost marker", "stray write"]
        world = World(Setting(clients=1 + rng.randrange(3), faults=frozenset(names)), random.Random(seed + 1))
        actors = Actors(world, truth, most_between=1 + rng.randrange(20))
        problems: list[str] = []
        for _ in range(_RACES):
            for _ in range(rng.randrange(30)):
                world.step()
            forged = _forged(world, truth, rng)
            is_lie = forged is not None and truth.is_live(world, forged)
            if forged is not None:
                actors.ledger.remember([forged])
                actors.ledger._look_again_ms = 2**62  # what is over is refused, not resolved
            found = actors.batch([])
            # With the lie goes that it cannot have committed yet: only whether it was live when it was ended counts.
            problems += [harm for harm in found if not (is_lie and "was committed" in harm)]
            known = actors.ledger._memory.known
            for one in [forged.incident_id] if forged is not None and is_lie else list(known)[:-_AT_ONCE]:
                del known[one]
            if problems:
                break
        return problems, world.seen


def _forged(world: World, truth: Truth, rng: random.Random) -> IncidentEvent | None:
    everything = [(log, row) for log in world.data.values() for row in log.open_spans() if log.is_listable]
    everything = [(log, row) for log, row in everything if log.producers[row[0]].open_start == row[1]]
    if not everything:
        return None
    log, (producer_id, start) = rng.choice(everything)
    reading = WorldAdmin(world, truth, 1)._reading(log.partition)
    row = reading.open_transaction(producer_id)
    assert row is not None
    told = truth.outcomes(world, log, producer_id, start)
    names = [c.transactional_id for c in world.clients if producer_id in {c.producer_id, *(p for p, _ in c.former)}]
    return an_event(
        f"{log.partition}{log.topic_id}@{start}/{producer_id}/{row.last_sequence}",
        topic=log.partition.topic,
        partition=log.partition.partition,
        topic_id=log.topic_id,
        producer_id=producer_id,
        producer_epoch=row.producer_epoch,
        transactional_id=names[0] if names else None,
        txn_start_offset=start,
        detected_at_ms=0,
        evidence={**an_evidence(), "last_sequence": row.last_sequence},
        expected_outcome="commit" if "commit" in told else "abort" if told else "none",
    )
