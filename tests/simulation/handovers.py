"""Two ledgers on one events topic, of which one speaks: a small world of its own.

It has no proof and no reading: both ledgers get each finding, one of them later, and one may not know the outcome. In
each round a hang begins or ends, the lease moves, or the topic takes nothing for a while. The lease is handed over with
an orderly stop or without one, its holder is killed, or it sleeps while the other one speaks, and has the lease again
when it wakes up. Or it is awake again and speaks for one round beside the next one, or both speak for some rounds. In
every third world a client forges records, and only in another third two speak.

A problem begins with its kind:

SILENT: an event of an instance that does not speak.
NOT OPENED, TWICE: the first event of an incident does not open it; a second one opens or resolves it.
BEHIND: the sequence of an event is not above the last one.
REPLACED: an event with the outcome `unknown` follows one with a known outcome.
NOT FLUSHED: after an orderly stop the topic lacks what the instance has found.
LOST: at rest, the topic does not say of a hang that it is open, or that it has ended.
FORGED: at rest, the last record of an incident is a forged one. A forged outcome that the former speaker could have
    published stays if the speaker does not know the outcome: it is shown as heard, and no abort is based on it.
ARGUING: the two instances have written more records about an incident than the pauses allow.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from simulation.two_watchers import WatchedSink
from support.ledger_world import LedgerWorld
from support.shared_log import SharedLog, SharedLogSink
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.incidents.speaking import SILENT, WHOLE, SpeakerRole
from txnwatch.state.model.findings import Finding, SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, IncidentStatus, start_of

NAMES = ("first", "second")
_ROUNDS, _AT_REST = 40, 14
_STEPS = (
    *("hang", "hang", "end", "nothing", "away", "back"),
    *("handed over", "stopped", "killed", "slept", "awake again", "both"),
)
_MOVES = _STEPS[6:]
_PAUSES_MS = (500, 500, 4_000, 12_000)
_FORGED = "forged"
_MOST_RECORDS = 16


class WatchedLog(SharedLog):
    """A topic that shows each event before it is written, with the name of its writer."""

    def __init__(self, look: Callable[[str, IncidentEvent, IncidentEvent | None], None]) -> None:
        super().__init__()
        self._look, self.beginning = look, ""

    def sink(self) -> SharedLogSink:
        """The way of writing of the instance that begins now."""
        name = self.beginning
        return WatchedSink(self, lambda event, last: self._look(name, event, last))


class HandoverWorld:
    """Two instances, one topic and a lease.

    Attributes:
        steps: what may happen in a round.
        most_records: how many records about an incident are no argument.
    """

    steps = _STEPS
    most_records = _MOST_RECORDS

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.is_forging, self.is_plain = seed % 3 == 0, seed % 3 == 1
        self.cluster = LedgerWorld()
        self.log = WatchedLog(self.look)
        self.partitions = self.cluster.admin.create_topic("data", _ROUNDS)
        self.hanging: dict[str, SpanCandidate] = {}
        self.ended: list[SpanCandidate] = []
        self.left: dict[str, list[Finding]] = {}
        self.speakers, self.next_speakers = {"first"}, {"first"}
        self.forged: set[int] = set()
        self.rounds = self.until = 0
        self.asleep: set[str] = set()
        self.is_coordinator_away = False
        self.losses: Counter[str] = Counter()
        self.had_it: set[str] = set()
        self.problems: list[str] = []
        self.seen: Counter[str] = Counter()
        self.ledgers = {name: self.begun(name) for name in NAMES}

    def run(self) -> list[str]:
        """The problems of one world."""
        for _ in range(_ROUNDS):
            self.step(self.rng.choice(self.steps[: -2 if self.is_plain else None]))
            if self.is_forging and self.rng.random() < 0.3:
                self.forge()
            self.batch(self.rng.choice(_PAUSES_MS))
        self.log.is_away, self.until, self.asleep, self.is_coordinator_away = False, 0, set(), False
        self.speakers = self.next_speakers = {self.rng.choice(NAMES)}
        for number in range(_AT_REST):
            self.batch(2 * 3_600_000 if number == _AT_REST // 2 else 61_000)
        self.problems += self.wrong_at_rest()
        return self.problems

    def begun(self, name: str) -> RunningLedger:
        """An instance that starts: it finds what hangs now, and only the first one knows the outcomes."""
        self.log.beginning = name
        self.left[name] = [self.as_found(name, one) for one in self.hanging.values()]
        return self.cluster.another(self.log, role=lambda: self._role_of(name), name=name)

    def _role_of(self, name: str) -> SpeakerRole:
        if name not in self.speakers:
            return SILENT
        return WHOLE._replace(tenure=self.losses[name], is_alone=not self.is_coordinator_away)

    def as_found(self, name: str, candidate: SpanCandidate) -> SpanCandidate:
        """A candidate as an instance has it."""
        if name == "first":
            return candidate
        return self.cluster.candidate_on(candidate.partition, candidate.producer_id)

    def batch(self, after_ms: int) -> None:
        """A micro-batch of both, in any order; one may come too late for it."""
        self.rounds += 1
        self.losses.update(self.had_it - self.speakers)
        self.had_it = self.speakers
        self.cluster.now_ms += after_ms
        self.cluster.admin.now_ms = self.cluster.now_ms
        for name in self.rng.sample(NAMES, 2)[self.rng.random() < 0.2 :]:
            if name in self.asleep:
                continue
            found, self.left[name] = self.left[name], []
            self.ledgers[name].on_batch(found)
        if self.rounds >= self.until:
            self.losses.update(self.speakers if self.is_coordinator_away else ())
            self.speakers, self.asleep, self.is_coordinator_away = self.next_speakers, set(), False

    def step(self, what: str) -> None:
        """One thing that happens; the lease does not move while both speak."""
        self.seen[what] += 1
        what = "nothing" if self.rounds < self.until and what in _MOVES else what
        holder = min(self.speakers or self.next_speakers)
        other = NAMES[holder == NAMES[0]]
        match what:
            case "hang":
                self.hang()
            case "end" if self.hanging:
                self.end(self.rng.choice(sorted(self.hanging)))
            case "away" | "back":
                self.log.is_away = what == "away"
            case "handed over":
                self.speakers = self.next_speakers = {other}
            case "stopped":
                self.stop(holder)
                self.speakers = self.next_speakers = {other}
            case "killed":
                self.ledgers[holder] = self.begun(holder)
                self.speakers, self.next_speakers = set(), {other}
            case "slept":
                self.asleep, self.speakers, self.next_speakers = {holder}, {other}, {holder}
                self.until = self.rounds + self.rng.randrange(2, 8)
            case "awake again":
                self.speakers, self.next_speakers = {holder, other}, {other}
            case "both":
                self.speakers, self.next_speakers = {holder, other}, {other}
                self.until, self.is_coordinator_away = self.rounds + self.rng.randrange(4, 12), True
            case _:
                pass

    def hang(self) -> None:
        """A hang on a partition of its own; both find it."""
        name, partition = f"app-{self.seen['hang']}", self.partitions[self.seen["hang"] - 1]
        owner = self.cluster.admin.begin(name, partition)
        self.cluster.admin.lose_markers(name, commit=False)
        self.hanging[name] = self.cluster.candidate_on(partition, owner.producer_id, name)
        for instance, left in self.left.items():
            left.append(self.as_found(instance, self.hanging[name]))

    def end(self, name: str) -> None:
        """A marker ends a hang; both read it."""
        candidate = self.hanging.pop(name)
        self.ended.append(candidate)
        end = self.cluster.abort(candidate)
        for left in self.left.values():
            left.append(end)

    def stop(self, name: str) -> None:
        """An orderly stop, as SinkSet.close: what waits is delivered, and then the lease is handed over."""
        ledger = self.ledgers[name]
        ledger.deliver_last()
        last = self.log.compacted
        if ledger.speaks and not self.log.is_away and self.is_plain:
            for known in ledger.incidents:
                told = last.get(known.incident_id)
                if known.incident_id not in ledger.ledger.book.untold and (told is None or _said(told) != _said(known)):
                    self.problems.append(f"NOT FLUSHED: {known.subject} is {known.status}")
        self.ledgers[name] = self.begun(name)

    def forge(self) -> None:
        """A client writes an end, or another content, behind the last record of an incident."""
        if not self.log.records or self.log.is_away:
            return
        last = self.rng.choice(list(self.log.compacted.values()))
        changes = self.rng.choice(({"topic_id": _FORGED}, {"expected_outcome": ExpectedOutcome.COMMIT}))
        forged = replace(last, sequence=last.sequence + 1, status=IncidentStatus.UPDATED, resolution=None, **changes)
        self.forged.add(len(self.log.records))
        self.log.records.append(forged)

    def look(self, name: str, event: IncidentEvent, last: IncidentEvent | None) -> None:
        """An event before it is written."""
        if self.log.is_away:
            return
        self.seen[f"told by {name}"] += 1
        if name not in self.speakers:
            self.problems.append(f"SILENT: {event.subject} is {event.status} by {name}")
        if self.is_plain:
            wrong = wrong_after(event, last)
            self.problems += [f"{kind}: {event.subject} is {event.status} by {name}" for kind in wrong]

    def wrong_at_rest(self) -> Iterator[str]:
        """What is wrong once nothing moves."""
        last = self.log.compacted
        numbers = {event.incident_id: number for number, event in enumerate(self.log.records)}
        own = (event for number, event in enumerate(self.log.records) if number not in self.forged)
        written = Counter(event.incident_id for event in own)
        for event in last.values():
            if numbers[event.incident_id] in self.forged and (event.topic_id == _FORGED or "first" in self.speakers):
                yield f"FORGED: {event.subject}"
            if written[event.incident_id] > self.most_records:
                yield f"ARGUING: {written[event.incident_id]} records about {event.subject}"
        open_now = Counter(start_of(event) for event in last.values() if event.is_open)
        for candidate in self.hanging.values():
            if open_now.pop(candidate.start, 0) != 1:
                yield f"LOST: {candidate.start} hangs"
        yield from (f"LOST: {place} has ended" for place in open_now)


def wrong_after(event: IncidentEvent, last: IncidentEvent | None) -> Iterator[str]:
    """What is wrong with an event behind the last one of its incident."""
    if last is None:
        if event.status is not IncidentStatus.OPENED:
            yield "NOT OPENED"
        return
    if event == last:
        return  # its delivery was not known
    if event.sequence <= last.sequence:
        yield "BEHIND"
    if event.status is IncidentStatus.OPENED or not last.is_open:
        yield "TWICE"
    if event.expected_outcome == ExpectedOutcome.UNKNOWN != last.expected_outcome:
        yield "REPLACED"


def _said(event: IncidentEvent) -> tuple[str, str]:
    return event.status, event.expected_outcome if event.is_open else ""


def run_handovers(seed: int) -> HandoverWorld:
    """One world; equal seeds give equal worlds."""
    world = HandoverWorld(seed)
    world.run()
    return world
