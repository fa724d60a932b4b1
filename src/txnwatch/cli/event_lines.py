"""An incident event as one line of text."""

from __future__ import annotations

from datetime import UTC, datetime

from txnwatch.state.events.value_rules import LAST_TIME_MS
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import Action, GroupState, IncidentStatus
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.text.escape import printable
from txnwatch.state.text.lists import some

_NAMED = 2  # groups that are named; the event has all


def event_line(event: IncidentEvent) -> str:
    """Time, verdict, place, owner and effect of an event; control characters are escaped."""
    parts = (utc(event.time_ms), _headline(event), where(event), *_details(event))
    return printable("  ".join(part for part in parts if part))


def utc(time_ms: TimestampMs) -> str:
    """A time in UTC; a value outside the range of dates stays a number, because a client's clock can have any value."""
    if not 0 <= time_ms <= LAST_TIME_MS:
        return f"{time_ms} ms"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}Z"


def duration(milliseconds: DurationMs) -> str:
    """A duration in its two largest units."""
    seconds, millis = divmod(max(0, milliseconds), 1000)
    if seconds < 60:
        return f"{seconds}.{millis // 100}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 48 else f"{hours // 24}d{hours % 24}h"


def where(event: IncidentEvent) -> str:
    """The partition and the start offset, or the state of a transaction as a whole."""
    if event.topic is None:
        return str(event.transaction_state)
    return f"{event.topic}-{event.partition}@{event.txn_start_offset}"


def owner(event: IncidentEvent) -> str:
    """The owner: transactional id, producer id, epoch."""
    name = event.transactional_id if event.transactional_id is not None else "(no transactional id)"
    return f"{name} (producer id {event.producer_id}, epoch {event.producer_epoch})"


def _headline(event: IncidentEvent) -> str:
    reason = f"/{event.reason}" if event.reason is not None else ""
    return f"{event.status.upper():8}  {event.verdict}{reason}"


def _details(event: IncidentEvent) -> tuple[str, ...]:
    if event.resolution is not None:
        marker = event.resolution.marker_offset
        at = f" by the marker at {marker}" if marker is not None else ""
        return (owner(event), f"{event.resolution.how}{at}, open for {duration(event.age_ms)}")
    if event.topic is None:
        pending = f"markers outstanding: {', '.join(event.pending_partitions)}" if event.pending_partitions else ""
        return (owner(event), f"open for {duration(event.age_ms)}", pending)
    return (owner(event), _held(event), _stopped(event), _hidden(event), _since(event))


def _since(event: IncidentEvent) -> str:
    if event.action is not None:
        return _decision(event.action)
    if event.status is IncidentStatus.OPENED:
        return f"detected in {duration(event.detection_latency_ms)}"
    return f"open for {duration(event.age_ms)}"


def _held(event: IncidentEvent) -> str:
    """Why there is no suggested command: the producer's next transaction holds the span."""
    held = event.verdict == Verdict.HANGING and event.suggested_command is None
    return f"held by its producer's next transaction ({event.transaction_state})" if held else ""


def _stopped(event: IncidentEvent) -> str:
    stopped = [group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED]
    return f"stopped: {some(stopped, _NAMED)}" if stopped else ""


def _hidden(event: IncidentEvent) -> str:
    return f"{event.hidden_records} records hidden" if event.hidden_records is not None else ""


def _decision(action: Action) -> str:
    """The abort decision about an open incident, and its result."""
    came_to = action.refusal or action.result or ("announced" if action.is_marker else None)
    return f"{action.decision}: {came_to}" if came_to is not None else str(action.decision)
