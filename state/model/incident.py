"""The life of an incident: opened once, updated when a relevant value changes, resolved once.

Ids and sequences are deterministic: a replayed micro-batch creates the same events again, and a consumer that
deduplicates by `ce_id` sees each event once. The id of an incident about a span hashes cluster, topic id, partition,
producer id and the start offset that DescribeProducers confirmed. It leaves out the epoch, which may change inside one
span. The id of an incident about a transaction hashes cluster, transactional id, producer id, start time and family. An
id never changes after the incident is opened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.state.model.ids import BrokerId, CoordinatorEpoch, ProducerEpoch, ProducerId, TopicPartition
from txnwatch.state.model.incident_payload import (
    Action,
    ActionResult,
    AffectedGroup,
    Evidence,
    ExpectedOutcome,
    IncidentStatus,
    Initiator,
    OutcomeDoubt,
    Resolution,
    SinceClock,
)
from txnwatch.state.model.quantities import DurationMs, Offset, TimestampMs, elapsed
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.verdicts import RULE_OF, Reason, Severity, Verdict

_ID = re.compile(r"[0-9a-f]{32}")
# An incident has few events. A record with this sequence leaves no room for another event, so it is not ours.
SPENT_SEQUENCE = 1_000_000
SpanKey = tuple[str, TopicPartition, ProducerId]  # the first is the topic id


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentEvent:
    """One event of the public contract; `sinks/delivery/incident_event.avsc` documents every field."""

    incident_id: str
    sequence: int
    status: IncidentStatus
    verdict: Verdict
    reason: Reason | None = None
    severity: Severity
    cluster_id: str
    topic: str | None = None
    partition: int | None = None
    topic_id: str | None = None
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    transactional_id: str | None = None
    coordinator_id: BrokerId | None = None
    coordinator_epoch: CoordinatorEpoch | None = None
    transaction_state: TransactionState | None = None
    txn_start_offset: Offset | None = None
    open_since_ms: TimestampMs
    open_since_clock: SinceClock
    last_write_ms: TimestampMs | None = None
    transaction_timeout_ms: DurationMs | None = None
    age_ms: DurationMs
    overdue_ms: DurationMs | None = None
    last_stable_offset: Offset | None = None
    high_watermark: Offset | None = None
    hidden_records: int | None = None
    lso_standing_ms: DurationMs | None = None
    is_lso_blocker: bool | None = None
    cleanup_policy: str | None = None
    pending_partitions: tuple[str, ...] = ()
    consumer_groups: tuple[AffectedGroup, ...] = ()
    evidence: Evidence
    expected_outcome: ExpectedOutcome
    outcome_doubt: OutcomeDoubt | None = None
    outcome_detail: str | None = None
    suggested_command: str | None = None
    detected_at_ms: TimestampMs
    detection_latency_ms: DurationMs
    time_ms: TimestampMs
    action: Action | None = None
    resolution: Resolution | None = None

    @property
    def event_id(self) -> str:
        """The CloudEvents id; the same for every delivery of the same event."""
        return f"{self.incident_id}-{self.sequence}"

    @property
    def event_type(self) -> str:
        """The CloudEvents type."""
        return f"io.txnwatch.{self.verdict}.{self.status}.v1"

    @property
    def subject(self) -> str:
        """The CloudEvents subject: the span or the transaction of the incident."""
        if self.topic is not None:
            return f"{self.topic}/{self.partition}/{self.txn_start_offset}"
        return f"{self.transactional_id}/{self.producer_id}"

    @property
    def is_open(self) -> bool:
        """Whether the incident is still open after this event."""
        return self.status != IncidentStatus.RESOLVED

    @property
    def is_spent(self) -> bool:
        """Whether its sequence leaves no room for another event."""
        return self.sequence >= SPENT_SEQUENCE

    @property
    def span(self) -> SpanKey | None:
        """The span of the incident, None for an incident about a whole transaction."""
        if self.topic is None or self.partition is None or self.topic_id is None:
            return None
        return self.topic_id, TopicPartition(self.topic, self.partition), self.producer_id

    @property
    def is_by_hand(self) -> bool:
        """Whether this is the incident of an abort by hand, beside the incident of a watch about the same span.

        This requires the id of such an abort, so no event can turn the incident of a watch into one by hand.
        """
        if self.action is None or self.action.initiator is not Initiator.OPERATOR:
            return False
        if self.span is None or self.txn_start_offset is None:
            return False
        topic_id, partition, producer_id = self.span
        first = span_incident_id(self.cluster_id, topic_id, partition.partition, producer_id, self.txn_start_offset)
        return self.incident_id == repeat_incident_id(first, self.action.at_ms)


class Overwritten(NamedTuple):
    """A record under an incident's key that is not an event; it replaces the event before it in the compacted topic."""

    incident_id: str


def span_incident_id(
    cluster_id: str, topic_id: str, partition: int, producer_id: ProducerId, start_offset: Offset
) -> str:
    """The id of an incident about a span."""
    return _hash("span", cluster_id, topic_id, partition, producer_id, start_offset)


def is_incident_id(text: str) -> bool:
    """Whether the text has the form of an incident id, as `_hash` returns it."""
    return _ID.fullmatch(text) is not None


def repeat_incident_id(incident_id: str, times: int) -> str:
    """The id of another incident about the same span.

    `times` is how often the incident was resolved before the span hung again; for an abort by hand it is the time of
    its announcement (`at_ms`).
    """
    return _hash("again", incident_id, times)


def transaction_incident_id(
    cluster_id: str, transactional_id: str, producer_id: ProducerId, start_ms: TimestampMs | None, verdict: Verdict
) -> str:
    """The id of an incident about a transaction; long_running and late are one family and share one incident."""
    return _hash(RULE_OF[verdict].family, cluster_id, transactional_id, producer_id, start_ms)


def _hash(*parts: object) -> str:
    return hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).hexdigest()[:32]


def latest(events: Iterable[IncidentEvent]) -> dict[tuple[str, str], IncidentEvent]:
    """The latest event of each incident, by cluster and incident id.

    Input and result are in the order of the events topic. Of two events with the same sequence the first counts,
    because a consumer that deduplicates by `ce_id` drops the second. A spent event counts only as the end of a known
    incident: a watch may have had no lower sequence left for it. An event never affects an incident of another cluster.
    """
    found: dict[tuple[str, str], IncidentEvent] = {}
    for event in events:
        key = event.cluster_id, event.incident_id
        known = found.get(key)
        if event.is_spent and (event.is_open or known is None):
            continue
        if known is None or known.sequence < event.sequence:
            found.pop(key, None)
            found[key] = event
    return found


def resolved(event: IncidentEvent, now_ms: TimestampMs, resolution: Resolution) -> IncidentEvent:
    """The event that ends an incident; it also sets the result of an announced marker that has no result yet.

    Only such a marker in the log makes the result `verified`: a transaction can end without one, because its topic is
    gone.
    """
    action = event.action
    if action is not None and action.result is None and action.is_marker:
        is_there = resolution.how is action.expected_end
        result = ActionResult.VERIFIED if is_there else ActionResult.UNKNOWN
        action = replace(action, result=result, detail="from the incident's end")
    ended = replace(event, resolution=resolution, suggested_command=None, action=action)
    return _next(ended, IncidentStatus.RESOLVED, now_ms)


def updated(changed: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
    """The event that reports a change; `changed` is the last event with the new values."""
    return _next(changed, IncidentStatus.UPDATED, now_ms)


def _next(event: IncidentEvent, status: IncidentStatus, now_ms: TimestampMs) -> IncidentEvent:
    return replace(
        event,
        status=status,
        sequence=event.sequence + 1,
        time_ms=now_ms,
        age_ms=elapsed(event.open_since_ms, now_ms),
    )
