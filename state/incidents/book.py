"""What is known about the incidents of one cluster: the events on the topic, and what this process has found itself.

Law: a claim never replaces a finding. Anyone who may write the events topic can write an `opened` about a healthy
transaction, a `resolved` about a hanging one, any outcome and any command. So of an event of another writer about an
incident that this process has found, only the sequence, the status, the time, the action and the resolution are used.

Pure: the book answers questions. Only the ledger changes incidents; its parts add what they find to `findings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from txnwatch.state.abort.case import ProvenHang
from txnwatch.state.evidence.outcome import unknown
from txnwatch.state.incidents.commands import Origin, suggested
from txnwatch.state.incidents.event_order import (
    claimed,
    is_own,
    is_same_span,
    keeps_content,
    outcome_as_found,
    with_claim,
)
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.incidents.life import Happening, NextStep, step
from txnwatch.state.incidents.listing_times import LookTimes
from txnwatch.state.incidents.naming import named
from txnwatch.state.incidents.own_findings import Findings, key_of
from txnwatch.state.model.findings import SpanCandidate, TransactionCandidate, TransactionMoved
from txnwatch.state.model.incident import (
    Action,
    IncidentEvent,
    OutcomeDoubt,
    Resolution,
    resolved,
    transaction_incident_id,
)
from txnwatch.state.model.transaction import TransactionView
from txnwatch.state.model.values import ProducerId, TimestampMs
from txnwatch.state.model.verdicts import Verdict


@dataclass(slots=True)
class Book:
    """The incidents of one cluster.

    Attributes:
        findings: what this process has found; the abort uses nothing else.
        store: the latest event of each incident.
        looks: when the last barriers were listed.
        acted: the last decision of this process about each incident, as it was published.
        contested: open incidents whose last record differs from what is known, and that this process has not found yet.
    """

    origin: Origin
    findings: Findings
    store: IncidentStore = field(init=False)
    looks: LookTimes = field(default_factory=LookTimes)
    acted: dict[str, Action] = field(default_factory=dict)
    contested: set[str] = field(default_factory=set)

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
        """Whether this process has found the subject of the incident itself, and built the incident's content."""
        if incident.topic is None:
            return incident.incident_id in self.findings.transactions
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
        """A hanging event with the outcome that this process has found; the one in the event may be forged."""
        evidence = self.evidence_of(event)
        found = outcome_as_found(
            event, evidence.known if evidence is not None else unknown(OutcomeDoubt.NOT_FOUND_HERE)
        )
        if event.expected_outcome == found.expected_outcome:
            return found
        return replace(found, suggested_command=suggested(self.origin, found))

    def content_of(self, event: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
        """What to store of an event from the topic: its content only if this process has none of its own.

        The subject of an incident never changes. Of an event with another subject, or about an incident of this
        process's own, only sequence, status, time, action and resolution are used.
        """
        known = self.store.known.get(event.incident_id)
        acted = self.acted.get(event.incident_id)
        if known is not None and keeps_content(event, known, is_found=self.is_found(known)):
            return with_claim(known, event, acted, now_ms)
        command = suggested(self.origin, self.as_found(event))
        claim = replace(claimed(event, known, acted, now_ms), suggested_command=command)
        return named(claim, self.origin.owners)

    def transaction_id(
        self, producer_id: ProducerId, view: TransactionView, finding: TransactionCandidate | TransactionMoved
    ) -> str:
        """The id of the first incident about a transaction."""
        cluster_id, name = self.origin.cluster_id, view.transactional_id
        return transaction_incident_id(cluster_id, name, producer_id, view.start_ms, finding.verdict)

    def is_published(self, event: IncidentEvent) -> bool:
        """Whether the same subject was published before, and not another subject under its id."""
        known = self.store.known.get(event.incident_id)
        if known is None:
            return self.store.has_ended(event.incident_id) and not self.store.is_spent(event.incident_id)
        return is_same_span(known, event)

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

    def forget_unknown(self) -> None:
        """Drops what is kept about incidents that the store no longer knows."""
        self.acted = {one: done for one, done in self.acted.items() if one in self.store.known}
        self.contested &= self.store.known.keys()

    def forget_found(self, incident_id: str) -> TransactionCandidate | None:
        """Drops what this process has found and decided about an incident that has ended."""
        self.acted.pop(incident_id, None)
        self.contested.discard(incident_id)
        return self.findings.transactions.pop(incident_id, None)
