"""The ledger: which incidents are open, and which events are published about them. It decides; it does nothing itself.

Law: an incident is published only after a fresh read confirms it (a stray write is proven by the log itself). An
`opened` event is followed by one `resolved` event, with `updated` events in between only for relevant changes. Nothing
is resolved without evidence. An incident is never opened twice. A second `resolved` event follows only if a record of
another writer stands behind the first one.

Law: one instance speaks (speaking.py). Every instance finds, confirms and stores; only the speaker publishes. What an
instance finds while another one speaks is untold (untold.py). The speaker answers each record of another writer with
its own state, in the round that follows. An instance that begins to speak reads each open incident afresh, and then
tells what is untold.

The ledger's durable storage is the compacted events topic, which it follows. So a restart, a replayed micro-batch,
another instance or a lost Redis changes nothing: published events are known, the state emits the others again, and a
missed end is found when open incidents are checked again. An event on the topic is only a claim.

The parts (spans, transactions, outcomes, owners, checks) read the book, keep what they find in its `findings`, and want
changes. Only `_make` makes a change. `_take` takes what other writers have published.
Sans-IO: sinks/incidents/run_ledger.py carries out the plans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from txnwatch.state.evidence.ending import no_longer_open
from txnwatch.state.evidence.proven_hang import StoredFindings
from txnwatch.state.incidents.book import Book
from txnwatch.state.incidents.checking import DOUBLE, OpenChecks
from txnwatch.state.incidents.confirm import ConfirmationQueues, CountedConfirmations
from txnwatch.state.incidents.event_builder import fitting, named
from txnwatch.state.incidents.found_incidents import (
    OUTCOME_BUDGET_MS,
    OutcomeRetries,
    OwnerSearch,
    SpanIncidents,
    TransactionIncidents,
)
from txnwatch.state.incidents.incident_store import USED_UP, IncidentStore
from txnwatch.state.incidents.life import UNPUBLISHED, UNSTORED, Happening, NextStep
from txnwatch.state.incidents.own_findings import OwnFindings
from txnwatch.state.incidents.speaking import SILENT, UNHEARD_MS, SpeakerRole
from txnwatch.state.incidents.wanted import (
    AskToSpeak,
    Bury,
    Change,
    FallSilent,
    IsTopicRead,
    Now,
    OthersTold,
    Plan,
    Publish,
    ReadNewRecords,
    Say,
    Show,
    TakeOver,
    Tidy,
    Withdraw,
    Within,
    ask,
    intercepted,
)
from txnwatch.state.model.findings import Finding, SpanEnded, TransactionCandidate
from txnwatch.state.model.incident import (
    RETENTION_MS,
    IncidentEvent,
    IncidentStatus,
    Overwritten,
    resolved,
)
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import AT_ONCE, NEVER_MS, DurationMs, TimestampMs, TopicPartition, TopicWatch
from txnwatch.state.telling.commands import Origin

# The retention: incidents that ended long ago are removed from the events topic by a tombstone, then from the store.
#
# Only an instance that speaks writes tombstones. Speakers of other topics may write one for the same incident; that
# does no harm. An instance removes only incidents that it has itself known as ended for a while, because the time of an
# end on the topic may be forged.

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
        watch_of: how this instance watches a topic; None if it scans all.
        follows: whether published events are read back from the topic.
        is_signed: whether only events with a valid signature are read: then each is of a watcher that has the key.
        may_read_log: whether the coordinators' log can be searched for owners that no coordinator has.
        retention: how long an incident that ended is kept.
        counts: confirmations by answer, for the metrics.
        book: what is known about all incidents.
        checks: the next check of open incidents.
        speaks: whether this instance speaks, by the last answer.
        answers: the answers of fresh reads.
    """

    origin: Origin
    before: InitVar[StoredFindings | None] = None
    watch_of: InitVar[Callable[[str], TopicWatch] | None] = None
    follows: bool = False
    is_signed: bool = False
    may_read_log: InitVar[bool] = False
    retention: Retention = field(default_factory=Retention)
    counts: Counter[str] = field(default_factory=Counter)
    book: Book = field(init=False)
    checks: OpenChecks = field(init=False)
    speaks: bool = False
    _tenure: int = 0
    _silences: int = 0
    _role: SpeakerRole = SILENT
    _had_lease_ms: TimestampMs | None = None
    answers: CountedConfirmations = field(init=False)
    _queues: ConfirmationQueues = field(default_factory=ConfirmationQueues)
    _outcomes: OutcomeRetries = field(init=False)
    _owners: OwnerSearch = field(init=False)
    _spans: SpanIncidents = field(init=False)
    _transactions: TransactionIncidents = field(init=False)
    _tidying: Every[TimestampMs] = field(default_factory=lambda: Every(TIDY_MS))

    def __post_init__(
        self, before: StoredFindings | None, watch_of: Callable[[str], TopicWatch] | None, may_read_log: bool
    ) -> None:
        book = self.book = Book(self.origin, OwnFindings(before))
        book.watch_of = watch_of or book.watch_of
        self.answers = CountedConfirmations(self.counts)
        self.checks = OpenChecks(book)
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

    def hears(self, record: IncidentEvent) -> bool:
        """Whether a record of another writer is taken as that of a speaker: its outcome is kept as heard."""
        incident = self.store.known.get(record.incident_id, record)
        is_alone = self._role.is_alone if incident.topic is not None else self._role.is_only_teller
        return not (self.speaks and is_alone) or (self.is_signed and self.book.is_by_census(incident))

    def _is_answered(self, record: IncidentEvent, now_ms: TimestampMs) -> bool:
        """Whether this instance tells its own state of an incident again, because of a record of another writer.

        A watcher with other settings speaks, too. It may scan a topic that only a census watches here, and know more.
        So what both know is told once.
        """
        incident = self.store.known.get(record.incident_id)
        if not self.speaks or not self.book.defends(incident):
            return False
        return not (self.hears(record) and self.book.is_told_by(record, now_ms, is_signed=self.is_signed))

    @property
    def due_ms(self) -> TimestampMs:
        """When the next barrier has to be.

        At once if a candidate or an end waits for a fresh read, or the speaker has something left to say; while an
        incident is open, for its next check, and for what is not known about it yet. What ends an incident is written
        to a log that is read, or moves a last stable offset: that brings a barrier by itself.
        """
        if self._queues.waiting or self._spans.unread or self._had_lease_ms is not None:
            return AT_ONCE
        untold_ms = self.book.untold.due_ms(self.book.may_be_told) if self.speaks else NEVER_MS
        if not self.book.open_incidents:
            return untold_ms
        return min(untold_ms, self.checks.due_ms, self._outcomes.due_ms, self._owners.due_ms)

    def remember(self, records: Iterable[IncidentEvent | Overwritten], now_ms: TimestampMs) -> None:
        """Loads events that were published before."""
        self.store.looked_ms = now_ms
        self.book.remember(records, now_ms)
        self.checks.due_ms = AT_ONCE

    def on_batch(self, emitted: Sequence[Finding]) -> Plan[None]:
        """One micro-batch: what others have written, then ends, new candidates and open incidents, then the rest."""
        now_ms = yield from ask(Now())
        self.refuted.clear()
        self.book.looks.take(emitted)
        yield from self._published(self._first(emitted, now_ms))
        yield from self._tidy(now_ms)
        for learn in (self._outcomes.learn(emitted, now_ms), self._owners.learn(now_ms)):
            yield from self._published(ask(Within(OUTCOME_BUDGET_MS, learn)))
        yield from self.findings.keep(now_ms)

    def last(self) -> Plan[None]:
        """Before a stop: an instance that speaks no more falls silent, and delivers nothing that waits."""
        yield from self._published(self._listen((yield from ask(Now()))))

    def _first(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        yield from self._listen(now_ms)
        ends = [finding for finding in emitted if isinstance(finding, SpanEnded)]
        self._queues.over(ends)
        self.answers.undecided.over(ends)
        yield Within(CONFIRM_BUDGET_MS, self._emitted(emitted, now_ms))
        yield Within(CONFIRM_BUDGET_MS, self.checks.check(now_ms))
        yield from self._tell(now_ms)

    def _emitted(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> Plan[None]:
        yield from self._spans.end_over(emitted, now_ms)
        yield from self._spans.tell_stray_writes(emitted, now_ms)
        yield from self._transactions.end_over(emitted, now_ms)
        yield from self._spans.learn_owners(emitted, now_ms)
        yield from self._spans.open_confirmed(emitted)
        yield from self._outcomes.withdraw(now_ms)
        yield from self._transactions.open_confirmed(emitted)

    def publish_next(self, event: IncidentEvent) -> Plan[bool]:
        """Publishes the next event of an open incident. Returns whether the events topic already has it.

        Nothing is published if another instance speaks, or has published the next event or the end in the meantime.
        """
        now_ms = yield from ask(Now())
        yield from self._published(self._listen(now_ms))
        then = self.book.step(self.store.known.get(event.incident_id), Happening.DECIDED)
        if not self.speaks or not self.store.is_next(event) or then is not NextStep.UPDATE:
            return False
        if event.action is not None:
            self.book.acted[event.incident_id] = event.action
        next_one = Change(self.book.as_found(event), then)
        return (yield from self._published(ask(next_one)))

    def wrote(self, incident: IncidentEvent, marker: Marker) -> None:
        """Records that a marker of this process is proven to have ended an incident's span."""
        if incident.span is not None:
            self.findings.wrote(incident.span, marker)

    def _published(self, plan: Plan[Any]) -> Plan[bool]:
        """Makes the changes that a plan wants, and publishes them in order, cut where they do not fit into a record.

        If another instance speaks, they are kept as untold. Returns whether the topic has all that was published.
        """
        made: list[IncidentEvent] = []
        yield from intercepted(plan, lambda change: self._make(change, made))
        made = [event for event in made if not self.store.is_behind(event)]  # another writer was quicker
        role = yield from ask(AskToSpeak())
        if not self.speaks or role.tenure != self._tenure:
            role = SILENT  # it takes over before it publishes
        told: list[IncidentEvent] = []
        for event in made:
            if role.tells_transactions or (role.speaks and event.topic is not None):
                told.append(event)
            else:
                self.book.untold.keep(event)
        if not role.speaks:
            return False
        if self.follows:
            self.store.sent(told)
        return (yield from ask(Publish(told)))

    def _make(self, change: Change, made: list[IncidentEvent]) -> None:
        """The only place that makes a change of this process."""
        event, book = self.book.authored(named(change.event, self.origin.owners, self.origin.cluster)), self.book
        if change.step in UNSTORED:
            book.forget_found(event.incident_id)
        else:
            book.stored(event)
        if change.step in UNPUBLISHED:
            return
        if self.speaks and change.step is not NextStep.TELL_AGAIN and event.incident_id in book.untold:
            told = book.told_again(event, event.time_ms)  # the change is told with what is untold
            book.untold.told(event.incident_id)
            for told_event in told:
                book.stored(told_event)
            made.extend(map(fitting, told))
        else:
            made.append(fitting(event))

    def _listen(self, now_ms: TimestampMs) -> Plan[None]:
        """Takes the new records of the events topic.

        What another instance has written before this one begins to speak is taken over, and not answered. So this
        instance begins to speak only when it has read the topic to its end.
        """
        role = self._role = yield from ask(AskToSpeak())
        self.book.tells_transactions = role.tells_transactions
        if self.speaks and not (role.speaks and role.tenure == self._tenure):
            yield from self._fall_silent()
        if not self.speaks and role.silences != self._silences:
            yield OthersTold()
        self._silences = role.silences
        for record in (yield from ask(ReadNewRecords())):
            if isinstance(record, Overwritten):
                self.store.hide(record)
                if record.incident_id is None:
                    self.book.untold.begin_all_anew()
            else:
                yield from self._take(record, now_ms)
        for incident_id in self.store.take_hidden():
            if incident_id in self.store.known and self.store.known[incident_id].is_open:
                self.book.untold.mark(incident_id)
        yield from self._end_spent(now_ms)
        self.store.looked_ms = now_ms
        if not role.speaks:
            self._had_lease_ms = None
        elif not self.speaks:
            yield from self._take_over(role, now_ms)

    def _take_over(self, role: SpeakerRole, now_ms: TimestampMs) -> Plan[None]:
        """Begins to speak once the topic was read to the end that it had when this instance got the lease.

        After a minute it does so in any case: to tell something twice is better than to be silent.
        """
        since_ms = self._had_lease_ms if role.tenure == self._tenure else None
        is_first = since_ms is None
        self._tenure, self._had_lease_ms = role.tenure, now_ms if since_ms is None else since_ms
        if not (yield from ask(IsTopicRead(is_first))):
            if now_ms - self._had_lease_ms < UNHEARD_MS:
                return
            yield Say("the events topic could not be read to its end for a minute: events may be told twice")
        self.speaks, self._had_lease_ms, self.checks.due_ms = True, None, now_ms
        yield TakeOver()

    def _take(self, record: IncidentEvent, now_ms: TimestampMs) -> Plan[None]:
        """Takes one record of the topic."""
        taken = self.store.take(record, now_ms)
        if taken is not None and taken.is_next and self.hears(record):
            self.book.hear_outcome(record)
        if taken is None or (self.speaks and (taken.is_own or self.store.stands_behind(record))):
            return  # our own event follows it
        if taken.is_next:
            yield from self._take_name(record, now_ms)
        incident = self.store.known.get(record.incident_id)
        if self._is_answered(record, now_ms):
            self.book.follow(record, now_ms)
            for event in (yield from ask(Withdraw(record))):
                self.store.unsent(event)
                self.book.untold.keep(event)
        elif taken.is_next or (taken.is_own and incident is not None):
            self.checks.due_ms = now_ms
            yield Show(self.book.adopt(record, now_ms))
        elif incident is not None:
            self.book.untold.mark(record.incident_id)

    def _take_name(self, record: IncidentEvent, now_ms: TimestampMs) -> Plan[None]:
        """Lets a hang that was found here go on under the id of a record, if that is an earlier one."""
        own = self.book.found_under_later_id(record)
        then = self.book.step(own, Happening.EARLIER_ID)
        if own is None or then is NextStep.NOTHING:
            return
        if then is NextStep.END_AND_RENAME:
            yield Change(self.book.end_of(own, no_longer_open(now_ms, DOUBLE), now_ms), NextStep.END)
        renamed = replace(own, incident_id=record.incident_id, status=IncidentStatus.UPDATED, action=None)
        yield Change(replace(renamed, resolution=None), NextStep.RENAME)
        self.book.continues(own.incident_id, renamed, None)

    def _fall_silent(self) -> Plan[None]:
        """What the topic has not taken is untold, and what is on its way to it may be."""
        self.speaks = False
        for event in (yield from ask(FallSilent())):
            self.store.unsent(event)
            self.book.untold.keep(event)
        for incident_id in self.store.on_their_way:
            self.book.untold.mark(incident_id)

    def _tell(self, now_ms: TimestampMs) -> Plan[None]:
        """Tells what is untold, if this instance speaks: after what the log and fresh reads have shown."""
        if not self.speaks:
            return
        for incident_id in self.book.untold.take_due(self.book.may_be_told, now_ms):
            for event in self.book.told_again(self.store.known[incident_id], now_ms):
                yield Change(event, NextStep.TELL_AGAIN)

    def _end_spent(self, now_ms: TimestampMs) -> Plan[None]:
        """Ends incidents whose ids are spent; what was found here continues under another id."""
        for spent in self.store.take_spent():
            self.book.untold.told(spent.incident_id)
            if not spent.is_open:
                yield Change(spent, NextStep.END_SPENT)
                continue
            then = self.book.step(spent, Happening.ID_IS_SPENT)
            last, candidate = self.book.as_found(spent), self.findings.transactions.get(spent.incident_id)
            yield Change(resolved(last, now_ms, no_longer_open(now_ms, USED_UP)), NextStep.END_SPENT)
            if then is NextStep.END_AND_OPEN:
                next_id = self.store.unused(spent.first_id or self._first_id(spent, candidate))
                opened = replace(last, incident_id=next_id, sequence=1, status=IncidentStatus.OPENED, action=None)
                yield Change(replace(opened, time_ms=now_ms), then)
                self.book.continues(spent.incident_id, opened, candidate)

    def _first_id(self, spent: IncidentEvent, candidate: TransactionCandidate | None) -> str:
        if candidate is None:
            return spent.incident_id
        return self.book.transaction_id(candidate.producer_id, candidate.view, candidate)

    def _tidy(self, now_ms: TimestampMs) -> Plan[None]:
        """Drops incidents that ended long ago, also in mirrors that show them as open."""
        if not self._tidying.take(now_ms):
            return
        self.store.forget(now_ms)
        self.book.forget_old()
        if self.speaks and (yield from ask(Tidy(self.store.has_ended))):
            yield from self.retention.on_tidy(self.store, now_ms)
