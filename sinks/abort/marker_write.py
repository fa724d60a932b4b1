"""Writes one marker, reads the partition again, and describes the result for the event.

The automatic abort and the abort by hand share this code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from txnwatch.state.abort.decision import AbortSpec, partition_of
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import Action, ActionResult, Decision, Evidence, Initiator, Refusal
from txnwatch.state.model.ports import PartitionReading, TransactionAdmin
from txnwatch.state.model.transaction import Marker

_DENIED = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})


@dataclass(frozen=True, slots=True)
class MarkerResult:
    """The result of a marker.

    Attributes:
        stable_after: the last stable offset after it; None if it could not be read.
        is_denied: whether the right to write markers is missing.
        is_closed: whether a read has shown that the transaction is no longer open.
        closed_by: the marker that closed it, of any writer; None if it is open, or if the marker could not be read.
        is_ours: whether `closed_by` is proven to be the marker that was just written.
    """

    result: ActionResult
    detail: str | None = None
    stable_after: int | None = None
    is_denied: bool = False
    is_closed: bool = False
    closed_by: Marker | None = None
    is_ours: bool = False


def write(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec) -> MarkerResult:
    """Writes the marker and reads what has closed the transaction; the broker's answer alone proves nothing."""
    problem = admin.write_marker(spec.marker)
    found = look_after(admin, incident, commit=spec.marker.commit)
    if problem is None:
        taken = "the broker accepted the marker, but the transaction is still open"
        return (
            replace(found, detail=taken)
            if found.result == ActionResult.STILL_OPEN
            else _whose(admin, incident, spec, found)
        )
    answered = f"the broker answered {problem}"
    if found.is_closed:
        return replace(found, detail=f"{found.detail}; {answered}" if found.detail is not None else answered)
    result = ActionResult.FAILED if found.result == ActionResult.STILL_OPEN else ActionResult.UNKNOWN
    return replace(found, result=result, detail=answered, is_denied=problem in _DENIED)


def _whose(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec, found: MarkerResult) -> MarkerResult:
    """Whether a marker that the leader accepted is the one that closed the transaction, by a last read, which counts.

    A marker does not name its writer. A leader also accepts one for a closed transaction: then ours follows the marker
    of another writer. So the closing marker is ours only if it has our epochs and no other marker follows it. Only a
    marker of a newer epoch may follow: after that one, ours would have been refused.
    """
    marker, closed_by = spec.marker, found.closed_by
    if closed_by is None:
        return found
    behind = closed_by.offset + 1
    next_one = admin.closing_marker(marker.partition, marker.producer_id, behind, behind)
    is_alone = next_one is None or next_one.producer_epoch > marker.producer_epoch
    epochs = (closed_by.producer_epoch, closed_by.coordinator_epoch, closed_by.commit)
    is_like_it = epochs == (marker.producer_epoch, marker.coordinator_epoch, marker.commit)
    # That none follows proves something only if the log can still be read.
    last = look_after(admin, incident, commit=marker.commit)
    return replace(last, is_ours=is_alone and is_like_it and last.closed_by == closed_by)


def look_after(admin: TransactionAdmin, incident: IncidentEvent, *, commit: bool) -> MarkerResult:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit`.

    Another writer's marker may have been first, with the other outcome.
    """
    partition = partition_of(incident)
    reading = admin.read_partitions([partition])[partition]
    if reading.problem is not None:
        return MarkerResult(ActionResult.UNKNOWN, f"the partition could not be read again: {reading.problem}")
    if reading.topic_id != incident.topic_id:
        return MarkerResult(
            ActionResult.UNKNOWN, "the topic was re-created: the transaction was deleted with the old topic"
        )
    start, stable = incident.txn_start_offset, reading.last_stable_offset
    assert start is not None
    row = reading.open_transaction(incident.producer_id)
    if row is not None and row.txn_start_offset == start:
        return MarkerResult(ActionResult.STILL_OPEN, None, stable)
    marker = admin.closing_marker(partition, incident.producer_id, start, _open_until(incident, reading, start))
    result, detail = _by(marker, commit=commit)
    return MarkerResult(result, detail, stable, is_closed=True, closed_by=marker)


def _open_until(incident: IncidentEvent, reading: PartitionReading, start: int) -> int:
    """An end at which the transaction was open; its start after a leader change, because the log may differ."""
    end = incident.evidence.end_before
    is_same_log = incident.evidence.leader_epoch == reading.leader_epoch
    return max(start, end) if end is not None and is_same_log else start


def _by(marker: Marker | None, *, commit: bool) -> tuple[ActionResult, str | None]:
    if marker is None:
        return (
            ActionResult.UNKNOWN,
            "the transaction is closed, but its closing marker could not be read: its kind is unknown",
        )
    if marker.commit == commit:
        return ActionResult.VERIFIED, None
    kind, became = ("a COMMIT", "committed") if marker.commit else ("an ABORT", "aborted")
    return ActionResult.FAILED, f"{kind} marker at offset {marker.offset} closed it first: its data is {became}"


def read_afresh(incident: IncidentEvent, reading: PartitionReading, now_ms: int) -> Evidence:
    """The incident's evidence, with the read on which the decision about a marker is based.

    The marker that closes the transaction lies above the end of this read.
    """
    return replace(
        incident.evidence,
        confirmed_ms=now_ms,
        leader=reading.leader,
        leader_epoch=reading.leader_epoch,
        end_before=reading.end_before,
        end_after=reading.end_after,
    )


def action(
    decision: Decision,
    by: str,
    at_ms: int,
    *,
    refusal: Refusal | None = None,
    detail: str | None = None,
    spec: AbortSpec | None = None,
    stable_before: int | None = None,
    initiator: Initiator = Initiator.WATCH,
) -> Action:
    """The event's `action`, with no result yet."""
    marker = spec.marker if spec is not None else None
    return Action(
        decision=decision,
        refusal=refusal,
        detail=detail,
        by=by,
        marker_producer_epoch=marker.producer_epoch if marker is not None else None,
        marker_coordinator_epoch=marker.coordinator_epoch if marker is not None else None,
        last_stable_offset_before=stable_before,
        at_ms=at_ms,
        initiator=initiator,
    )
