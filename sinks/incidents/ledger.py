"""The ledger: which incidents are open, and which events are published about them.

Law: an incident is published only after a fresh read confirms it (a stray write is proven by the log itself). An
`opened` event is followed by exactly one `resolved` event, with `updated` events in between only for relevant changes.
Nothing is resolved without evidence. An incident is never opened twice.

The ledger's durable storage is the compacted events topic, which it follows. So a restart, a replayed micro-batch,
another instance or a lost Redis changes nothing: published events are known, the state emits the others again, and a
missed end is found when open incidents are checked again. An event on the topic is only a claim: events of other
writers are compared with what this process finds (sinks/incidents/claims.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from txnwatch.sinks.delivery.outbox import MirrorOutbox, Outbox, TopicOutbox
from txnwatch.sinks.incidents.checking import FollowUp, OpenChecks, OwnerNames
from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.confirm import Answers, ConfirmationQueues
from txnwatch.sinks.incidents.event_builder import Origin
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.opening import OUTCOME_BUDGET_MS, OutcomeRetries, SpanIncidents, TransactionIncidents
from txnwatch.sinks.incidents.own_findings import EvidenceStore, Findings
from txnwatch.state.abort.case import ProvenHang
from txnwatch.state.incidents.event_order import fitting
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import Finding, SpanEnded
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.state.model.ports import ConsumerGroups, FormerOwners, TransactionAdmin
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import Verdict

# Removes incidents that ended before the retention: from the events topic by a tombstone, then from the store.
#
# Several instances may write a tombstone for the same incident; that does no harm. An instance removes only incidents
# that it has itself known as ended for a while, because the time of an end on the topic may be forged.

RETENTION_MS = DurationMs(7 * 24 * 3_600_000)
PAUSE_MS = DurationMs(600_000)
AT_A_TIME = 1_000


@dataclass(slots=True)
class Retention:
    """How long an incident that ended is kept.

    Attributes:
        bury: removes incidents from the topic; raises SinkError if some may not be removed.
    """

    retention_ms: DurationMs = RETENTION_MS
    bury: Callable[[Sequence[str]], None] = lambda _: None
    _due_ms: TimestampMs = AT_ONCE

    def on_tidy(self, store: IncidentStore, now_ms: TimestampMs) -> None:
        """Removes what has expired; checks at most every 10 minutes once nothing is left over."""
        if now_ms < self._due_ms:
            return
        expired = store.expired(now_ms, self.retention_ms, AT_A_TIME)
        if len(expired) < AT_A_TIME:
            self._due_ms = now_ms + PAUSE_MS
        if not expired:
            return
        try:
            self.bury(expired)
        except SinkError:
            self._due_ms = now_ms + PAUSE_MS  # it is retried
            return
        store.drop(expired)


# Delivers the ledger's events: to the events topic first, and to its mirrors once they are on the topic.
#
# An event that is not on the topic is lost in a restart. Its incident would then never end in the mirrors.

TIDY_MS = DurationMs(5_000)


@dataclass(slots=True)
class Delivery:
    """The queues of the events topic and of its mirrors.

    Attributes:
        listens: whether published events are read back from the topic.
    """

    topic: TopicOutbox
    mirrors: Sequence[MirrorOutbox]
    store: IncidentStore
    retention: Retention
    on_event: Callable[[IncidentEvent], None]
    report: Callable[[str], None]
    listens: bool
    _tidy_ms: TimestampMs = AT_ONCE

    def publish(self, events: Sequence[IncidentEvent], now_ms: TimestampMs) -> None:
        """Delivers events in order, cut where they do not fit into a record."""
        events = [fitting(event) for event in events]
        if self.listens:
            self.store.sent(events)
        self.topic.put(events)
        taken = self.topic.deliver(now_ms)
        for mirror in self.mirrors:
            mirror.put(taken)
            mirror.deliver(now_ms)
        for event in events:
            self.on_event(event)

    def publish_again(self) -> int:
        """Publishes the last event of open incidents again if an invalid record follows it; returns how many.

        The events keep their sequence.
        """
        again = [fitting(event) for event in self.store.overwritten()]
        self.topic.put(again)
        return len(again)

    def resend_to(self, mirrors: Iterable[MirrorOutbox]) -> None:
        """Queues the latest event of every known incident again, for mirrors that may have missed some.

        Incidents with events that are not on the topic yet are left out: these events follow once they are.
        """
        waiting = self.topic.waiting_incidents
        events = [event for event in self.store.known.values() if event.incident_id not in waiting]
        for mirror in mirrors:
            mirror.put(events)

    def tidy(self, now_ms: TimestampMs) -> None:
        """Drops incidents that ended long ago, also in mirrors that show them as open, and fills emptied mirrors."""
        if now_ms < self._tidy_ms:
            return
        self._tidy_ms = now_ms + TIDY_MS
        self.store.forget(now_ms)
        for mirror in self.mirrors:
            mirror.forget(self.store.has_ended, now_ms)
            if mirror.has_lost_everything():
                self.report(f"{mirror.name} is empty and is filled again")
                self.resend_to([mirror])
        if not self.topic.waiting:
            self.retention.on_tidy(self.store, now_ms)


CONFIRM_BUDGET_MS = DurationMs(2_000)


@dataclass(slots=True)
class Ledger:
    """Turns findings of the state into events, each once.

    Attributes:
        topic: the queue of the events topic, the durable storage of the ledger.
        mirrors: the queues of the copies of the topic.
        new_records: returns the records of the events topic since the last call, ours and others'; None if the topic
            is not followed.
        counts: confirmations by answer, for the metrics.
        on_event: called with every event, after it was handed to the outboxes.
        doubted: partitions whose leader has refuted a candidate of the last batch.
        report: called once with the reason why a candidate could be neither confirmed nor refuted.
        retention: how long an incident that ended is kept.
        evidence: durable storage for evidence; None for none.
        former_owners: searches the coordinators' log for owners that no coordinator has; None for none.
        findings: what this process has found itself; the abort uses nothing else.
        store: the known incidents.
        claims: compares the events of other writers with the findings.
        checks: the next check of open incidents.
        answers: the answers of fresh reads.
    """

    origin: Origin
    admin: TransactionAdmin
    groups: ConsumerGroups
    topic: TopicOutbox
    now_ms: Callable[[], TimestampMs]
    mirrors: Sequence[MirrorOutbox] = ()
    new_records: Callable[[], Iterable[IncidentEvent | Overwritten]] | None = None
    on_event: Callable[[IncidentEvent], None] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    retention: Retention = field(default_factory=Retention)
    counts: Counter[str] = field(default_factory=Counter)
    doubted: set[TopicPartition] = field(default_factory=set)
    evidence: EvidenceStore | None = None
    former_owners: FormerOwners | None = None
    findings: Findings = field(init=False)
    claims: Claims = field(init=False)
    checks: OpenChecks = field(init=False)
    answers: Answers = field(init=False)
    store: IncidentStore = field(init=False)
    _delivery: Delivery = field(init=False)
    _outcomes: OutcomeRetries = field(init=False)
    _names: OwnerNames = field(init=False)
    _spans: SpanIncidents = field(init=False)
    _transactions: TransactionIncidents = field(init=False)
    _queues: ConfirmationQueues = field(default_factory=ConfirmationQueues)

    def __post_init__(self) -> None:
        self.findings = Findings(self.evidence)
        self.claims = Claims(self.origin, self.admin, self.findings, self.now_ms)
        self.answers = Answers(self.counts, self.report)
        self.store = self.claims.store
        self._delivery = Delivery(
            self.topic,
            self.mirrors,
            self.store,
            self.retention,
            self.on_event,
            self.report,
            listens=self.new_records is not None,
        )
        follow_up = FollowUp(self.admin, self.groups, self.report)
        self.checks = OpenChecks(self.claims, self.store, self.findings, follow_up)
        self._outcomes = OutcomeRetries(self.origin, self.admin, self.store, self.findings)
        self._names = OwnerNames(self.claims, self.store, self.former_owners)
        self._spans = SpanIncidents(
            origin=self.origin,
            admin=self.admin,
            claims=self.claims,
            store=self.store,
            findings=self.findings,
            follow_up=follow_up,
            checks=self.checks,
            outcomes=self._outcomes,
            queues=self._queues,
            answers=self.answers,
            now_ms=self.now_ms,
            refuted=self.doubted,
        )
        self._transactions = TransactionIncidents(
            self.origin, self.admin, self.claims, self.store, self.findings, self._queues, self.answers, self.now_ms
        )

    @property
    def can_wait(self) -> bool:
        """Whether the next barrier may wait: no incident is open, and no candidate and no event is queued."""
        waits = self._queues.waiting or self.claims.has_doubts or any(outbox.waiting for outbox in self.outboxes)
        return not (self.open_incidents or waits)

    def remember(self, found: Iterable[IncidentEvent | Overwritten]) -> None:
        """Loads events that were published before."""
        self.store.remember(found, self.now_ms())
        self.checks.due_ms = AT_ONCE

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self.store.open_incidents

    def on_batch(self, emitted: Sequence[Finding]) -> None:
        """Processes one micro-batch: ends first, then new candidates, then a check of open incidents."""
        now_ms = self.now_ms()
        self.doubted.clear()
        self._delivery.tidy(now_ms)
        events = list(self._listen(now_ms))
        self._queues.over(one for one in emitted if isinstance(one, SpanEnded))
        with self.admin.within(CONFIRM_BUDGET_MS):
            emitted = [*emitted, *self.claims.gone_on()]
            events.extend(self._spans.ended(emitted, now_ms))
            events.extend(self._spans.stray_writes(emitted, now_ms))
            events.extend(self._transactions.moved(emitted, now_ms))
            events.extend(self._spans.learned_owners(emitted, now_ms))
            events.extend(self._spans.new(emitted))
            events.extend(self._spans.withdrawn_outcomes(now_ms))
            events.extend(self._transactions.new(emitted))
        with self.admin.within(CONFIRM_BUDGET_MS):
            events.extend(self.checks.check(now_ms))
        self._delivery.publish(events, now_ms)
        with self.admin.within(OUTCOME_BUDGET_MS):
            found = list(self._outcomes.found(emitted, now_ms))
        self._delivery.publish(found, now_ms)
        with self.admin.within(OUTCOME_BUDGET_MS):
            named = list(self._names.found(now_ms))
        self._delivery.publish(named, now_ms)
        self.findings.keep(now_ms)

    def publish_next(self, event: IncidentEvent) -> bool:
        """Publishes the next event of an open incident. Returns whether the events topic already has it.

        Nothing is published if another instance has published the next event, or the end, in the meantime.
        """
        now_ms = self.now_ms()
        self._delivery.publish(list(self._listen(now_ms)), now_ms)
        if not self.store.is_next(event):
            return False
        self.claims.acted(event)
        self._delivery.publish([self.store.enter(self.claims.as_found(event))], now_ms)
        return self.topic.waiting == 0

    def proven(self) -> list[tuple[IncidentEvent, ProvenHang]]:
        """Open incidents about hanging transactions of which this process has its own evidence, with it."""
        return [
            (incident, evidence)
            for incident in self.open_incidents
            if incident.verdict == Verdict.HANGING and not incident.is_by_hand and self.claims.is_found(incident)
            if (key := incident.span) is not None and (evidence := self.findings.get(key)) is not None
        ]

    def wrote(self, incident: IncidentEvent, marker: Marker) -> None:
        """Records that a marker of this process is proven to have ended an incident's span."""
        if incident.span is not None:
            self.findings.wrote(incident.span, marker)

    @property
    def incidents(self) -> list[IncidentEvent]:
        """The latest event of every incident that is open or ended less than a day ago."""
        return list(self.store.known.values())

    @property
    def outboxes(self) -> list[Outbox]:
        """All queues, for the metrics."""
        return [self.topic, *self.mirrors]

    def fill_mirrors(self) -> None:
        """Queues the latest event of every known incident for all mirrors, which may have missed some."""
        for mirror in self.mirrors:
            mirror.has_lost_everything()  # it is filled in any case
        self._delivery.resend_to(self.mirrors)

    def _listen(self, now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        for event in self.new_records() if self.new_records is not None else ():
            if isinstance(event, Overwritten):
                self.store.overwrite(event.incident_id)
                continue
            is_new, answer = self.store.receive(event, now_ms)
            if is_new:  # queued events of the incident are older than this one
                self.topic.withdraw(event)
                for mirror in self.mirrors:
                    mirror.put([self.store.known[event.incident_id]])
                self.checks.due_ms = now_ms
            if answer is not None:
                yield answer
            elif is_new and (correction := self.claims.compare(event, now_ms)) is not None:
                yield correction
        spent = self.store.take_spent()
        self.claims.doubt_spent(spent)
        yield from map(self.claims.as_found, spent)
        if again := self._delivery.publish_again():
            self.counts["incidents published again (their last record was not an event)"] += again
