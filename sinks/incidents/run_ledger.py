"""Carries out the plans of the ledger: reads the cluster, delivers events, and keeps the evidence.

It decides nothing about incidents (state/incidents/ledger.py does). An event goes to the events topic first, and to the
mirrors once it is on the topic: an event that is not on the topic is lost in a restart, and its incident would then
never end in the mirrors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from txnwatch.sinks.delivery.outbox import MirrorQueue, TopicOutbox
from txnwatch.sinks.incidents.evidence_file import EvidenceStore
from txnwatch.state.incidents.ledger import Ledger, Retention
from txnwatch.state.incidents.speaking import WHOLE, SpeakerRole
from txnwatch.state.incidents.wanted import (
    AskToSpeak,
    Bury,
    FallSilent,
    IsTopicRead,
    Keep,
    OthersTold,
    Plan,
    PlanRunner,
    Publish,
    ReadFormerOwners,
    ReadGroups,
    ReadNewRecords,
    ReadWaitingGroups,
    Say,
    Show,
    T,
    TakeOver,
    Tidy,
    Wanted,
    Way,
    Withdraw,
)
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.incident import RETENTION_MS, IncidentEvent, Overwritten
from txnwatch.state.model.ports import ConsumerGroups, FormerOwners, TransactionAdmin
from txnwatch.state.model.values import AT_ONCE, DurationMs, TimestampMs, TopicPartition, TopicWatch
from txnwatch.state.telling.commands import Origin

# The ledger of a watch.


@dataclass(slots=True)
class RunningLedger:
    """The ledger of one watch, with its connections.

    Attributes:
        topic: the queue of the events topic, the durable storage of the ledger.
        mirrors: the queues of the copies of the topic.
        new_records: returns the records of the events topic since the last call, ours and others'; None if the topic
            is not followed.
        has_read: whether they reach to the end of the topic, as it was at the first of several calls.
        on_event: called with every event, after it was handed to the queues.
        on_record: called with what is stored of each record of another writer.
        report: receives lines for the operator.
        retention_ms: how long an incident that ended is kept.
        bury: removes incidents from the topic; raises SinkError if some may not be removed.
        evidence: durable storage for evidence; None for none.
        former_owners: searches the coordinators' log for owners that no coordinator has; None for none.
        role: what this instance publishes now; asked before each publication.
        watch_of: how this instance watches a topic; others end the incidents of topics that it does not watch.
        is_signed: whether only signed events are read.
        decides: whether aborts are decided: each barrier may be the one for it.
        ledger: what decides.
    """

    origin: Origin
    admin: TransactionAdmin
    groups: ConsumerGroups
    topic: TopicOutbox
    now_ms: Callable[[], TimestampMs]
    mirrors: Sequence[MirrorQueue] = ()
    new_records: Callable[[], Iterable[IncidentEvent | Overwritten]] | None = None
    has_read: Callable[[bool], bool] = lambda _: True
    on_event: Callable[[IncidentEvent], None] = lambda _: None
    on_record: Callable[[IncidentEvent], object] = lambda _: None
    report: Callable[[str], None] = lambda _: None
    retention_ms: DurationMs = RETENTION_MS
    bury: Callable[[Sequence[str]], None] = lambda _: None
    evidence: EvidenceStore | None = None
    former_owners: FormerOwners | None = None
    role: Callable[[], SpeakerRole] = lambda: WHOLE
    watch_of: Callable[[str], TopicWatch] = lambda _: TopicWatch.BY_SCAN
    is_signed: bool = False
    decides: bool = False
    ledger: Ledger = field(init=False)
    _delivery: Delivery = field(init=False)
    _reads: PlanRunner = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(
            self.origin,
            before=self.evidence.load() if self.evidence is not None else None,
            follows=self.new_records is not None,
            may_read_log=self.former_owners is not None,
            retention=Retention(self.retention_ms),
            watch_of=self.watch_of,
            is_signed=self.is_signed,
        )
        self._delivery = Delivery(self.topic, self.mirrors, self.on_event, self.report)
        self._reads = PlanRunner(self.admin, self.now_ms, self.ways())

    def ways(self) -> dict[type[Wanted[Any]], Way]:
        """How everything is done that a plan of the ledger wants, beside fresh reads."""
        delivery, owners, evidence = self._delivery, self.former_owners, self.evidence
        ways: dict[type[Wanted[Any]], Way] = {
            Publish: lambda wanted: delivery.publish(wanted.events, self.now_ms()),
            AskToSpeak: lambda _: self.role(),
            TakeOver: lambda _: self.fill_mirrors(),
            OthersTold: lambda _: self.leave_to_others(),
            FallSilent: lambda _: delivery.topic.clear(),
            Show: lambda wanted: self.on_record(wanted.event),
            Withdraw: lambda wanted: delivery.topic.withdraw(wanted.record),
            ReadNewRecords: lambda _: list(self.new_records()) if self.new_records is not None else [],
            IsTopicRead: lambda wanted: self.has_read(wanted.is_first),
            Tidy: lambda wanted: delivery.tidy(self._told(), wanted.has_ended, self.now_ms()),
            Bury: lambda wanted: self._is_buried(wanted.incident_ids),
            ReadGroups: lambda wanted: self.groups.committed_offsets(wanted.partitions),
            ReadWaitingGroups: lambda wanted: self.groups.waiting(wanted.spans),
            Keep: lambda wanted: evidence.keep(wanted.findings) if evidence is not None else None,
            Say: lambda wanted: self.report(wanted.text),
        }
        return ways if owners is None else {**ways, ReadFormerOwners: lambda wanted: owners.read(wanted.producer_ids)}

    @property
    def due_ms(self) -> TimestampMs:
        """When the next barrier has to be: at once if an event waits for the topic, or an abort may have to be decided.

        The mirrors deliver in threads of their own.
        """
        is_deciding = self.decides and bool(self.ledger.book.open_incidents)
        return AT_ONCE if is_deciding or self.topic.waiting else self.ledger.due_ms

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self.ledger.book.open_incidents

    @property
    def incidents(self) -> list[IncidentEvent]:
        """The latest event of every incident that is open or ended less than a day ago."""
        return list(self.ledger.store.known.values())

    @property
    def refuted(self) -> set[TopicPartition]:
        """The partitions whose leader has refuted a candidate of the last batch."""
        return self.ledger.refuted

    @property
    def counts(self) -> Counter[str]:
        """Confirmations by answer, for the metrics."""
        return self.ledger.counts

    @property
    def speaks(self) -> bool:
        """Whether this instance speaks, by the last answer."""
        return self.ledger.speaks

    def lacking(self, *, has_speaker: bool) -> int:
        """How many events the topic lacks: those on their way, and without any speaker, those that nobody publishes."""
        book = self.ledger.book
        return self.topic.waiting + (0 if has_speaker else sum(map(book.may_be_told, book.untold)))

    @property
    def undecided(self) -> list[str]:
        """The open data that fresh reads prove nothing about for long, with the reasons."""
        return self.ledger.answers.undecided.lasting(self.now_ms())

    @property
    def outboxes(self) -> list[TopicOutbox | MirrorQueue]:
        """All queues, for the metrics."""
        return [self.topic, *self.mirrors]

    def remember(self, records: Iterable[IncidentEvent | Overwritten]) -> None:
        """Loads events that were published before."""
        self.ledger.remember(records, self.now_ms())

    def leave_to_others(self) -> None:
        """Lets all mirrors know that another instance has told what is on the topic."""
        for mirror in self.mirrors:
            mirror.others_told()

    def fill_mirrors(self) -> None:
        """Gives the latest event of every known incident to all mirrors, which may have missed some."""
        events = self._delivery.on_topic(self._told())
        for mirror in self.mirrors:
            mirror.has_lost_everything()  # it is filled in any case
            mirror.take_over(events, self.ledger.store.ended_since_ms)

    def _told(self) -> list[IncidentEvent]:
        """The incidents that are on the topic as they are known here: a mirror never gets what the topic has not."""
        untold = self.ledger.book.untold
        return [event for event in self.incidents if event.incident_id not in untold]

    def on_batch(self, emitted: Sequence[Finding]) -> None:
        """Processes the output of one micro-batch."""
        self.run(self.ledger.on_batch(emitted))

    def deliver_last(self, hand_over: Callable[[], None] = lambda: None) -> None:
        """Tries to deliver what waits once more, before a stop.

        `hand_over` is called once the events topic has its last event: a mirror that does not answer takes the rest of
        the time of a stop.
        """
        self.run(self.ledger.last())
        self.topic.deliver_last(self.now_ms())
        hand_over()
        for mirror in self.mirrors:
            mirror.deliver_last(self.now_ms())

    def run(self, plan: Plan[T]) -> T:
        """Carries out a plan of the ledger."""
        return self._reads.run(plan)

    def _is_buried(self, incident_ids: Sequence[str]) -> bool:
        try:
            self.bury(incident_ids)
        except SinkError:
            return False
        return True


# The delivery of its events.


@dataclass(slots=True)
class Delivery:
    """The queues of the events topic and of its mirrors.

    Attributes:
        on_event: called with every event, after it was handed to the queues.
        report: receives lines for the operator.
    """

    topic: TopicOutbox
    mirrors: Sequence[MirrorQueue]
    on_event: Callable[[IncidentEvent], None]
    report: Callable[[str], None]

    def publish(self, events: Sequence[IncidentEvent], now_ms: TimestampMs) -> bool:
        """Delivers events in order; returns whether the topic has everything."""
        self.topic.put(events)
        taken = self.topic.deliver(now_ms)
        for mirror in self.mirrors:
            mirror.put(taken)
            mirror.deliver(now_ms)
        for event in events:
            self.on_event(event)
        return not self.topic.waiting

    def tidy(self, incidents: Sequence[IncidentEvent], has_ended: Callable[[str], bool], now_ms: TimestampMs) -> bool:
        """See wanted.Tidy; `incidents` are the latest events of all incidents."""
        for mirror in self.mirrors:
            mirror.forget(has_ended, now_ms)
            if mirror.has_lost_everything():
                self.report(f"{mirror.name} is empty and is filled again")
                mirror.put(self.on_topic(incidents))
        return not self.topic.waiting

    def on_topic(self, incidents: Iterable[IncidentEvent]) -> list[IncidentEvent]:
        """The incidents without events that are not on the topic yet: these events follow once they are."""
        waiting = self.topic.waiting_incidents
        return [event for event in incidents if event.incident_id not in waiting]
