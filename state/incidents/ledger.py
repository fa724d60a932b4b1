"""The ledger: which incidents are open, and which events are published about them. It decides; it does nothing itself.

Law: an incident is published only after a fresh read confirms it (a stray write is proven by the log itself). An
`opened` event is followed by one `resolved` event, with `updated` events in between only for relevant changes. Nothing
is resolved without evidence. An incident is never opened twice. A second `resolved` event follows only if a record of
another writer is not true, or lacks the outcome.

The ledger's durable storage is the compacted events topic, which it follows. So a restart, a replayed micro-batch,
another instance or a lost Redis changes nothing: published events are known, the state emits the others again, and a
missed end is found when open incidents are checked again. An event on the topic is only a claim.

Law: of two instances the one that knows more speaks (speakers.py, ends.py). An event with `unknown` waits while another
instance knows the outcome. These do not wait: the result of a marker, a correction, the end of a false claim, the
withdrawal of an outcome that this process has found itself, and an event that is published again because a record hides
it. If another writer has published another end, the one that is found here follows it.

The parts (spans, transactions, outcomes, owners, checks, doubts) read the book, keep what they find in its `findings`,
and want changes. Only `_make` makes a change. The store itself takes what other writers have published (`_listen`).
Sans-IO: sinks/incidents/run_ledger.py carries out the plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.incidents.book import Book, IncidentStore
from txnwatch.state.incidents.checking import Doubts, FollowUp, OpenChecks
from txnwatch.state.incidents.confirm import Answers, ConfirmationQueues
from txnwatch.state.incidents.event_builder import fitting, named
from txnwatch.state.incidents.found_incidents import (
    OUTCOME_BUDGET_MS,
    OutcomeRetries,
    OwnerSearch,
    SpanIncidents,
    TransactionIncidents,
)
from txnwatch.state.incidents.life import MAKING, Happening, NextStep, step
from txnwatch.state.incidents.own_findings import OwnFindings
from txnwatch.state.incidents.wanted import (
    Bury,
    Change,
    FindAnotherInstance,
    FollowRecord,
    Now,
    Plan,
    Publish,
    PublishAgain,
    ReadNewRecords,
    Tidy,
    Within,
    ask,
    intercepted,
)
from txnwatch.state.model.findings import Finding, SpanEnded
from txnwatch.state.model.incident import (
    RETENTION_MS,
    IncidentEvent,
    Overwritten,
    updated,
)
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs, TopicPartition
from txnwatch.state.telling.commands import Origin

# The retention: incidents that ended long ago are removed from the events topic by a tombstone, then from the store.
#
# Several instances may write a tombstone for the same incident; that does no harm. An instance removes only incidents
# that it has itself known as ended for a while, because the time of an end on the topic may be forged.

PAUSE_MS = DurationMs(600_000)
AT_A_TIME = 1_000


@dataclass(slots=True)
class Retention:
    """How long an incident that ended is kept."""

    retention_ms: DurationMs = RETENTION_MS
    _turn: Every[TimestampMs] = field(default_factory=lambda: Every(PAUSE_MS))

    def on_tidy(self, store: IncidentStore, now_ms: TimestampMs) -> Plan[None]:
        """Removes what has expired; checks at most every 10 minutes once nothing is left over."""
        if not self._turn.is_due(now_ms):
            return
        expired = store.expired(now_ms, self.retention_ms, AT_A_TIME)
        if len(expired) < AT_A_TIME:
            self._turn.begin(now_ms)
        if not expired:
            return
        if not (yield from ask(Bury(expired))):
            self._turn.begin(now_ms)  # it is retried
            return
        store.drop(expired)


# The ledger.

CONFIRM_BUDGET_MS = DurationMs(2_000)
TIDY_MS = DurationMs(5_000)


@dataclass(slots=True)
class Ledger:
    """Turns findings of the state into events, each once.

    Attributes:
        before: what an earlier process of this watch has found.
        follows: whether published events are read back from the topic.
        may_read_log: whether the coordinators' log can be searched for owners that no coordinator has.
        retention: how long an incident that ended is kept.
        counts: confirmations by answer, for the metrics.
        book: what is known about all incidents.
        checks: the next check of open incidents.
        doubts: what must be read again because of events of other writers.
        answers: the answers of fresh reads.
    """

    origin: Origin
    before: InitVar[StoredFindings | None] = None
    follows: bool = False
    may_read_log: InitVar[bool] = False
    retention: Retention = field(default_factory=Retention)
    counts: Counter[str] = field(default_factory=Counter)
    book: Book = field(init=False)
    checks: OpenChecks = field(init=False)
    doubts: Doubts = field(init=False)
    answers: Answers = field(init=False)
    _queues: ConfirmationQueues = field(default_factory=ConfirmationQueues)
    _outcomes: OutcomeRetries = field(init=False)
    _owners: OwnerSearch = field(init=False)
    _spans: SpanIncidents = field(init=False)
    _transactions: TransactionIncidents = field(init=False)
    _tidying: Every[TimestampMs] = field(default_factory=lambda: Every(TIDY_MS))

    def __post_init__(self, before: StoredFindings | None, may_read_log: bool) -> None:
        book = self.book = Book(self.origin, OwnFindings(before))
        self.answers = Answers(self.counts)
        self.doubts = Doubts(book)
        self.checks = OpenChecks(book, self.doubts, FollowUp())
        self._outcomes = OutcomeRetries(book)
        self._owners = OwnerSearch(book, may_read_log)
        self._spans = SpanIncidents(book, self.checks, self._outcomes, self._queues, self.answers)
        self._transactions = TransactionIncidents(book, self._queues, self.answers)

    @property
    def findings(self) -> OwnFindings:
        """What this process has found itself; the abort uses nothing else."""
        return self.book.findings

    @property
    def store(self) -> IncidentStore:
        """The latest event of each incident."""
        return self.book.store

    @property
    def refuted(self) -> set[TopicPartition]:
        """The partitions whose leader has refuted a candidate of the last batch."""
        return self._spans.refuted

    @property
    def is_waiting(self) -> bool:
        """Whether an incident is open or an end waits, or a candidate or a doubt waits for a fresh read."""
        return bool(self.book.open_incidents or self._queues.waiting or self.doubts or self.book.silence.has_ends)

    def remember(self, found: Iterable[IncidentEvent | Overwritten], now_ms: TimestampMs) -> None:
        """Loads events that were published before."""
        self.store.remember(found, now_ms)
        for event in self.book.open_incidents if self.follows else ():
            self.book.silence.heard(event)
        self.checks.due_ms = AT_ONCE

    def on_batch(self, emitted: Sequence[Finding]) -> Plan[None]:
        """One micro-batch: what others have written, then ends, new candidates and open incidents, then the rest."""
        now_ms = yield from ask(Now())
        self.refuted.clear()
        self.book.looks.take(emitted)
        yield from self._tidy(now_ms)
        yield from self._published(self._first(emitted, now_ms), now_ms)
        for learn in (self._outcomes.learn(emitted, now_ms), self._owners.learn(now_ms)):
            yield from self._published(ask(Within(OUTCOME_BUDGET_MS, learn)), now_ms)
        yield from self.findings.keep(now_ms)

    def _first(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        yield from self._listen(now_ms)
        for end in self.book.silence.ends_to_publish(self.store.known, now_ms):
            yield Change(end, NextStep.PUBLISH_AGAIN)
        ends = [one for one in emitted if isinstance(one, SpanEnded)]
        self._queues.over(ends)
        self.answers.undecided.over(ends)
        yield Within(CONFIRM_BUDGET_MS, self._emitted(emitted, now_ms))
        yield Within(CONFIRM_BUDGET_MS, self.checks.check(now_ms))

    def _emitted(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        emitted = [*emitted, *(yield from self.doubts.read_again())]
        yield from self._spans.end_over(emitted, now_ms)
        yield from self._spans.tell_stray_writes(emitted, now_ms)
        yield from self._transactions.end_over(emitted, now_ms)
        yield from self._spans.learn_owners(emitted, now_ms)
        yield from self._spans.open_confirmed(emitted)
        yield from self._outcomes.withdraw(now_ms)
        yield from self._transactions.open_confirmed(emitted)

    def publish_next(self, event: IncidentEvent) -> Plan[bool]:
        """Publishes the next event of an open incident. Returns whether the events topic already has it.

        Nothing is published if another instance has published the next event, or the end, in the meantime.
        """
        now_ms = yield from ask(Now())
        yield from self._published(self._listen(now_ms), now_ms)
        then = self.book.step(self.store.known.get(event.incident_id), Happening.DECIDED)
        if not self.store.is_next(event) or then is not NextStep.TELL:
            return False
        if event.action is not None:
            self.book.acted[event.incident_id] = event.action
        next_one = Change(self.book.as_found(event), then)
        return (yield from self._published(ask(next_one), now_ms))

    def leaves_decision(self, event: IncidentEvent) -> bool:
        """Whether a decision that leads to no marker is another instance's, which knows the outcome."""
        return self.book.silence.knows_less(self.book.as_found(event))

    def wrote(self, incident: IncidentEvent, marker: Marker) -> None:
        """Records that a marker of this process is proven to have ended an incident's span."""
        if incident.span is not None:
            self.findings.wrote(incident.span, marker)

    def _published(self, plan: Plan[Any], now_ms: TimestampMs) -> Plan[bool]:
        """Makes the changes that a plan wants, and publishes them in order, cut where they do not fit into a record.

        Returns whether the events topic has everything that was published.
        """
        made: list[IncidentEvent] = []
        yield from intercepted(plan, lambda change: self._make(change, made, now_ms))
        made = [event for event in made if not self.store.is_behind(event)]  # another writer was quicker
        if self.follows:
            self.store.sent(made)
        return (yield from ask(Publish(made)))

    def _make(self, change: Change, made: list[IncidentEvent], now_ms: TimestampMs) -> bool:
        """The only place that makes a change of this process. An end is stored at once, also if it waits."""
        event = named(change.event, self.origin.owners, self.origin.cluster)
        making = MAKING[change.step]
        is_kept = making.may_wait and self.book.silence.keep_back(event, now_ms)
        if is_kept and event.is_open:
            return False
        if change.step is NextStep.OPEN:
            self.book.ends.open(event)
        if making.is_stored:
            self.store.enter(event)
            if not event.is_open:
                self.book.ends.take_found(event, now_ms)
                self.book.forget_found(event.incident_id)
        if is_kept:
            self.store.sent([fitting(event)])  # so that it follows a record with its sequence
        elif making.is_published:
            self.book.waiting.pop(event.incident_id, None)
            self.book.silence.published(event.incident_id)
            made.append(fitting(event))
        return True

    def _listen(self, now_ms: TimestampMs) -> Plan[None]:
        """Takes the new records of the events topic, and makes the steps that follow.

        An end that is published again follows all records of its incident, and so does what a record hides.
        """
        for record in (yield from ask(ReadNewRecords())):
            if isinstance(record, Overwritten):
                self.store.overwrite(record.incident_id)
                self.book.silence.hidden(record.incident_id)
            else:
                yield from self._take(record, now_ms)
        self.book.silence.is_another_there = yield from ask(FindAnotherInstance())
        yield from self._end_spent()
        yield from self._end_again(now_ms)
        yield from self._publish_over_invalid()

    def _take(self, record: IncidentEvent, now_ms: TimestampMs) -> Plan[None]:
        """Takes one record, and makes the step that follows."""
        received = self.book.receive(record, now_ms)
        known = received.known
        if known is None:
            return
        if received.happens is None:  # the last event is the last record again
            self.book.waiting.pop(known.incident_id, None)
            return
        if received.is_new:
            end_waits = self.book.silence.waiting_end(record.incident_id) is not None
            yield from self._follow(record, known, now_ms)
            if end_waits and record.is_open:
                self.book.ends.follow(record)
                return
        else:
            self.book.silence.hidden(record.incident_id)
        then = step(received.was, received.happens)
        match then:
            case NextStep.END_AGAIN:
                self.book.ends.follow(record)
            case NextStep.PUBLISH_AGAIN:
                yield Change(self.book.last_version(known), then)
            case NextStep.CORRECT:
                yield Change(self.book.as_found(updated(known, now_ms)), then)
            case NextStep.WAIT:
                self.book.waiting.setdefault(known.incident_id, received.happens)
            case NextStep.READ_AGAIN:
                self.doubts.add(known)

    def _follow(self, record: IncidentEvent, known: IncidentEvent, now_ms: TimestampMs) -> Plan[None]:
        """The next event of an incident is another writer's: what is queued for the topic is older."""
        yield FollowRecord(record, known)
        self.checks.due_ms = now_ms
        self.book.silence.heard(record)
        self.book.waiting.pop(known.incident_id, None)

    def _end_spent(self) -> Plan[None]:
        """Ends incidents whose ids are spent. Their subjects are read again, and continue under another id."""
        for spent in self.store.take_spent():
            self.doubts.add(spent)
            found = self.book.ends.found(spent.incident_id)
            last = replace(found, sequence=spent.sequence) if found is not None else self.book.as_found(spent)
            yield Change(last, NextStep.END_AND_READ_AGAIN)

    def _end_again(self, now_ms: TimestampMs) -> Plan[None]:
        """Publishes ends that were found here behind the records of other writers that say otherwise."""
        for incident_id in self.book.ends.due:
            if self.store.is_spent(incident_id):
                self.book.ends.spend(incident_id)
                continue
            end = self.book.ends.take_due(incident_id, self.store.known.get(incident_id), now_ms)
            if end is not None:
                yield Change(end, NextStep.END_AGAIN)

    def _publish_over_invalid(self) -> Plan[None]:
        """Publishes the last events of incidents again that a tombstone, or a record that is no event, hides."""
        overwritten = self.store.overwritten()
        for one in (known for known, then in overwritten if then is NextStep.WAIT):
            self.book.waiting.setdefault(one.incident_id, Happening.RECORD_IS_INVALID)
        again = [fitting(one) for one, then in overwritten if then is NextStep.PUBLISH_AGAIN]
        if again:
            self.counts["incidents published again (their last record was not an event)"] += len(again)
            yield PublishAgain(again)

    def _tidy(self, now_ms: TimestampMs) -> Plan[None]:
        """Drops incidents that ended long ago, also in mirrors that show them as open."""
        if not self._tidying.take(now_ms):
            return
        self.store.forget(now_ms)
        self.book.forget_old(now_ms)
        if (yield from ask(Tidy(self.store.has_ended))):
            yield from self.retention.on_tidy(self.store, now_ms)
