"""An incident event as an alert of Alertmanager: labels, annotations and times. Pure: no I/O, no clock.

The labels are the identity of an alert, so no client chooses one: the transactional id is an annotation. Annotations
are shown by chat systems, which turn some text into a mention of everybody or into a link, and the templates of
Alertmanager escape nothing. So text of others is made harmless: what is not printable, markup, mentions and links are
shown as escapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, VERDICTS, Severity, Verdict
from txnwatch.state.text import printable

_STRAY_WRITE: Final = Verdict.STRAY_WRITE
ALERT_NAMES: Final = {
    verdict: f"Kafka{'' if verdict is _STRAY_WRITE else 'Transaction'}{verdict.title().replace('_', '')}"
    for verdict in Verdict
}
# A watcher that is down cannot renew these, and they do not end by themselves: without a renewal they fire for longer.
HELD: Final = frozenset(rule.verdict for rule in VERDICTS if rule.severity is Severity.CRITICAL)
RENEWALS_MISSED: Final = 4  # for how many pauses another alert fires without a renewal
STRAY_FIRES_MS: Final = DurationMs(3_600_000)
NO_OWNER: Final = "none"
LONGEST_TEXT: Final = 200
LONGEST_COMMAND: Final = 1_000
_RUNBOOK: Final = "https://github.com/txnwatch/txnwatch/blob/main/docs/runbook.md"
_TEAM: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ACTIVE: Final = re.compile(r"[<>&@`]|://")
_GROUPS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as it is sent.

    Attributes:
        event: the event of the incident that it shows.
        is_firing: whether it has to be renewed.
        is_of_former_labels: whether it only ends the alert that the incident had before its labels changed.
    """

    event: IncidentEvent
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_ms: TimestampMs
    ends_ms: TimestampMs
    is_firing: bool
    url: str = ""
    is_of_former_labels: bool = False

    @property
    def incident_id(self) -> str:
        """The incident."""
        return self.event.incident_id

    def as_json(self) -> dict[str, Any]:
        """The alert as API v2 takes it."""
        found = {
            "labels": self.labels,
            "annotations": self.annotations,
            "startsAt": _rfc3339(self.starts_ms),
            "endsAt": _rfc3339(self.ends_ms),
        }
        return {**found, "generatorURL": self.url} if self.url else found


def alert_of(event: IncidentEvent, target: AlertmanagerTarget, now_ms: TimestampMs) -> Alert:
    """The alert of an incident's latest event."""
    starts_ms = min(event.open_since_ms, now_ms)
    ends_ms, is_firing = _end(event, target, now_ms)
    return Alert(
        event=event,
        labels=_labels(event, target),
        annotations=_annotations(event),
        starts_ms=starts_ms,
        ends_ms=max(ends_ms, starts_ms + DurationMs(1)),
        is_firing=is_firing,
        url=f"{target.external_url.rstrip('/')}/incident/{event.incident_id}" if target.external_url else "",
    )


def _end(event: IncidentEvent, target: AlertmanagerTarget, now_ms: TimestampMs) -> tuple[TimestampMs, bool]:
    """When the alert ends if nothing else is sent, and whether it fires now."""
    if event.verdict is _STRAY_WRITE:  # it never ends, and nothing is open
        ends_ms = event.detected_at_ms + STRAY_FIRES_MS
        return min(ends_ms, now_ms + STRAY_FIRES_MS), now_ms < ends_ms
    if not event.is_open:
        ended_ms = event.resolution.at_ms if event.resolution is not None else event.time_ms
        return min(ended_ms, now_ms), False
    hold_ms = target.hold_ms if event.verdict in HELD else DurationMs(RENEWALS_MISSED * target.resend_ms)
    return now_ms + hold_ms, True


def _labels(event: IncidentEvent, target: AlertmanagerTarget) -> dict[str, str]:
    place = {"topic": event.topic, "partition": str(event.partition)} if event.topic is not None else {}
    return {
        **target.labels,
        "alertname": ALERT_NAMES[event.verdict],
        "severity": str(event.severity),
        "cluster": event.cluster_id,
        **place,
        "incident": event.incident_id,
        "owner": team_of(event),
    }


def team_of(event: IncidentEvent) -> str:
    """The team that owns the transaction, `none` if it is not known."""
    return event.owner.team if event.owner is not None and _TEAM.fullmatch(event.owner.team) else NO_OWNER


def _annotations(event: IncidentEvent) -> dict[str, str]:
    where = f"{event.topic}-{event.partition}" if event.topic is not None else event.transactional_id or "(no name)"
    found = {
        "summary": f"{harmless(where, 80)}: Kafka transaction {event.verdict.replace('_', ' ')}",
        "description": _description(event),
        "runbook_url": f"{_RUNBOOK}#{event.verdict}",
        "command": _command(event),
        "transactional_id": harmless(event.transactional_id or ""),
        "contact": harmless((event.owner.contact or "") if event.owner is not None else ""),
    }
    return {name: text for name, text in found.items() if text}


def _description(event: IncidentEvent) -> str:
    """What it means, and whom it hurts."""
    parts = [f"{RULE_OF[event.verdict].meaning}."]
    if event.hidden_records:
        parts.append(f"{event.hidden_records} records wait behind it.")
    groups = [group.group_id for group in event.consumer_groups if group.state is GroupState.STOPPED]
    groups += [group.group_id for group in event.waiting_groups]
    if groups:
        named = ", ".join(harmless(group, 60) for group in groups[:_GROUPS_NAMED])
        more = f" and {len(groups) - _GROUPS_NAMED} more" if len(groups) > _GROUPS_NAMED else ""
        parts.append(f"Groups that stand still: {named}{more}.")
    return " ".join(parts)


def _command(event: IncidentEvent) -> str:
    """The suggested command, or nothing: a command that is cut or escaped must not be pasted."""
    command = event.suggested_command
    if command is None:
        return ""
    is_text = command.isprintable() and not re.search(r"[<>&`]", command.replace(" && ", " "))
    return (
        command
        if is_text and len(command) <= LONGEST_COMMAND
        else "`txnwatch status` shows it: it cannot be shown here as it is"
    )


def harmless(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text of others that no chat system takes for markup, a mention or a link, and of a limited length."""
    shown = _ACTIVE.sub(_escaped, printable(text[: longest + 1]))
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}\u2026"


def _escaped(found: re.Match[str]) -> str:
    return ":\\x2f/" if found[0] == "://" else f"\\x{ord(found[0]):02x}"


def _rfc3339(time_ms: TimestampMs) -> str:
    seconds, millis = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
