"""What is known about the incidents of one cluster: the events on the topic, and what this process has found itself.

`IncidentStore` (incident_store.py) has the latest event of every incident, from this instance and from others. `Book`
adds what this process has found.

Law: a claim never replaces a finding. Anyone who may write the events topic can write an `opened` about a healthy
transaction, a `resolved` about a hanging one, any outcome and any command. While this process speaks, nothing of a
record about an incident that it has found is used but the sequence and the decision. While another instance speaks, the
status, the time and the end of a record are used too, because they are what consumers see. While another instance may
speak beside this one, the outcome is heard.

Law: a known outcome is not lost when another instance begins to speak. The outcome that a former speaker has published
stays in the event, with its author (`outcome_by`), until the incident ends, or until this process finds out that it no
longer counts. The abort never uses it.

No I/O, no clock. The ledger makes the changes of this process. Its parts add what they find to `findings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeGuard

from txnwatch.state.evidence.outcome import Outcome, unknown, with_outcome
from txnwatch.state.evidence.proven_hang import ProvenHang
from txnwatch.state.incidents.claims import (
    OwnState,
    believed,
    differs,
    is_elsewhere,
)
from txnwatch.state.incidents.event_builder import LookTimes, named
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.life import Happening, NextStep, step
from txnwatch.state.incidents.own_findings import OwnFindings, key_of
from txnwatch.state.incidents.untold import UntoldIncidents
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import (
    Action,
    EndKind,
    ExpectedOutcome,
    IncidentEvent,
    IncidentStatus,
    OutcomeDoubt,
    Overwritten,
    Resolution,
    resolved,
    transaction_incident_id,
    updated,
)
from txnwatch.state.model.transaction import TransactionView
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicWatch
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin, as_read

# What an instance says that has withdrawn an outcome: it has read the data later, and knows more.
_WITHDRAWN: Final = frozenset({OutcomeDoubt.WRITTEN_SINCE, OutcomeDoubt.BEGUN_SINCE, OutcomeDoubt.CONTRADICTION})


class ToldOutcome(NamedTuple):
    """An outcome that another instance has published, and its name."""

    outcome: ExpectedOutcome
    by: str


@dataclass(slots=True)
class Book:
    """The incidents of one cluster.

    Attributes:
        findings: what this process has found; the abort uses nothing else.
        store: the latest event of each incident.
        untold: the incidents about which the topic does not say what this process knows.
        looks: when the last barriers were listed.
        acted: the last decision of this process about each incident, as it was published.
        watch_of: how the partitions of a topic are watched by this instance, and by those that share its lease.
        tells_transactions: whether this instance tells incidents about whole transactions, if it speaks.
    """

    origin: Origin
    findings: OwnFindings
    store: IncidentStore = field(init=False)
    untold: UntoldIncidents = field(default_factory=UntoldIncidents)
    looks: LookTimes = field(default_factory=LookTimes)
    acted: dict[str, Action] = field(default_factory=dict)
    watch_of: Callable[[str], TopicWatch] = lambda _: TopicWatch.BY_SCAN
    tells_transactions: bool = True
    _ended_here: set[str] = field(default_factory=set)
    _told: dict[str, ToldOutcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store = IncidentStore(self.origin.cluster_id, self.content_of, self.is_found)

    @property
    def open_incidents(self) -> list[IncidentEvent]:
        """The latest event of every open incident, oldest first."""
        return self.store.open_incidents

    def open_about(self, candidate: SpanCandidate) -> IncidentEvent | None:
        """The open incident about a candidate's span."""
        return self.store.open_span(*key_of(candidate))

    def evidence_of(self, incident: IncidentEvent) -> ProvenHang | None:
        """The evidence of this process for an incident that it has found."""
        key = incident.span
        return self.findings.get(key) if key is not None and self.is_found(incident) else None

    def step(self, incident: IncidentEvent | None, happens: Happening) -> NextStep:
        """What this process does about an incident, or if there is none; the table of life.py decides."""
        return step(self.store.known_as(incident), happens)

    def is_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the subject of the incident itself, and built the incident's content.

        Of a stray write, another instance may have built it.
        """
        if incident.topic is None:
            return incident.incident_id in self.findings.transactions
        if incident.verdict == Verdict.STRAY_WRITE and incident.incident_id in self.findings.stray_writes:
            return True
        key = incident.span
        if key is None:
            return False
        evidence = self.findings.get(key)
        start = evidence.start_offset if evidence is not None else None
        return is_own(incident, start, self.findings.incident_of(key))

    def was_found(self, incident: IncidentEvent) -> bool:
        """Whether this process has found the incident's span, now or before its last restart."""
        return incident.span is not None and self.findings.has_known(incident.span)

    def as_found(self, event: IncidentEvent) -> IncidentEvent:
        """A hanging event with the outcome that this process has found; the one in the event may be forged.

        If this process does not know the outcome, that of a former speaker stays, with its name.
        """
        if event.verdict != Verdict.HANGING:
            return event
        own = self.authored(replace(with_outcome(event, self.outcome_of(event)), outcome_by=None))
        return own if event.expected_outcome == own.expected_outcome else as_read(self.origin, own)

    def outcome_of(self, event: IncidentEvent) -> Outcome:
        """The outcome that this process has found itself."""
        evidence = self.evidence_of(event)
        return evidence.known if evidence is not None else unknown(OutcomeDoubt.NOT_FOUND_HERE)

    def lacks_outcome(self, incident: IncidentEvent | None) -> TypeGuard[IncidentEvent]:
        """Whether this is an open incident about a hang whose outcome this process does not know itself."""
        if incident is None or not incident.is_open or incident.verdict != Verdict.HANGING:
            return False
        is_told = incident.incident_id in self._told
        seen = self.outcome_of(incident).outcome if is_told else incident.expected_outcome
        return seen == ExpectedOutcome.UNKNOWN

    def found_under_later_id(self, record: IncidentEvent) -> IncidentEvent | None:
        """The incident of a hang that was found here, if an open record about the same hang has an earlier id of it.

        An incident that has ended has none: then each id of the hang is earlier.
        """
        if record.span is None or not record.is_open or record.is_by_hand:
            return None
        evidence = self.findings.get(record.span)
        own = self.store.known.get(self.findings.incident_of(record.span) or "")
        if own is None or evidence is None or evidence.start_offset != record.txn_start_offset:
            return None
        return own if is_same_span(own, record) and self.store.is_earlier(record, own) else None

    def defends(self, incident: IncidentEvent | None) -> bool:
        """Whether this process answers the records of other writers about an incident, if it speaks."""
        if incident is None or incident.is_by_hand or not self.is_ours(incident):
            return False
        if incident.topic is None and not self.tells_transactions:
            return False
        return self.step(incident, Happening.FOREIGN_RECORD) is NextStep.TELL_AGAIN

    def remember(self, records: Iterable[IncidentEvent | Overwritten], now_ms: TimestampMs) -> None:
        """Loads events that were published before."""
        self.store.remember(records, now_ms)
        for event in self.open_incidents:
            self.hear_outcome(event)

    def hear_outcome(self, record: IncidentEvent) -> None:
        """Takes the outcome that another instance, or an earlier process, has published."""
        if record.expected_outcome == ExpectedOutcome.UNKNOWN or record.outcome_by is None:
            self._told.pop(record.incident_id, None)
        else:
            self._told[record.incident_id] = ToldOutcome(record.expected_outcome, record.outcome_by)

    def adopt(self, record: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
        """Takes over the next record of an incident, which another instance has written, or an unknown writer.

        Returns what is stored of it.
        """
        incident_id = record.incident_id
        if incident_id not in self.store.known:
            self._ended_here.discard(incident_id)
        taken = self.content_of(record, now_ms)
        self.store.adopt(taken, now_ms)
        if not record.is_open or (taken.is_open and not differs(record, taken)):
            self.untold.told(incident_id)
        else:
            self.untold.mark(incident_id)
        return taken

    def is_told_by(self, record: IncidentEvent, now_ms: TimestampMs, *, is_signed: bool) -> bool:
        """Whether a record tells what this process knows of its incident: two speakers do not repeat it in turn.

        An open incident has much that this process does not compare, such as its command. So a record about it must be
        signed.
        """
        incident = self.store.known.get(record.incident_id)
        if incident is None or incident.is_open is not record.is_open:
            return False
        if not record.is_open:
            return record.expected_outcome == incident.expected_outcome
        ours = self.content_of(record, now_ms)
        return is_signed and record.expected_outcome == ours.expected_outcome and not differs(record, ours)

    def follow(self, record: IncidentEvent, now_ms: TimestampMs) -> None:
        """Takes the sequence and the decision of a record that this process answers."""
        incident, acted = self.store.known[record.incident_id], self.acted.get(record.incident_id)
        own = OwnState.DEFENDED if incident.is_open else OwnState.ENDED
        self.store.enter(believed(record, incident, own, acted, now_ms))
        self.untold.mark(record.incident_id)

    def is_ours(self, incident: IncidentEvent) -> bool:
        """Whether this instance may end an incident, or decide about it: others watch other topics."""
        is_watched = incident.topic is None or self.watch_of(incident.topic) is not TopicWatch.NONE
        return is_watched or self.is_found(incident)

    def is_by_census(self, incident: IncidentEvent) -> bool:
        """Whether an incident is about a topic that only a census watches here."""
        return incident.topic is not None and self.watch_of(incident.topic) is TopicWatch.BY_CENSUS

    def left_to_us(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        """Open incidents about what is watched, without aborts by hand whose command may still publish the end."""
        return [incident for incident in self.store.left_to_us(now_ms) if self.is_ours(incident)]

    def may_be_told(self, incident_id: str) -> bool:
        """Whether this process has its own state of an incident; an open claim waits until it is found here."""
        return self.defends(self.store.known.get(incident_id))

    def told_again(self, incident: IncidentEvent, now_ms: TimestampMs) -> list[IncidentEvent]:
        """The events that say what is known of an incident, above every sequence on the topic."""
        opening, top = self.untold.take_opening(incident.incident_id), self.store.top(incident.incident_id)
        if top == 0 and opening is not None:
            first = replace(incident if incident.is_open else opening, sequence=1, status=IncidentStatus.OPENED)
            return [first] if incident.is_open else [first, replace(incident, sequence=2)]
        if top == 0 or incident.is_spent or self.store.is_last_ours(incident):
            return [incident]
        if incident.is_open:
            return [updated(self.as_found(replace(incident, sequence=top)), now_ms)]
        return [replace(incident, sequence=top + 1)]

    def content_of(self, event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
        """What to store of a record of the topic that this process does not answer."""
        incident = self.store.known.get(event.incident_id)
        own = self._own_state(event, incident)
        taken = believed(event, incident, own, self.acted.get(event.incident_id), now_ms)
        if own is OwnState.NOTHING:
            return named(as_read(self.origin, taken), self.origin.owners, self.origin.cluster)
        return self.as_found(taken) if own is OwnState.FOUND and self.is_found(taken) else taken

    def _own_state(self, record: IncidentEvent, incident: IncidentEvent | None) -> OwnState:
        if incident is None:
            return OwnState.NOTHING
        if incident.incident_id in self._ended_here:
            return OwnState.ENDED
        if self._is_a_hang_since(record, incident):
            return OwnState.NOTHING
        return OwnState.FOUND if self.is_found(incident) or is_elsewhere(record, incident) else OwnState.NOTHING

    def _is_a_hang_since(self, record: IncidentEvent, incident: IncidentEvent) -> bool:
        """Whether a record says that a stray write that was found here hangs now: that is a claim, with its outcome."""
        is_stray = incident.is_open and incident.verdict == Verdict.STRAY_WRITE
        is_hang = record.is_open and record.verdict == Verdict.HANGING
        return is_stray and is_hang and not is_elsewhere(record, incident)

    def transaction_id(
        self, producer_id: ProducerId, view: TransactionView, finding: TransactionCandidate | TransactionMoved
    ) -> str:
        """The id of the first incident about a transaction."""
        cluster_id, name = self.origin.cluster_id, view.transactional_id
        return transaction_incident_id(cluster_id, name, producer_id, view.start_ms, finding.verdict)

    def authored(self, event: IncidentEvent) -> IncidentEvent:
        """An event of this process; an outcome that it has found has its name, and that of a former speaker stays."""
        if event.verdict != Verdict.HANGING or event.outcome_by is not None:
            return event
        if event.expected_outcome != ExpectedOutcome.UNKNOWN:
            return replace(event, outcome_by=self.origin.instance)
        told = self._told.get(event.incident_id)
        if told is None or event.outcome_doubt in _WITHDRAWN:
            return event
        retold = replace(event, expected_outcome=told.outcome, outcome_by=told.by)
        return as_read(self.origin, replace(retold, outcome_doubt=None, outcome_detail=None))

    def is_published(self, event: IncidentEvent) -> bool:
        """Whether the same subject was published before, and not another subject under its id."""
        incident = self.store.known.get(event.incident_id)
        if incident is None:
            return self.store.has_ended(event.incident_id) and not self.store.is_spent(event.incident_id)
        return is_same_span(incident, event)

    def proven(self) -> Sequence[tuple[IncidentEvent, ProvenHang]]:
        """Open incidents about hanging transactions of which this process has its own evidence, with it."""
        return [
            (incident, evidence)
            for incident in self.open_incidents
            if incident.verdict == Verdict.HANGING and not incident.is_by_hand
            if (evidence := self.evidence_of(incident)) is not None
        ]

    def end_of(self, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> IncidentEvent:
        """The `resolved` event of an incident whose end this process has found, with the outcome that it has found."""
        return resolved(self.as_found(incident), now_ms, resolution)

    def stored(self, event: IncidentEvent) -> None:
        """Takes an event of this process, as the latest of its incident.

        A refuted one may hang later: if another instance says so since, it is read afresh.
        """
        self.store.enter(event)
        if event.resolution is None or event.resolution.how is EndKind.REFUTED:
            self._ended_here.discard(event.incident_id)
        else:
            self._ended_here.add(event.incident_id)
        if not event.is_open:
            self.forget_found(event.incident_id)

    def continues(self, before: str, opened: IncidentEvent, candidate: TransactionCandidate | None) -> None:
        """Takes that what was found about an incident is now that of another one; `before` is the id until now.

        The outcome that a former speaker has published goes with it.
        """
        self.untold.begin_anew(opened.incident_id)
        if before in self._told:
            self._told.setdefault(opened.incident_id, self._told[before])
        if candidate is not None:
            self.findings.transactions[opened.incident_id] = candidate
        elif opened.verdict == Verdict.STRAY_WRITE:
            self.findings.stray_writes.add(opened.incident_id)
        elif opened.span is not None:
            self.findings.published_as(opened.span, opened.incident_id)

    def forget_old(self) -> None:
        """Drops what is kept about incidents that the store no longer knows."""
        incidents = self.store.known
        self.acted = {incident_id: done for incident_id, done in self.acted.items() if incident_id in incidents}
        self._told = {incident_id: told for incident_id, told in self._told.items() if incident_id in incidents}
        self._ended_here &= incidents.keys()
        self.findings.stray_writes.intersection_update(incidents)
        self.untold.forget(incidents)

    def forget_found(self, incident_id: str) -> TransactionCandidate | None:
        """Drops what this process has found and decided about an incident that has ended."""
        self.acted.pop(incident_id, None)
        self.findings.stray_writes.discard(incident_id)
        return self.findings.transactions.pop(incident_id, None)


def is_own(incident: IncidentEvent, start_offset: Offset | None, published_as: str | None) -> bool:
    """Whether an incident about a span has the content that this process has built.

    Args:
        incident: the incident.
        start_offset: where the span begins that this process has found there; None if it has found none.
        published_as: the incident that this process has published about that span; None for none.
    """
    is_found_there = start_offset is not None and start_offset == incident.txn_start_offset
    return is_found_there and published_as == incident.incident_id


def is_same_span(event: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident are about the same span, or both about no span."""
    return (event.span, event.txn_start_offset) == (other.span, other.txn_start_offset)
