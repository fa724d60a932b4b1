"""Two watchers of one simulated cluster and one events topic. The second does not know what the log showed before.

So it does not know the outcome of many hangs, and the first does. It has the lease first. No client forges events here.
A problem begins with its kind:

REPLACED: an event with the outcome `unknown` follows one of the other watcher, which knows the outcome and is there. In
some pauses of a world an hour passes, so that nobody is there.
OUTCOME LOST: after everything stands still, the last event of an incident is an end without the outcome that a watcher
has told. In some worlds the watchers are slow, so that nobody waits for them.
NOT SAID: after everything stands still, a watcher knows another state of an incident than the events topic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from simulation.abort import EAGER, Actors, run_with
from simulation.rest_oracle import knows_more, lost_outcomes
from simulation.run import RunOutcome
from simulation.truth import Truth
from simulation.world import Setting, World
from support.fake_lease import FakeLease
from support.shared_log import SharedLog, SharedLogSink
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.state.incidents.speakers import PATIENCE_AT_AN_END_MS
from txnwatch.state.model.findings import CoverInDoubt, Finding, OwnerInDoubt, SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent
from txnwatch.state.model.values import NO_TIME, DurationMs
from txnwatch.state.model.verdicts import Verdict

_PAUSE_MS = 4_000  # an end waits for more than two batches
_AT_REST = 40
_COMES_BACK = 0.1


class OneOfTwo(FakeLease):
    """The lease of one of two watchers; the other one gets it if it is passed on."""

    other: OneOfTwo

    def pass_on(self) -> None:
        """See Lease."""
        super().pass_on()
        self.other.held = True


class WatchedSink(SharedLogSink):
    """One watcher's way of writing; each event is shown before it is written, with the last one of its incident."""

    def __init__(self, log: SharedLog, look: Callable[[IncidentEvent, IncidentEvent | None], None]) -> None:
        super().__init__(log)
        self._look = look

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """See EventsTopicWriter."""
        for event in events:
            self._look(event, self._log.compacted.get(event.incident_id))
            super().publish([event])


class TwoWatchers(Actors):
    """The first watcher is that of `Actors`; a second one is beside it, on the same topic. Both clocks are right."""

    ahead_ms: Mapping[str, DurationMs] = MappingProxyType(dict.fromkeys(("first", "second"), NO_TIME))

    def __init__(self, world: World, truth: Truth, seed: int, *, slow: bool) -> None:
        """`slow`: each misses several batches in a row, which is longer than the other one waits."""
        super().__init__(world, truth, 3)
        self.slow, self.told = slow, dict[tuple[str, str], IncidentEvent]()
        self.rng = random.Random(seed)
        self.writers: dict[tuple[str, int], str] = {}
        self.ledgers = {
            name: self.a_ledger(self._sink(name), beats=True, now_ms=self.clock_of(name))
            for name in ("first", "second")
        }
        leases = self.leases = {"first": OneOfTwo(), "second": OneOfTwo()}
        leases["first"].other, leases["second"].other = leases["second"], leases["first"]
        leases["first"].held = False
        self.aborts = {
            name: RunningAbort("on", EAGER, 0, ledger, leases[name], name, self.clock_of(name))
            for name, ledger in self.ledgers.items()
        }
        self.ledger = self.ledgers["first"]
        self.left: dict[str, list[Finding]] = {"first": [], "second": []}
        self.knows_no_epoch = bool(seed % 2)
        self.batch_ms, self.is_each_there = 0, True
        self.away, self.comes_at = "", 0

    def clock_of(self, name: str) -> Callable[[], int]:
        """The clock of a watcher's machine."""
        return lambda: self.now_ms() + self.ahead_ms[name]

    def seen_by(self, name: str, finding: Finding) -> Finding | None:
        """A finding as this watcher has it; None if it has not found it."""
        return self._as_seen_later(finding) if name == "second" else finding

    def look_at(self, name: str, event: IncidentEvent) -> None:
        """An event before a watcher publishes it."""

    def batch(self, emitted: Sequence[Finding]) -> list[str]:
        """One micro-batch of both, in any order; sometimes one of them comes too late for it, and has it later."""
        self.calls += 1
        self.elapsed_ms += _PAUSE_MS
        pause_ms, self.batch_ms = self.now_ms() - self.batch_ms, self.now_ms()
        self.is_each_there = pause_ms < PATIENCE_AT_AN_END_MS
        for name, left in self.left.items():
            left += [found for one in emitted if (found := self.seen_by(name, one)) is not None]
        if self.rng.random() < _COMES_BACK:  # both ask for it, and the group's coordinator chooses
            holder = self.rng.choice(list(self.leases.values()))
            holder.held, holder.other.held = True, False
        for name in self._those_that_come():
            ledger, abort, self.left[name], found = self.ledgers[name], self.aborts[name], [], self.left[name]
            abort.recover()
            ledger.on_batch(found)
            abort.on_batch()
            self.world.seen.update(f"{name}: {what}" for what in abort.counts)
            abort.counts.clear()
        return self.taken_problems()

    def _those_that_come(self) -> list[str]:
        names = self.rng.sample(("first", "second"), 2)
        if not self.slow:
            return names[self.rng.random() < 0.2 :]
        if self.calls >= self.comes_at:
            self.away, self.comes_at = self.rng.choice(names), self.calls + self.rng.randrange(1, 12)
        return [name for name in names if name != self.away]

    def wrong_on_topic(self) -> list[str]:
        """See Actors: what one of two knows may be on its way to the other, so it is compared at rest only."""
        return []

    def rest(self) -> list[str]:
        """The last batches, in which nothing moves and nothing is read; returns what is wrong after them."""
        for abort in self.aborts.values():
            abort.abort.mode = "off"
        problems = [problem for _ in range(_AT_REST) for problem in self.batch([])]
        last = self.log.left
        for name, ledger in self.ledgers.items():
            for known in ledger.incidents:
                found = last.get(known.incident_id)
                if found is None or found.is_open is not known.is_open:
                    problems.append(f"NOT SAID: {name} knows incident {known.incident_id} as {known.status}")
        return [*problems, *lost_outcomes(self.told.values(), self.log)]

    def _sink(self, name: str) -> WatchedSink:
        other = "second" if name == "first" else "first"

        def look(event: IncidentEvent, last: IncidentEvent | None) -> None:
            if last is not None and self.writers[last.event_id] == other and self._is_replaced(event, last, other):
                self.problems.append(f"REPLACED: {event.subject}: {last.expected_outcome} of {other} by {name}")
            self.look_at(name, event)
            self.writers.setdefault(event.event_id, name)
            self.told[name, event.incident_id] = event
            if event.verdict == Verdict.HANGING and last is not None:
                self.world.seen[f"{name} follows {self.writers[last.event_id]}"] += 1

        return WatchedSink(self.log, look)

    def _is_replaced(self, event: IncidentEvent, last: IncidentEvent, writer: str) -> bool:
        if event.verdict != Verdict.HANGING or event.expected_outcome != ExpectedOutcome.UNKNOWN:
            return False
        if knows_more(event):
            return False
        if self.slow or not self.is_each_there or last.expected_outcome == ExpectedOutcome.UNKNOWN:
            return False
        now = self.ledgers[writer].ledger.book.as_found(last)  # it may have withdrawn the outcome
        return now.expected_outcome == last.expected_outcome

    def _as_seen_later(self, finding: Finding) -> Finding:
        match finding:
            case SpanCandidate() if self.knows_no_epoch:
                return replace(finding, log_epoch=None, is_begun_under_it=False)
            case SpanCandidate():
                return replace(finding, is_begun_under_it=False)
            case CoverInDoubt() | OwnerInDoubt():
                return replace(finding, candidate=self._as_seen_later(finding.candidate))
            case _:
                return finding


def run_two_watchers(seed: int, setting: Setting, *, slow: bool = False) -> RunOutcome:
    """One seed of two watchers; equal arguments give equal outcomes."""
    return run_with(lambda world, truth: TwoWatchers(world, truth, seed + 3, slow=slow), seed, setting)
