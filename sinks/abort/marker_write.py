"""One marker by an administrator, and what it came to: written, read again, and put into words for the event.

The automatic abort and the one by hand share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from txnwatch.state.abort.decision import AbortSpec, partition_of
from txnwatch.state.abort.results import FAILED, STILL_OPEN, UNKNOWN, VERIFIED
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import PartitionReading, TransactionAdmin
from txnwatch.state.model.transaction import Marker

_DENIED = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})


@dataclass(frozen=True, slots=True)
class CameTo:
    """What a marker came to.

    Attributes:
        stable_after: the last stable offset after it, None where it could not be read.
        is_denied: whether the right to write markers is missing.
        is_closed: whether the transaction was read to be open no more.
        closed_by: the marker that closed it, whoever wrote it; None where it is open, or nobody could read that.
        is_ours: whether that one is proven to be the one that was just written.
    """

    result: str
    detail: str | None = None
    stable_after: int | None = None
    is_denied: bool = False
    is_closed: bool = False
    closed_by: Marker | None = None
    is_ours: bool = False


def write(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec) -> CameTo:
    """Writes the marker and looks what has closed the transaction; the broker's own answer proves neither way."""
    problem = admin.write_marker(spec.marker)
    found = look_after(admin, incident, commit=spec.marker.commit)
    if problem is None:
        taken = "the broker took the marker, and the transaction is still open"
        return replace(found, detail=taken) if found.result == STILL_OPEN else _whose(admin, incident, spec, found)
    answered = f"the broker answered {problem}"
    if found.is_closed:
        return replace(found, detail=f"{found.detail}; {answered}" if found.detail is not None else answered)
    result = FAILED if found.result == STILL_OPEN else UNKNOWN
    return replace(found, result=result, detail=answered, is_denied=problem in _DENIED)


def _whose(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec, found: CameTo) -> CameTo:
    """Whether a marker that the leader took is the one that closed the transaction; by a last look, which counts.

    A marker names no author, and a leader takes one for a transaction that is closed as well: then ours stands behind
    somebody else's. So it is ours only if it has our epochs and none like it follows; one of a newer epoch may, because
    behind that one ours would have been refused.
    """
    marker, closed_by = spec.marker, found.closed_by
    if closed_by is None:
        return found
    behind = closed_by.offset + 1
    next_one = admin.closing_marker(marker.partition, marker.producer_id, behind, behind)
    is_alone = next_one is None or next_one.producer_epoch > marker.producer_epoch
    epochs = (closed_by.producer_epoch, closed_by.coordinator_epoch, closed_by.commit)
    is_like_it = epochs == (marker.producer_epoch, marker.coordinator_epoch, marker.commit)
    # That none follows says something only where the log can be read still.
    last = look_after(admin, incident, commit=marker.commit)
    return replace(last, is_ours=is_alone and is_like_it and last.closed_by == closed_by)


def look_after(admin: TransactionAdmin, incident: IncidentEvent, *, commit: bool) -> CameTo:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit` says.

    Somebody else's may have been there first, and decided the data the other way.
    """
    partition = partition_of(incident)
    reading = admin.read_partitions([partition])[partition]
    if reading.problem is not None:
        return CameTo(UNKNOWN, f"the partition could not be read again: {reading.problem}")
    if reading.topic_id != incident.topic_id:
        return CameTo(UNKNOWN, "the topic was re-created, and the transaction is gone with the one before")
    start, stable = incident.txn_start_offset, reading.last_stable_offset
    assert start is not None
    row = reading.open_transaction(incident.producer_id)
    if row is not None and row.txn_start_offset == start:
        return CameTo(STILL_OPEN, None, stable)
    marker = admin.closing_marker(partition, incident.producer_id, start, _open_until(incident, reading, start))
    result, detail = _by(marker, commit=commit)
    return CameTo(result, detail, stable, is_closed=True, closed_by=marker)


def _open_until(incident: IncidentEvent, reading: PartitionReading, start: int) -> int:
    """An end at which the transaction was open; under another leader the log may be another."""
    end = incident.evidence.get("end_before")
    is_same_log = incident.evidence.get("leader_epoch") == reading.leader_epoch
    return max(start, end) if end is not None and is_same_log else start


def _by(marker: Marker | None, *, commit: bool) -> tuple[str, str | None]:
    if marker is None:
        return UNKNOWN, "it is closed, and the marker that closed it could not be read: by which kind is not known"
    if marker.commit == commit:
        return VERIFIED, None
    kind, became = ("a COMMIT", "committed") if marker.commit else ("an ABORT", "aborted")
    return FAILED, f"{kind} marker at offset {marker.offset} closed it first: its data is {became}"


def read_afresh(incident: IncidentEvent, reading: PartitionReading, now_ms: int) -> dict[str, Any]:
    """The incident's evidence with the reading a marker is decided on: whatever closes it, does so above this end."""
    return {
        **incident.evidence,
        "confirmed_ms": now_ms,
        "leader": reading.leader,
        "leader_epoch": reading.leader_epoch,
        "end_before": reading.end_before,
        "end_after": reading.end_after,
    }


def action(
    decision: str,
    by: str,
    at_ms: int,
    *,
    refusal: str | None = None,
    detail: str | None = None,
    spec: AbortSpec | None = None,
    stable_before: int | None = None,
) -> dict[str, Any]:
    """The event's `action`, with no result yet."""
    marker = spec.marker if spec is not None else None
    return {
        "decision": decision,
        "refusal": refusal,
        "result": None,
        "detail": detail,
        "by": by,
        "marker_producer_epoch": marker.producer_epoch if marker is not None else None,
        "marker_coordinator_epoch": marker.coordinator_epoch if marker is not None else None,
        "last_stable_offset_before": stable_before,
        "last_stable_offset_after": None,
        "at_ms": at_ms,
    }
