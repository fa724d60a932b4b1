"""One marker by an administrator, and what it came to: written, read again, and put into words for the event.

The automatic abort and the one by hand share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from txnwatch.state.abort_plan import AbortSpec, partition_of
from txnwatch.state.incident import IncidentEvent
from txnwatch.state.ports import TransactionAdmin

ABORT, COMMIT, DRY_RUN, REFUSED = "abort", "commit", "dry_run", "refused"  # decisions
VERIFIED, STILL_OPEN, FAILED, UNKNOWN = "verified", "still_open", "failed", "unknown"  # results
_DENIED = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})


@dataclass(frozen=True, slots=True)
class CameTo:
    """What a marker came to; `stable_after` is None where it could not be read."""

    result: str
    detail: str | None = None
    stable_after: int | None = None
    is_denied: bool = False


def write(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec) -> CameTo:
    """Writes the marker and looks whether the transaction is closed; the broker's own answer proves neither way."""
    problem = admin.write_marker(spec.marker)
    found = look_after(admin, incident)
    if found.result == VERIFIED:
        return CameTo(VERIFIED, problem and f"the broker answered {problem}", found.stable_after)
    if problem is not None:
        result = FAILED if found.result == STILL_OPEN else UNKNOWN
        return CameTo(result, f"the broker answered {problem}", found.stable_after, problem in _DENIED)
    if found.result == STILL_OPEN:
        return CameTo(STILL_OPEN, "the broker took the marker, and the transaction is still open", found.stable_after)
    return found


def look_after(admin: TransactionAdmin, incident: IncidentEvent) -> CameTo:
    """Whether the incident's transaction is still open at its leader."""
    partition = partition_of(incident)
    reading = admin.read_partitions([partition])[partition]
    if reading.problem is not None:
        return CameTo(UNKNOWN, f"the partition could not be read again: {reading.problem}")
    if reading.topic_id != incident.topic_id:
        return CameTo(UNKNOWN, "the topic was re-created, and the transaction is gone with the one before")
    row = reading.open_transaction(incident.producer_id)
    is_open = row is not None and row.txn_start_offset == incident.txn_start_offset
    return CameTo(STILL_OPEN if is_open else VERIFIED, None, reading.last_stable_offset)


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
