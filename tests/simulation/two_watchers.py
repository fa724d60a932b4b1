"""Two watchers of one simulated cluster and one events topic; one speaks. The second does not know what came before.

So it does not know the outcome of many hangs, and the first does. Between batches the lease moves: it is handed over,
its holder is killed and nobody speaks for a batch, its holder wakes up from a pause and still speaks for a batch, or
the coordinator is away and both speak for a while. A process that was killed begins anew. In some worlds a client
forges events, too: then only what is harmed, and what is left at rest, counts. A problem begins with its kind:

REPLACED: an event with the outcome `unknown` follows one with a known outcome, and nothing was found out since.
TWICE: an incident is opened or resolved a second time, and no other writer was there in between.
NOT OPENED: the first event of an incident does not open it.
SILENT: an event of a watcher that does not speak.
OUTCOME LOST: after everything stands still, the last event of an incident is an end without the outcome that a watcher
has told.
NOT SAID: after everything stands still, a watcher knows another state of an incident than the events topic. If a client
forges events, only the watcher that speaks counts.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import CoverInDoubt, Finding, OwnerInDoubt, SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, IncidentStatus
from txnwatch.state.model.values import NO_TIME, DurationMs
from txnwatch.state.model.verdicts import Verdict

_PAUSE_MS = 4_000
_AT_REST, _STILL, _LAST = 40, 20, 6
_ANSWERS = 20
NAMES = ("first", "second")


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
    """The first watcher is that of `Actors`; a second one is beside it, on the same topic. Both clocks are right.

    Attributes:
        speakers: those that speak now.
        losses: how often each has lost the lease: a lease that came back between two batches is another one, and so is
            one about which the coordinator did not answer for a while.
        is_away: whether the coordinator does not answer.
        faulty: whether a lease moves in another way than by a handover.
    """

    ahead_ms: Mapping[str, DurationMs] = MappingProxyType(dict.fromkeys(NAMES, NO_TIME))

    def __init__(self, world: World, truth: Truth, seed: int, *, faulty: bool, forging: bool = False) -> None:
        super().__init__(world, truth, 3, seed + 1 if forging else None)
        self.faulty, self.told = faulty, dict[tuple[str, str], IncidentEvent]()
        self.rng = random.Random(seed)
        self.speakers, self.next_speakers, self.until = {"first"}, {"first"}, 0
        self.losses = Counter[str]()
        self.is_away = False
        self.two_at = -_ANSWERS
        self.still_from = sys.maxsize  # one watcher speaks in the last batches, so that its state is on the topic
        self.writers: dict[tuple[str, int], str] = {}
        self.left: dict[str, list[Finding]] = {"first": [], "second": []}
        self.knows_no_epoch = bool(seed % 2)
        self.aborts: dict[str, RunningAbort] = {}
        for name in NAMES:
            self.begin_watcher(name)

    def begin_watcher(self, name: str) -> None:
        """A process begins; it knows what is on the topic."""
        ledger = self.a_ledger(
            self._sink(name), name=name, role=lambda: self._role_of(name), now_ms=self.clock_of(name)
        )
        ledger.remember(self.log.records)
        lease = FakeLease()
        self.aborts[name] = RunningAbort("on", EAGER, 0, ledger, lease, name, self.clock_of(name))
        if name == "first":
            self.ledger = ledger

    def ledger_of(self, name: str) -> RunningLedger:
        """See Actors."""
        return self.aborts[name].ledger

    def clock_of(self, name: str) -> Callable[[], int]:
        """The clock of a watcher's machine."""
        return lambda: self.now_ms() + self.ahead_ms[name]

    def seen_by(self, name: str, finding: Finding) -> Finding | None:
        """A finding as this watcher has it; None if it has not found it."""
        return self._as_seen_later(finding) if name == "second" else finding

    def _role_of(self, name: str) -> SpeakerRole:
        return WHOLE._replace(tenure=self.losses[name], is_alone=not self.is_away) if name in self.speakers else SILENT

    def look_at(self, name: str, event: IncidentEvent) -> None:
        """An event before a watcher publishes it."""

    def batch(self, emitted: Sequence[Finding]) -> list[str]:
        """One micro-batch of both, in any order; sometimes one of them comes too late for it, and has it later."""
        self.calls += 1
        self.elapsed_ms += _PAUSE_MS
        for name, left in self.left.items():
            left += [found for one in emitted if (found := self.seen_by(name, one)) is not None]
        if self.forger is not None:
            self.forger.write()
        had_it = self.speakers
        if self.calls <= self.still_from or len(self.speakers) != 1:
            self._move_lease()
        self.losses.update(had_it - self.speakers)
        self.two_at = self.calls if len(self.speakers) > 1 else self.two_at
        for name in self.rng.sample(NAMES, 2)[self.rng.random() < 0.2 :]:
            abort, self.left[name], found = self.aborts[name], [], self.left[name]
            lease = abort.lease
            assert isinstance(lease, FakeLease)
            lease.held = self.speakers == {name}
            abort.recover()
            abort.ledger.on_batch(found)
            abort.on_batch()
            self.world.seen.update(f"{name}: {what}" for what in abort.counts)
            abort.counts.clear()
        return self.taken_problems()

    def _move_lease(self) -> None:
        """The next state of the lease, and what happens to it."""
        if self.speakers != self.next_speakers:
            if self.calls >= self.until:
                self.losses.update(self.speakers if self.is_away else ())
                self.speakers, self.is_away = self.next_speakers, False
            return
        if self.rng.random() >= 0.2:
            return
        (holder,) = self.speakers
        other = "second" if holder == "first" else "first"
        what = self.rng.choice(("killed", "awake again", "coordinator away", "handed over")[0 if self.faulty else 3 :])
        self.world.seen[f"lease: {what}"] += 1
        self.next_speakers = {other}
        match what:
            case "killed":
                self.begin_watcher(holder)
                self.speakers, self.until = set(), self.calls + 1
            case "awake again":
                self.speakers, self.until = {holder, other}, self.calls + 1
            case "coordinator away":
                self.speakers, self.until = {holder, other}, self.calls + self.rng.randrange(2, 12)
                self.is_away = True
            case _:
                self.speakers = {other}

    def wrong_on_topic(self) -> list[str]:
        """See Actors: what one of two knows may be on its way to the other, so it is compared at rest only."""
        return []

    def rest(self) -> list[str]:
        """The last batches, in which nothing moves and nothing is read; returns what is wrong after them."""
        problems = []
        if self.forger is not None:
            self.forger.is_over = True
        for abort in self.aborts.values():
            abort.abort.mode = "off"
        self.still_from = self.calls + _STILL
        for number in range(_AT_REST):
            if number in {_STILL, _AT_REST - _LAST}:
                self.elapsed_ms += 2 * 3_600_000  # every pause between two answers is over
            problems += self.batch([])
        for name, abort in self.aborts.items():
            if self.forger is not None and name not in self.speakers:
                continue  # it may call a hang by another name, after a forged end; it tells so once it speaks
            problems += self._not_said(name, abort.ledger)
        return problems if self.forger is not None else [*problems, *lost_outcomes(self.told.values(), self.log)]

    def _not_said(self, name: str, ledger: RunningLedger) -> Iterator[str]:
        for known in ledger.incidents:
            found = self.log.left.get(known.incident_id)
            if self.forger is not None and known.is_open and not ledger.ledger.book.is_found(known):
                continue  # an open claim is told only once it is found here
            if not known.is_open and found is None and known.incident_id in self.log.buried:
                continue  # a forged end of long ago has expired
            if found is None or found.is_open is not known.is_open:
                yield f"NOT SAID: {name} knows incident {known.incident_id} as {known.status}"

    def _sink(self, name: str) -> WatchedSink:
        def look(event: IncidentEvent, last: IncidentEvent | None) -> None:
            if name not in self.speakers:
                self.problems.append(f"SILENT: {event.subject} is {event.status} by {name}")
            if self.forger is None:
                self.problems.extend(self._wrong(name, event, last))
            self.look_at(name, event)
            self.writers.setdefault(event.event_id, name)
            self.told[name, event.incident_id] = event
            if event.verdict == Verdict.HANGING and last is not None:
                self.world.seen[f"{name} follows {self.writers.get(last.event_id, 'the forger')}"] += 1

        return WatchedSink(self.log, look)

    def _wrong(self, name: str, event: IncidentEvent, last: IncidentEvent | None) -> Iterator[str]:
        """What is wrong with an event behind the last one of its incident, if nobody forges events."""
        if last is None:
            if event.status is not IncidentStatus.OPENED:
                yield f"NOT OPENED: {event.subject} is {event.status} by {name}"
            return
        if self._is_replaced(event, last):
            yield f"REPLACED: {event.subject}: {last.expected_outcome} by {name}"
        if event.event_id not in self.writers and self._is_second(event, last):
            yield f"TWICE: {event.subject} is {event.status} again by {name}"

    def _is_replaced(self, event: IncidentEvent, last: IncidentEvent) -> bool:
        if event.verdict != Verdict.HANGING or event.expected_outcome != ExpectedOutcome.UNKNOWN or knows_more(event):
            return False
        if last.expected_outcome == ExpectedOutcome.UNKNOWN or last.outcome_by is None:
            return False
        if self.were_two and not self.is_away:
            return False  # one of them did not know of the other
        now = self.aborts[last.outcome_by].ledger.ledger.book.as_found(last)  # it may have withdrawn the outcome
        return now.expected_outcome == last.expected_outcome

    def _is_second(self, event: IncidentEvent, last: IncidentEvent) -> bool:
        if self.were_two:
            return False
        return event.status is IncidentStatus.OPENED or not (event.is_open or last.is_open)

    @property
    def were_two(self) -> bool:
        """Whether two have spoken in the last batches, so that each answers the records of the other."""
        return self.calls - self.two_at < _ANSWERS

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


def run_two_watchers(seed: int, setting: Setting, *, faulty: bool = False, forging: bool = False) -> RunOutcome:
    """One seed of two watchers; equal arguments give equal outcomes."""

    def watchers(world: World, truth: Truth) -> TwoWatchers:
        return TwoWatchers(world, truth, seed + 3, faulty=faulty, forging=forging)

    return run_with(watchers, seed, setting)
