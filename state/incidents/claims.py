"""What an event of another writer on the events topic counts beside what this process has found. Pure.

Law: anyone may write the topic, so what is used of a record depends on what this process has itself: `BELIEVED` says
which fields. A claim never replaces a finding. The subject of an incident never changes. Only the log proves that
another writer's marker was successful.

An event of another cluster, or with a sequence that leaves no room for the next events, is not used.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import Enum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import (
    KEPT_MS,
    SPENT_SEQUENCE,
    Action,
    ActionResult,
    ExpectedOutcome,
    IncidentEvent,
)
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, Verdict, rank

_IDENTITY = ("topic", "partition", "topic_id", "producer_id", "txn_start_offset", "transactional_id")


class OwnState(Enum):
    """What this process has of an incident when a record of another writer about it comes."""

    DEFENDED = "it has found the incident, and speaks"
    FOUND = "it has found the incident, or the record has another subject"
    ENDED = "it knows the end of the incident"
    NOTHING = "it has nothing of its own"


BELIEVED: Final[dict[OwnState, frozenset[str]]] = {
    OwnState.DEFENDED: frozenset({"sequence", "action"}),
    OwnState.FOUND: frozenset({"sequence", "action", "status", "time_ms", "resolution"}),
    OwnState.ENDED: frozenset({"sequence"}),
    OwnState.NOTHING: frozenset(field.name for field in fields(IncidentEvent)),
}


def believed(
    record: IncidentEvent, incident: IncidentEvent | None, own: OwnState, acted: Action | None, now_ms: TimestampMs
) -> IncidentEvent:
    """What this process knows of an incident, once it has read a record of another writer about it.

    Its time is never in the future. `acted` is the last decision of this process.
    """
    record = replace(record, time_ms=min(record.time_ms, now_ms), action=believed_action(record, incident, acted))
    if incident is None:
        return record
    taken = {name: getattr(record, name) for name in BELIEVED[own]}
    if own is not OwnState.NOTHING:
        taken["sequence"] = max(incident.sequence, record.sequence)
    return replace(incident, **taken)


def believed_action(event: IncidentEvent, incident: IncidentEvent | None, acted: Action | None) -> Action | None:
    """The last decision: our own version, `acted`, if it is ours; of another writer's, without a claimed success."""
    claim = event.action
    if acted is not None and (claim is None or claim.by == acted.by):
        return acted
    if claim is None:
        return incident.action if incident is not None else None
    return replace(claim, result=None) if claim.result is ActionResult.VERIFIED else claim


def differs(published: IncidentEvent, ours: IncidentEvent) -> bool:
    """Whether an event differs, in a relevant field, from what this process has found about the same subject.

    A value that this process does not know yet is no difference.
    """
    if is_elsewhere(published, ours):
        return True
    if ours.verdict == Verdict.HANGING and published.verdict != ours.verdict:
        return True
    verdict = published.verdict
    if rank(verdict) > rank(ours.verdict) or published.severity != RULE_OF[verdict].severity:
        return True  # milder than found: its writer may be behind
    return ours.expected_outcome not in {ExpectedOutcome.UNKNOWN, published.expected_outcome}


def is_elsewhere(event: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident have different subjects."""
    pairs = [(getattr(event, name), getattr(other, name)) for name in _IDENTITY]
    has_other = any(first != second and None not in {first, second} for first, second in pairs)
    return has_other or (event.topic is None) is not (other.topic is None)


def found_too(incident: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A published incident with the content that this process has found, and the earlier of both start times."""
    return replace(
        with_newer_verdict(incident, event),
        open_since_ms=min(incident.open_since_ms, event.open_since_ms),
        detected_at_ms=incident.detected_at_ms,
        detection_latency_ms=incident.detection_latency_ms,
        action=incident.action,
        resolution=incident.resolution,
    )


def with_newer_verdict(incident: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A newer verdict about the same span, with the identity, the start and the last sequence of the incident."""
    return replace(
        event,
        incident_id=incident.incident_id,
        sequence=incident.sequence,
        status=incident.status,
        txn_start_offset=incident.txn_start_offset,
        open_since_ms=incident.open_since_ms,
        open_since_clock=incident.open_since_clock,
        age_ms=incident.age_ms,
        time_ms=incident.time_ms,
    )


# How long events count, and which sequences.

SEEN_OVER_MS: Final = DurationMs(3_600_000)
ROOM: Final = 1_000  # sequences that other writers may not use: an announced marker must be followed by its result


def is_usable(event: IncidentEvent, cluster_id: str, sent: IncidentEvent | None) -> bool:
    """Whether an event is of this cluster, and leaves room for our next events; our own are exempt."""
    if event.cluster_id != cluster_id:
        return False
    return event.sequence < SPENT_SEQUENCE - ROOM or event == sent


class EndedIncident(NamedTuple):
    """An incident that ended long ago: its last sequence, its end, and since when this process knows of the end."""

    sequence: int
    ended_ms: TimestampMs
    known_ms: TimestampMs

    def is_expired(self, now_ms: TimestampMs, retention_ms: DurationMs) -> bool:
        """Whether its id may be used again. Its end may be forged, so this process must have known it for a while."""
        return now_ms - self.ended_ms >= retention_ms and now_ms - self.known_ms >= SEEN_OVER_MS


def is_long_over(event: IncidentEvent, now_ms: TimestampMs) -> bool:
    """Whether only the id and the last sequence of the incident are still needed."""
    return not event.is_open and is_long_ago(event.time_ms, now_ms)


def is_long_ago(at_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether what happened then is no longer needed."""
    return now_ms - at_ms >= KEPT_MS
