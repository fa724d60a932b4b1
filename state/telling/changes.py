"""What an event says beyond the one before it: what has changed, what an abort has decided. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from txnwatch.state.model.incident import (
    ActionResult,
    Decision,
    GroupState,
    IncidentEvent,
    IncidentStatus,
    Refusal,
)
from txnwatch.state.telling.statements import how_it_ended

Shown = Callable[[str], str]
_NAMED: Final = 3
_FIELDS: Final = {
    "severity": "severity",
    "state": "transaction_state",
    "expected outcome": "expected_outcome",
}
_REFUSED: Final = {Refusal.TOO_EARLY: "waits"}


def decision(event: IncidentEvent, shown: Shown) -> str | None:
    """What the automatic abort, or an operator's abort, has decided; None if nothing. `shown` shows foreign text."""
    action = event.action
    if action is None:
        return None
    who = "automatic abort" if action.initiator == "watch" else "abort by an operator"
    if action.decision is Decision.REFUSED:
        return f"{who} {_REFUSED.get(action.refusal or Refusal.ALREADY_OVER, 'refused')}: {action.refusal}"
    if action.decision is Decision.DRY_RUN:
        return f"{who}: dry run"
    if action.decision is Decision.FENCE:
        return f"fence by an operator ({shown(str(action.by))}): {shown(str(action.detail))}"
    result = {None: "announced", ActionResult.VERIFIED: "written and read again"}.get(action.result, str(action.result))
    return f"{who}: {action.decision.upper()} marker {result}"


def moment(event: IncidentEvent, before: IncidentEvent | None, shown: Shown) -> str:
    """What an event is in the life of its incident."""
    if event.resolution is not None:
        return how_it_ended(event)
    if before is None or event.status is IncidentStatus.OPENED:
        return f"{_tag(event)}, published {event.detection_latency_ms / 1000:.2f} s after the hang"
    return "; ".join(changes(event, before, shown)) or "its fields have changed"


def changes(event: IncidentEvent, before: IncidentEvent, shown: Shown) -> Iterator[str]:
    """What an event has changed."""
    if event.verdict is not before.verdict:
        yield f"now {_tag(event)}"
    if event.action != before.action and (decided := decision(event, shown)):
        yield decided
    for what, field in _FIELDS.items():
        if (value := getattr(event, field)) != getattr(before, field):
            yield f"{what}: {value if value is not None else 'not known'}"
    if len(event.pending_partitions) != len(before.pending_partitions):
        yield f"markers missing on {len(event.pending_partitions)} partitions, {len(before.pending_partitions)} before"
    for what, now, then in (
        ("stopped", _stopped(event), _stopped(before)),
        ("waiting for their offsets", _waiting(event), _waiting(before)),
        ("no longer stopped or waiting", _hurt(before), _hurt(event)),
    ):
        if new := [name for name in now if name not in then]:
            more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
            yield f"{what}: {', '.join(map(shown, new[:_NAMED]))}{more}"
    if event.hidden_records != before.hidden_records and event.hidden_records is not None:
        yield f"{event.hidden_records:,} records hidden"


def _tag(event: IncidentEvent) -> str:
    return event.verdict.replace("_", " ").upper()


def _stopped(event: IncidentEvent) -> Sequence[str]:
    return [group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED]


def _waiting(event: IncidentEvent) -> Sequence[str]:
    return [group.group_id for group in event.waiting_groups]


def _hurt(event: IncidentEvent) -> Sequence[str]:
    return [*_stopped(event), *_waiting(event)]
