"""The real ledger and the real automatic abort in a simulated cluster, compared with the true owners of the data.

Between any two of their requests anything may happen: clients resume, begin, commit, are fenced; leaders move; faults.
A problem begins with its kind:

HARM: a marker was accepted, and a part of its data belongs to a transaction whose commit was acknowledged, or that its
coordinator still owned then.
FALSE OUTCOME: the expected outcome of an incident is not the answer that the client got.
FALSE RESULT: an abort is reported as verified, and no ABORT marker closed the data.
SUPPRESSED: another client forges events, and a hang that this process has found has no open incident after a batch.
FORGED COMMAND: the command of the forged event is in an event of this process.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

from simulation import run as running
from simulation.failed_appends import FAILED_APPEND
from simulation.faults import FAULTS
from simulation.forger import EVIL, Forger, RacedSink
from simulation.oracle import Oracle
from simulation.reader import BatchResult, WorldReader
from simulation.rest_oracle import lost_outcomes, untold, wrong_at_rest
from simulation.run import RunOutcome
from simulation.span_ends import SpanEnds
from simulation.topic_oracle import LiveClaims, wrong_on_topic
from simulation.truth import Truth, witnessed
from simulation.world import Setting, World
from simulation.world_admin import WorldAdmin
from support.fake_groups import FakeGroups
from support.fake_lease import FakeLease
from support.incidents import an_event, an_evidence
from support.log_lines import LogLines
from support.planted import as_it_was_found, plant
from support.shared_log import SharedLog, SharedLogSink
from txnwatch.sinks.abort.run_abort import RunningAbort
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.speaking import WHOLE, SpeakerRole
from txnwatch.state.incidents.untold import LONGEST_PAUSE_MS
from txnwatch.state.model.findings import Finding, StrayWrite
from txnwatch.state.model.incident import (
    ActionResult,
    EndKind,
    ExpectedOutcome,
    IncidentEvent,
    IncidentStatus,
    partition_of,
)
from txnwatch.state.model.ports import ActiveProducer, TransactionAdmin
from txnwatch.state.model.values import TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin

EAGER = AbortPolicy(after_ms=0, budget_per_hour=None, breaker_incidents=None)
_BATCH_MS = 70_000  # so that every pause between two tries is over
_RACES, _AT_ONCE, _AT_REST = 40, 2, 8


class Actors:
    """The product's side: a ledger and the abort, over a world."""

    def __init__(
        self,
        world: World,
        truth: Truth,
        most_between: int,
        forger_seed: int | None = None,
        *,
        hides: bool = False,
        mode: str = "on",
    ) -> None:
        """`hides` is as in Forger; `mode`: of the abort."""
        self.world, self.truth = world, truth
        self.elapsed_ms = 0
        self.live_claims, self.span_ends = LiveClaims(), SpanEnds(world)
        log = self.log = SharedLog()
        self.forger = Forger(world, log, forger_seed, hides=hides) if forger_seed is not None else None
        self.admin = WorldAdmin(world, truth, most_between)
        self.calls = self.begin = 0
        self.problems: list[str] = []
        self.known: set[str] = set()
        self.published: dict[int, IncidentEvent] = {}
        self.told: dict[str, IncidentEvent] = {}
        self.ended: dict[str, EndKind] = {}
        self.strays: list[StrayWrite] = []
        self.ends: dict[str, int] = {}
        self.ends_before: dict[str, int] = {}
        self.verified: set[tuple[str, str]] = set()
        self.ledger = self.a_ledger(log.sink() if self.forger is None else RacedSink(log, self.forger))
        self.abort = RunningAbort(mode, EAGER, 0, self.ledger, FakeLease(), "simulated", self.now_ms)

    def a_ledger(
        self,
        sink: SharedLogSink,
        *,
        name: str = "simulated",
        role: Callable[[], SpeakerRole] = lambda: WHOLE,
        now_ms: Callable[[], int] | None = None,
    ) -> RunningLedger:
        """The ledger of one watcher; `now_ms` is the clock of its machine, which is right without it."""
        admin: TransactionAdmin = self.admin  # type: ignore[assignment]
        return RunningLedger(
            *(
                Origin("cluster", "simulated:1", instance=name),
                admin,
                FakeGroups(),
                TopicOutbox(sink, LogLines()),
                now_ms or self.now_ms,
            ),
            new_records=self.log.reader(),
            has_read=lambda _: not self.log.is_away,
            bury=self.log.bury,
            on_event=lambda event: self._on_event(event, name),
            role=role,
        )

    def now_ms(self) -> int:
        """The time; it advances with each batch, for one watcher by more than every pause between two attempts."""
        return self.world.clocks.now_ms + self.elapsed_ms

    def batch(self, emitted: Sequence[Finding]) -> list[str]:
        """One micro-batch; returns what is wrong."""
        self.calls += 1
        self.elapsed_ms += _BATCH_MS
        self.begin, self.ends_before, self.ends = len(self.log.records), self.ends, {}
        if self.forger is not None:
            self.forger.write()
        self.strays += [one for one in emitted if isinstance(one, StrayWrite)]
        self.abort.recover()
        self.ledger.on_batch(emitted)
        self._check_suppressed()
        self.abort.on_batch()
        self.world.seen.update(self.abort.counts)
        self.abort.counts.clear()
        return self.taken_problems()

    def taken_problems(self) -> list[str]:
        """What is wrong since the last call."""
        problems = [*self.problems, *(f"HARM: {harm}" for harm in self.admin.harm), *self.truth.late]
        for found in (self.problems, self.admin.harm, self.truth.late):
            found.clear()
        return problems

    def wrong_on_topic(self) -> list[str]:
        """What is wrong on the topic after a batch."""
        ledger = self.ledger.ledger
        problems = wrong_on_topic(ledger, self.log, self.begin, self.ends_before)
        return [*problems, *self.live_claims.wrong(ledger, self.world)]

    def rest(self) -> list[str]:
        """The last batches, in which nothing moves and nobody forges; returns what is wrong after them."""
        if self.forger is not None:
            self.forger.is_over = True
        problems = [problem for _ in range(_AT_REST) for problem in self.batch([])]
        self.elapsed_ms += 2 * LONGEST_PAUSE_MS  # an end that others contradict follows at last
        problems += [problem for _ in range(_AT_REST) for problem in self.batch([])]
        told = self.told.values()
        if self.forger is None:
            decides = self.abort.abort.mode == "on"
            problems += untold(self.ledger.ledger, self.log, self.strays, decides=decides)
        at_the_end = (*lost_outcomes(told, self.log), *self._false_ends(told))
        return [*problems, *wrong_at_rest(self.ledger.ledger, self.log, self.world), *at_the_end]

    def _false_ends(self, told: Iterable[IncidentEvent]) -> Iterator[str]:
        """The ends of incidents that the ledger has told, and that are not those of the log."""
        for event in told:
            end = self.log.left.get(event.incident_id)
            log = self.world.data.get(partition_of(event)) if event.topic is not None else None
            if end is None or end.resolution is None or log is None or log.topic_id != event.topic_id:
                continue
            decides = {EndKind.COMMITTED: True, EndKind.ABORTED: False}
            if self.ended.get(event.incident_id) not in decides:
                continue
            closing = self.admin.decided_by(log, event.producer_id, event.txn_start_offset or 0, log.committed)
            decided = decides.get(end.resolution.how)
            if closing is not None and decided is not None and closing.commit is not decided:
                yield f"FALSE END: {event.subject} is {end.resolution.how} on the topic, and {closing} closed it"

    def _check_suppressed(self) -> None:
        ledger = self.ledger.ledger
        for key in ledger.findings.spans:
            known = ledger.store.open_span(*key)
            if known is None:
                self.problems.append(f"SUPPRESSED: {key} hangs, and no incident is open")

    def _on_event(self, event: IncidentEvent, name: str) -> None:
        if event.suggested_command == EVIL:
            self.problems.append(f"FORGED COMMAND: {event.subject} is published with the command of another client")
        if event.outcome_doubt is not None:
            self.world.seen[f"doubt: {event.outcome_doubt}"] += 1
        self.published[event.producer_id] = event
        if event.incident_id in self.told or self.ledger.ledger.book.is_found(event):
            self.told[event.incident_id] = event
        if event.resolution is not None:
            self.ended[event.incident_id] = event.resolution.how
        if not event.is_open:
            self.ends[event.incident_id] = event.sequence
        found = self.ledger_of(name).ledger.book.outcome_of(event).outcome
        if event.outcome_by in {None, name} and (self.forger is None or found == event.expected_outcome):
            self._outcome(event)  # that of another process may be forged while nobody speaks
        self._verified(event)
        self.problems += self.span_ends.wrong(event)

    def ledger_of(self, _: str) -> RunningLedger:
        """The ledger of a watcher's process."""
        return self.ledger

    def _verified(self, event: IncidentEvent) -> None:
        log = self.world.data.get(partition_of(event)) if event.topic is not None else None
        is_verified = event.action is not None and event.action.result == ActionResult.VERIFIED
        if not is_verified or log is None or log.topic_id != event.topic_id:
            return
        verified = (event.incident_id, str(event.action))
        if verified in self.verified:
            return  # later updates repeat it; the marker may have been lost since
        self.verified.add(verified)
        closing = self.admin.decided_by(log, event.producer_id, event.txn_start_offset or 0, log.committed)
        self.world.seen["verified by a marker"] += 1
        if closing is None or closing.commit:
            self.problems.append(f"FALSE RESULT: {event.subject} is verified to be aborted, and {closing} closed it")

    def _outcome(self, event: IncidentEvent) -> None:
        """Published when the incident opens, or found later."""
        is_told = event.incident_id in self.known or event.status is IncidentStatus.RESOLVED
        if is_told or event.verdict != Verdict.HANGING or event.expected_outcome == ExpectedOutcome.UNKNOWN:
            return
        self.known.add(event.incident_id)
        when = "outcome" if event.status == IncidentStatus.OPENED else "outcome found later"
        self.world.seen[f"{when}: {event.expected_outcome}"] += 1
        log = self.world.data.get(partition_of(event))
        if log is None or log.topic_id != event.topic_id:
            return
        # An outcome is one of the data that was confirmed; what is written since is for the abort to see.
        start, last = event.txn_start_offset or 0, event.evidence.last_sequence
        if log.has_offsets:
            last = log.last_written(event.producer_id, event.last_write_ms or 0)
        owners = self.truth.outcomes(self.world, log, event.producer_id, start, last)
        said = f"FALSE OUTCOME: {event.subject} has {event.expected_outcome}"
        if not owners <= {event.expected_outcome}:
            self.problems.append(f"{said}, and its owners {owners}")
        if event.expected_outcome != ExpectedOutcome.COMMIT:
            self.truth.said(self.world.owners.of(log, event.producer_id, start, last), said)


class AbortOracle(Oracle):
    """Also runs the ledger and the abort after every batch that was committed."""

    def __init__(self, world: World, actors: Actors) -> None:
        super().__init__(world)
        self.actors = actors

    def check(self, result: BatchResult) -> None:
        """See Oracle."""
        super().check(result)
        self.actors.span_ends.read(result.emitted)
        self.actors.admin.stands_still = self.world.setting.rate == 0.0
        if result.is_committed and not self.problems:
            self.problems.extend(self.actors.batch(result.emitted))
            self.problems.extend(self.actors.wrong_on_topic())

    def close(self, outstanding: Mapping[TopicPartition, int]) -> list[str]:
        """See Oracle."""
        if not self.problems:
            self.problems.extend(self.actors.rest())
        return super().close(outstanding)


def run_with_abort(
    seed: int,
    setting: Setting,
    reader_of: type[WorldReader] = WorldReader,
    *,
    forging: bool = False,
    hides: bool = False,
    mode: str = "on",
) -> RunOutcome:
    """One seed of the whole product, and of a client that forges events; equal arguments give equal outcomes."""
    forger_seed = seed + 2 if forging else None

    def actors_of(world: World, truth: Truth) -> Actors:
        return Actors(world, truth, 3, forger_seed, hides=hides, mode=mode)

    return run_with(actors_of, seed, setting, reader_of)


def run_with(
    actors_of: Callable[[World, Truth], Actors], seed: int, setting: Setting, reader_of: type[WorldReader] = WorldReader
) -> RunOutcome:
    """One seed with the product's side that `actors_of` makes."""
    with (
        witnessed(Truth()) as truth,
        mock.patch.object(running, "Oracle", lambda world: AbortOracle(world, actors_of(world, truth))),
    ):
        return running.run(seed, setting, reader_of)


@contextmanager
def believing() -> Iterator[None]:
    """A planted bug: the outcome that an abort rests on is the one from the events topic."""
    proven, follow = Book.proven, Book.follow

    def as_told(self: Book, record: IncidentEvent, now_ms: TimestampMs) -> None:
        follow(self, record, now_ms)
        known = self.store.known[record.incident_id]
        self.store.enter(replace(known, expected_outcome=record.expected_outcome))

    def as_published(self: Book) -> list[tuple[IncidentEvent, ProvenHang]]:
        return [(event, replace(found, outcome=event.expected_outcome)) for event, found in proven(self)]

    with (
        mock.patch.object(Book, "proven", as_published),
        mock.patch.object(Book, "follow", as_told),
        mock.patch.object(Book, "as_found", lambda _, event: event),
        as_it_was_found(),
    ):
        yield


def run_race(seed: int) -> tuple[list[str], Counter[str]]:
    """Evidence about any open span, hanging or not, while clients continue; returns the problems and the counts.

    The outcome in the evidence is the answer that its owners have got so far, as it is when the state finds it. For
    data of a live transaction it is wrong, and the evidence lives for one decision only. Everything behind the
    evidence has to hold by itself.
    """
    with witnessed(Truth()) as truth, as_it_was_found():
        rng = random.Random(seed)
        # A coordinator that forgets what it has decided, between the last look and the marker, is beyond any look.
        usual = [name for name in FAULTS if name not in {"unclean failover of the log", "forgotten id"}]
        names = [name for name in usual if rng.random() < 0.3] + ["lost marker", "stray write"]
        world = World(
            Setting(clients=1 + rng.randrange(3), faults=frozenset({*names, FAILED_APPEND})), random.Random(seed + 1)
        )
        actors = Actors(world, truth, most_between=1 + rng.randrange(20))
        problems: list[str] = []
        for _ in range(_RACES):
            for _ in range(rng.randrange(30)):
                world.step()
            forged = _forged(world, truth, rng)
            is_false_evidence = forged is not None and truth.is_live(world, forged)
            if forged is not None:
                plant(actors.ledger, forged, _row(world, truth, forged))
                actors.ledger.ledger.checks.due_ms = 2**62  # what is over is refused, not resolved
                actors.known.add(forged.incident_id)  # its outcome was given, also where an update repeats it
            found = actors.batch([])
            # False evidence excludes a commit, so only this counts: was the transaction live when it was ended?
            problems += [harm for harm in found if not (is_false_evidence and "was committed" in harm)]
            known = actors.ledger.ledger.store.known
            for one in [forged.incident_id] if forged is not None and is_false_evidence else list(known)[:-_AT_ONCE]:
                actors.ledger.ledger.findings.spans.pop(known.pop(one).span, None)  # type: ignore[arg-type]
            if problems:
                break
        return problems, world.seen


def _row(world: World, truth: Truth, event: IncidentEvent) -> ActiveProducer:
    row = WorldAdmin(world, truth, 1).reading(partition_of(event)).open_transaction(event.producer_id)
    assert row is not None
    return row


def _forged(world: World, truth: Truth, rng: random.Random) -> IncidentEvent | None:
    shown = [log for log in world.data.values() if log.is_listable and log.partition.topic not in world.hidden]
    everything = [(log, row) for log in shown for row in log.open_spans()]
    everything = [(log, row) for log, row in everything if log.producers[row[0]].open_start == row[1]]
    if not everything:
        return None
    log, (producer_id, start) = rng.choice(everything)
    reading = WorldAdmin(world, truth, 1).reading(log.partition)
    row = reading.open_transaction(producer_id)
    assert row is not None
    answers = truth.outcomes(world, log, producer_id, start)
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
        evidence=an_evidence(last_sequence=row.last_sequence),
        expected_outcome="commit" if "commit" in answers else "abort" if answers else "none",
    )
