"""Which alerts one Alertmanager has, and which it gets next. Pure: no I/O, and time is an argument.

Law: a firing alert is sent again before it ends. An alert whose labels change is another alert for Alertmanager, so the
former one is ended first; its labels are kept, also over a restart. An end is sent again for 15 minutes, in case
Alertmanager was restarted and has lost it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from txnwatch.push.alert_forms import Alert
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import DurationMs, TimestampMs

ENDED_FOR_MS: Final = DurationMs(900_000)
Form = Callable[[IncidentEvent, TimestampMs], Alert]


@dataclass(frozen=True, slots=True)
class SentAlert:
    """The last alert of an incident that Alertmanager has taken.

    Attributes:
        over_ms: when it was first sent as ended; None while it fires.
    """

    sequence: int
    labels: dict[str, str]
    starts_ms: TimestampMs
    over_ms: TimestampMs | None = None


def to_kept(sent: SentAlert) -> list[Any]:
    """The value that is kept in a file."""
    return [sent.sequence, sent.labels, sent.starts_ms, sent.over_ms]


def from_kept(value: Any) -> SentAlert | None:  # noqa: ANN401 - any value of JSON
    """The kept alert; None if the value is not one."""
    match value:
        case [int(sequence), dict(labels), int(starts_ms), int() | None as over_ms]:
            texts = {str(name): str(text) for name, text in labels.items()}
            return SentAlert(sequence, texts, TimestampMs(starts_ms), None if over_ms is None else TimestampMs(over_ms))
    return None


class AlertBook:
    """The alerts of one Alertmanager.

    Args:
        form: makes the alert of an event.
        resend_ms: the pause between two renewals.
        sent: what it had before this start, by incident.
    """

    def __init__(self, form: Form, resend_ms: DurationMs, sent: dict[str, SentAlert]) -> None:
        self._form = form
        self._resend_ms = resend_ms
        self._events: dict[str, IncidentEvent] = {}
        self._due: dict[str, TimestampMs] = {}
        self._new: dict[str, TimestampMs] = {}
        self.sent = sent

    @property
    def waiting(self) -> int:
        """How many incidents have news that Alertmanager has not taken."""
        return len(self._new)

    @property
    def oldest_ms(self) -> TimestampMs | None:
        """The time of the oldest event that Alertmanager has not taken."""
        return min(self._new.values(), default=None)

    def take(self, event: IncidentEvent, now_ms: TimestampMs) -> None:
        """Takes an incident as it is now; an older event, or the same one again, changes nothing.

        The same event can have another owner: a new table of owners names it again, and publishes nothing.
        """
        known, sent = self._events.get(event.incident_id), self.sent.get(event.incident_id)
        if known is not None and (known.sequence > event.sequence or known == event):
            return
        if not self._form(event, now_ms).is_firing and _is_told(event, sent, now_ms):
            return
        self._events[event.incident_id] = event
        self._due[event.incident_id] = now_ms
        if sent is None or sent.sequence < event.sequence:
            self._new.setdefault(event.incident_id, event.time_ms)

    def next_ms(self) -> TimestampMs | None:
        """When the next alert is due; None if there is none."""
        return min(self._due.values(), default=None)

    def due(self, now_ms: TimestampMs, most: int) -> list[Alert]:
        """The alerts of the next request, of so many incidents at most; news first."""
        ids = [incident_id for incident_id in self._new if self._due[incident_id] <= now_ms]
        ids += [key for key, due_ms in self._due.items() if due_ms <= now_ms and key not in self._new]
        return [alert for incident_id in ids[:most] for alert in self._alerts(incident_id, now_ms)]

    def _alerts(self, incident_id: str, now_ms: TimestampMs) -> list[Alert]:
        alert, sent = self._form(self._events[incident_id], now_ms), self.sent.get(incident_id)
        if sent is None or sent.labels == alert.labels:
            return [alert]
        after_start_ms = sent.starts_ms + DurationMs(1)
        if not alert.is_firing:  # what has fired is what ends, whatever the last event says
            ends_ms = max(alert.ends_ms, after_start_ms)
            return [replace(alert, labels=sent.labels, starts_ms=sent.starts_ms, ends_ms=ends_ms)]
        if sent.over_ms is not None:
            return [alert]
        ends_ms = max(now_ms, after_start_ms)
        former = replace(alert, labels=sent.labels, starts_ms=sent.starts_ms, ends_ms=ends_ms, is_firing=False)
        return [replace(former, is_of_former_labels=True), alert]

    def taken(self, alerts: Iterable[Alert], now_ms: TimestampMs) -> list[str]:
        """Alertmanager has taken the alerts; returns the incidents whose entry in `sent` has changed."""
        return [
            alert.incident_id for alert in alerts if not alert.is_of_former_labels and self._is_changed(alert, now_ms)
        ]

    def _is_changed(self, alert: Alert, now_ms: TimestampMs) -> bool:
        incident_id, before = alert.incident_id, self.sent.get(alert.incident_id)
        over_ms = None if alert.is_firing else (before.over_ms if before is not None else None) or now_ms
        self._due[incident_id] = now_ms + self._resend_ms
        if self._events[incident_id] is alert.event:
            self._new.pop(incident_id, None)
        else:
            self._due[incident_id] = now_ms
        after = SentAlert(alert.event.sequence, alert.labels, alert.starts_ms, over_ms)
        if incident_id not in self._new and is_long_over(after, now_ms):
            del self._events[incident_id], self._due[incident_id]
            self.sent.pop(incident_id, None)
        else:
            self.sent[incident_id] = after
        return self.sent.get(incident_id) != before

    def give_up(self, alerts: Iterable[Alert], now_ms: TimestampMs) -> None:
        """Alertmanager refuses the alerts; they are tried again with the next renewal."""
        for alert in alerts:
            self._new.pop(alert.incident_id, None)
            self._due[alert.incident_id] = now_ms + self._resend_ms


def _is_told(event: IncidentEvent, sent: SentAlert | None, now_ms: TimestampMs) -> bool:
    """Whether Alertmanager needs no word about the end: it was told for long enough, or has never had the alert."""
    if sent is None:
        return now_ms - event.time_ms >= ENDED_FOR_MS
    return sent.sequence >= event.sequence and is_long_over(sent, now_ms)


def is_long_over(sent: SentAlert, now_ms: TimestampMs) -> bool:
    """Whether the end of an alert need not be sent again."""
    return sent.over_ms is not None and now_ms - sent.over_ms >= ENDED_FOR_MS
