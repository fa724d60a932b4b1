"""When an open incident gets an update event: the rule that keeps events few. Pure: no I/O, no clock.

An update reports a change after which somebody would act differently: the owner, the expected outcome, the severity,
ten times as many hidden records, a decision, a group that has stopped, a command that no longer fits. Ages, offsets and
small changes cause no event; they are in the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import GroupState

_MAGNITUDE: Final = 10
Rule = Callable[[IncidentEvent, IncidentEvent], bool]


def _more_hidden(known: IncidentEvent, now: IncidentEvent) -> bool:
    if now.hidden_records is None:
        return False
    return now.hidden_records >= _MAGNITUDE * max(1, known.hidden_records or 0)


def _newly_stopped(known: IncidentEvent, now: IncidentEvent) -> bool:
    return bool(_stopped(now) - _stopped(known))


def _stopped(event: IncidentEvent) -> set[str]:
    return {group.group_id for group in event.consumer_groups if group.state == GroupState.STOPPED}


RULES: Final[dict[str, Rule]] = {
    "the owner became known": lambda known, now: known.transactional_id is None and now.transactional_id is not None,
    "the expected outcome changed": lambda known, now: known.expected_outcome != now.expected_outcome,
    "the verdict has changed": lambda known, now: (known.verdict, known.severity) != (now.verdict, now.severity),
    "ten times as many records are hidden": _more_hidden,
    "the action changed": lambda known, now: known.action != now.action,
    "a consumer group has stopped": _newly_stopped,
    "the suggested command changed": lambda known, now: known.suggested_command != now.suggested_command,
}


def needs_update(known: IncidentEvent, now: IncidentEvent) -> bool:
    """Whether the current values need an event, compared with the last event."""
    return any(rule(known, now) for rule in RULES.values())
