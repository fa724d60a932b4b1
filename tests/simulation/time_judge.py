"""The verdicts of time against the true time: is each reported age true, and is nothing old left out?

YOUNG: a transaction was reported to be in its state for longer than it had been when the coordinators' log was
listed; for one that is Ongoing it is enough that the clock of its coordinator has passed so much since the start.
HASTY: `late` was reported before the coordinator can have acted: its clock had passed the timeout, but no scan interval
(and buffer) had gone by since it took over, nor had the limit truly passed. UNLISTED: something was reported of a
transaction whose part of the coordinators' log had not answered. SILENT: everything has come to rest, a
transaction has been Prepare* for long, and there was never a `stuck_prepare` of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from simulation.clocks import State
from simulation.world import World
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import TransactionCandidate
from txnwatch.state.model.policy import DetectionPolicy
from txnwatch.state.model.verdicts import Verdict

_POLICY = DetectionPolicy()
_GRACE_MS = _POLICY.scan_interval_ms(None) + _POLICY.late_buffer_ms


@dataclass
class TimeJudge:
    """What was reported about time, and what of it is wrong."""

    world: World
    reported: set[State] = field(default_factory=set)

    def check(self, candidate: TransactionCandidate, barrier: Barrier) -> Iterator[str]:
        """A candidate of a barrier."""
        view, clocks, now_ms = candidate.view, self.world.clocks, barrier.coordinator_listed_ms
        state = State.of(view.transactional_id, candidate.producer_id, view)
        self.world.seen[f"reported: {candidate.verdict}"] += 1
        self.world.note(f"REPORTED {candidate.verdict} of {state}, at least {candidate.age_ms} ms")
        self.reported.add(state)
        leader = barrier.leaders.get(view.log_partition)
        if leader is None:
            yield f"UNLISTED: {candidate.verdict} of {state} at a barrier that has not listed its log"
            return
        age_ms = now_ms - clocks.since_ms[state]
        led_ms = now_ms - clocks.led_ms[view.log_partition, leader.epoch]
        possible_ms = age_ms
        if not view.state.is_prepare:
            assert view.start_ms is not None, "an ongoing transaction has begun"
            possible_ms = max(age_ms, now_ms + clocks.ahead_ms[leader.broker] - view.start_ms)
        if candidate.age_ms > possible_ms:
            yield f"YOUNG: {candidate.verdict} of {state}: {candidate.age_ms} ms, and it is {possible_ms} ms"
        is_hasty = age_ms <= view.timeout_ms + _GRACE_MS and led_ms <= _GRACE_MS
        if candidate.verdict is Verdict.LATE and is_hasty:
            yield f"HASTY: {state} is {age_ms} ms old, and its coordinator has led for {led_ms} ms"

    def close(self) -> Iterator[str]:
        """After everything has come to rest."""
        for known in self.world.coordinators.transactions.values():
            value = known.value
            if value is not None and value.state.is_prepare:
                state = State.of(known.transactional_id, value.producer_id, value)
                if state not in self.reported:
                    yield f"SILENT: nothing was reported of {state}"
