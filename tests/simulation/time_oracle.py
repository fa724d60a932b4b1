"""Compares the verdicts that depend on time with the true time: is an age true, and is a verdict missing?

AGE TOO HIGH: the reported age of a state is higher than its true age when the coordinators' log was listed. For Ongoing
the clock of the coordinator counts too: its time since the start of the transaction is also a true age.
TOO EARLY: `late` was reported before the coordinator can have acted: it became the leader less than a scan interval and
the buffer ago, and the true age is not above the limit either.
LOG NOT LISTED: a verdict was reported at a barrier that did not list the transaction's partition of the log.
MISSED PREPARE: after the last batch a transaction is in Prepare*, and `stuck_prepare` was never reported for it. Of two
ids with one producer id the state follows only one (docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from simulation.clocks import State
from simulation.world import World
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import TransactionCandidate
from txnwatch.state.model.verdicts import DetectionPolicy, Verdict

_POLICY = DetectionPolicy()
_GRACE_MS = _POLICY.scan_interval_ms(None) + _POLICY.late_buffer_ms


@dataclass
class TimeOracle:
    """The reported verdicts of each state, and the checks of the verdicts that depend on time."""

    world: World
    reported: set[tuple[Verdict, State]] = field(default_factory=set)

    def check(self, candidate: TransactionCandidate, barrier: Barrier) -> Iterator[str]:
        """Checks a candidate of a barrier."""
        view, clocks, now_ms = candidate.view, self.world.clocks, barrier.coordinator_listed_ms
        state = State.of(view.transactional_id, candidate.producer_id, view)
        self.world.seen[f"reported: {candidate.verdict}"] += 1
        self.world.note(f"REPORTED {candidate.verdict} of {state}, at least {candidate.age_ms} ms")
        self.reported.add((candidate.verdict, state))
        leader = barrier.leaders.get(view.log)
        if leader is None:
            yield f"LOG NOT LISTED: {candidate.verdict} of {state} at a barrier that has not listed its log"
            return
        age_ms = now_ms - clocks.since_ms[state]
        led_ms = now_ms - clocks.led_ms[view.log_partition, leader.epoch]
        possible_ms = age_ms
        if not view.state.is_prepare:
            assert view.start_ms is not None, "an ongoing transaction has begun"
            possible_ms = max(age_ms, now_ms + clocks.ahead_ms[leader.broker] - view.start_ms)
        if candidate.age_ms > possible_ms:
            yield f"AGE TOO HIGH: {candidate.verdict} of {state}: {candidate.age_ms} ms, truly {possible_ms} ms"
        is_hasty = age_ms <= view.timeout_ms + _GRACE_MS and led_ms <= _GRACE_MS
        if candidate.verdict is Verdict.LATE and is_hasty:
            yield f"TOO EARLY: {state} is {age_ms} ms old, and its coordinator has led for {led_ms} ms"

    def close(self) -> Iterator[str]:
        """After the last batch: transactions in Prepare* that were not reported as stuck."""
        for known in self.world.coordinators.transactions.values():
            value = known.value
            if value is not None and value.state.is_prepare and value.producer_id not in self.world.shared:
                state = State.of(known.transactional_id, value.producer_id, value)
                if (Verdict.STUCK_PREPARE, state) not in self.reported:
                    yield f"MISSED PREPARE: no stuck_prepare was reported for {state}"
