"""One peer of an Alertmanager: its alerts, how an incident looks as one, and the thread that sends them.

Each peer gets every alert, as Prometheus does it: a balancer would give each alert to one of them. `AlertBook` decides
without I/O and without a clock, and `AlertmanagerPeer` sends.

The labels are the identity of an alert, so the transactional id is an annotation. The annotations are the parts of a
message (message.py), with the age of the moment: Alertmanager says an alert again after hours. The labels `reason`,
`topic`, `id_prefix` and `owner` are for groups: alerts of one cause share them. The label `topic` is the name of the
topic without markup, and may look like a domain: it has letters, digits, `.`, `_` and `-`.

Law: a firing alert is sent again before it ends. An alert whose labels change is another alert for Alertmanager, so the
former one is ended first; its labels are kept, also over a restart. An end is sent again for 15 minutes, in case
Alertmanager was restarted and has lost it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from txnwatch.http_client import Address, HttpClient
from txnwatch.push.message import PARTS, harmless, message_of, page_of, without_markup
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.push.sender import TRIES_OF_A_REFUSED_EVENT, Journal, Sender, TargetAnswer, TargetThread, Undelivered
from txnwatch.sinks.delivery.outbox import WHEN_WOKEN
from txnwatch.state.model.incident import IncidentEvent, aged
from txnwatch.state.model.ownership import WITHOUT_OWNER
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import DurationMs, TimestampMs, rfc3339
from txnwatch.state.model.verdicts import VERDICTS, Severity, Verdict
from txnwatch.state.telling.folding import harm, id_prefix
from txnwatch.state.text import GIVEN_NAME

ALERTS_PATH: Final = "/api/v2/alerts"
STATUS_PATH: Final = "/api/v2/status"
_AT_A_TIME: Final = 64
_HEADERS: Final = [("Content-Type", "application/json")]


class AlertmanagerPeer(TargetThread):
    """A MirrorQueue that keeps the alerts of one peer as the incidents are."""

    def __init__(
        self,
        target: AlertmanagerTarget,
        address: Address,
        journal: Journal,
        now_ms: Callable[[], TimestampMs],
        log: Log,
    ) -> None:
        client = HttpClient(address.below(ALERTS_PATH), target.ca_file)
        super().__init__(
            Sender(f"alertmanager {target.name} {address.shown}", target, client, journal, now_ms, log),
            *(self._work, self._left, log),
        )
        self._journal = journal
        self._now_ms = now_ms
        self._tries = 0
        self._most = _AT_A_TIME
        form = functools.partial(_form, target)
        self._book = AlertBook(form, target.resend_ms, self._kept(), target.wants)

    def _kept(self) -> dict[str, SentAlert]:
        now_ms = self._now_ms()
        alerts = {key: from_kept(value) for key, value in self._journal.values.items()}
        kept = {key: sent for key, sent in alerts.items() if sent is not None and not is_long_over(sent, now_ms)}
        for key in alerts.keys() - kept.keys():
            self._journal.keep(key, None)
        return kept

    def _left(self) -> Undelivered:
        with self._lock:
            return Undelivered(self._book.waiting, self._book.oldest_ms)

    def put(self, events: Iterable[IncidentEvent]) -> None:
        """Takes the latest events of incidents."""
        now_ms = self._now_ms()
        with self._lock:
            for event in events:
                self._book.take(event, now_ms)
        self._thread.wake()

    def take_over(self, events: Iterable[IncidentEvent], _: Mapping[str, TimestampMs]) -> None:
        """See MirrorQueue."""
        self.put(events)

    def others_told(self) -> None:
        """See MirrorQueue. What is open when this instance takes over comes again, and nothing else is renewed."""
        with self._lock:
            self._book.forget_events()

    def take_history(self, event: IncidentEvent) -> None:
        """An alert shows an incident as it is; its history is of no use."""

    def _work(self) -> float:
        while self._goes_on:
            now_ms = self._now_ms()
            with self._lock:
                next_ms = self._book.next_ms()
                alerts = self._book.due(now_ms, self._most)
            if next_ms is None:
                return WHEN_WOKEN
            wait_ms = max(self._sender.wait_ms(), next_ms - now_ms)
            if wait_ms > 0:
                return wait_ms
            self._send(alerts)
        return WHEN_WOKEN

    def _send(self, alerts: list[Alert]) -> None:
        body = json.dumps([alert.as_json() for alert in alerts], separators=(",", ":")).encode()
        answer, now_ms = self._sender.post(_HEADERS, body), self._now_ms()
        if answer is TargetAnswer.TAKEN:
            with self._lock:
                before = self._book.waiting
                changed = self._book.taken(alerts, now_ms)
                self._delivered += before - self._book.waiting
                kept = {key: self._book.sent.get(key) for key in changed}
            for key, sent in kept.items():  # outside the lock: a disk may be slow, and `put` must not wait for it
                self._journal.keep(key, None if sent is None else to_kept(sent))
            self._tries, self._most = 0, _AT_A_TIME
        elif answer is TargetAnswer.REFUSED:
            self._tries += 1
            self._most = 1  # so that one alert that is refused does not keep the others from being taken
            if self._tries >= TRIES_OF_A_REFUSED_EVENT:
                self._give_up(alerts)

    def _give_up(self, alerts: list[Alert]) -> None:
        self._sender.set_aside(f"the alert of incident {alerts[0].incident_id}")
        self._tries = 0
        with self._lock:
            self._book.give_up(alerts, self._now_ms())


def _form(target: AlertmanagerTarget, event: IncidentEvent, now_ms: TimestampMs) -> Alert:
    return alert_of(event, target, now_ms)


# An incident as an alert. Pure: no I/O, and time is an argument.

_STRAY_WRITE: Final = Verdict.STRAY_WRITE
ALERT_NAMES: Final = {
    verdict: f"Kafka{'' if verdict is _STRAY_WRITE else 'Transaction'}{verdict.title().replace('_', '')}"
    for verdict in Verdict
}
# A watcher that is down cannot renew these, and they do not end by themselves: without a renewal they fire for longer.
HELD: Final = frozenset(rule.verdict for rule in VERDICTS if rule.severity is Severity.CRITICAL)
RENEWALS_MISSED: Final = 4  # for how many pauses another alert fires without a renewal
STRAY_FIRES_MS: Final = DurationMs(3_600_000)
NO_REASON: Final = "none"
LONGEST_PREFIX: Final = 80


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
        body = {
            "labels": self.labels,
            "annotations": self.annotations,
            "startsAt": rfc3339(self.starts_ms),
            "endsAt": rfc3339(self.ends_ms),
        }
        return {**body, "generatorURL": self.url} if self.url else body


def alert_of(event: IncidentEvent, target: AlertmanagerTarget, now_ms: TimestampMs) -> Alert:
    """The alert of an incident's latest event."""
    starts_ms = min(event.open_since_ms, now_ms)
    ends_ms, is_firing = _end(event, target, now_ms)
    return Alert(
        event=event,
        labels=_labels(event, target),
        annotations=_annotations(aged(event, now_ms) if event.is_open else event, target),
        starts_ms=starts_ms,
        ends_ms=max(ends_ms, starts_ms + DurationMs(1)),
        is_firing=is_firing,
        url=page_of(target.external_url, event.incident_id),
    )


def _end(event: IncidentEvent, target: AlertmanagerTarget, now_ms: TimestampMs) -> tuple[TimestampMs, bool]:
    """When the alert ends if nothing else is sent, and whether it fires now."""
    if event.verdict is _STRAY_WRITE:  # it never ends, and nothing is open
        ends_ms = event.detected_at_ms + STRAY_FIRES_MS
        return min(ends_ms, now_ms + STRAY_FIRES_MS), now_ms < ends_ms
    if not target.wants(event):  # it was worse before
        return now_ms, False
    if not event.is_open:
        ended_ms = event.resolution.at_ms if event.resolution is not None else event.time_ms
        return min(ended_ms, now_ms), False
    hold_ms = target.hold_ms if event.verdict in HELD else DurationMs(RENEWALS_MISSED * target.resend_ms)
    return now_ms + hold_ms, True


def _labels(event: IncidentEvent, target: AlertmanagerTarget) -> dict[str, str]:
    if event.topic is not None:
        place = {"topic": without_markup(event.topic), "partition": str(event.partition)}
    else:  # by the id alone: the application's name may change when participants become known, and a label must not
        prefix = id_prefix(event.transactional_id or "")
        place = {"id_prefix": harmless(prefix, LONGEST_PREFIX)} if prefix else {}
    return {
        **target.labels,
        "alertname": ALERT_NAMES[event.verdict],
        "severity": str(event.severity),
        "cluster": event.cluster,
        "reason": str(event.reason) if event.reason is not None else NO_REASON,
        **place,
        "incident": event.incident_id,
        "owner": team_of(event),
    }


def team_of(event: IncidentEvent) -> str:
    """The team that owns the transaction, `none` if it is not known."""
    return event.owner.team if event.owner is not None and GIVEN_NAME.fullmatch(event.owner.team) else WITHOUT_OWNER


_MIDDLE: Final = 10**18  # so that texts have the order of numbers, also of negative ones


def _annotations(event: IncidentEvent, target: AlertmanagerTarget) -> dict[str, str]:
    message = message_of(event, target.external_url)
    annotations = {
        "summary": message.summary,
        "description": "\n".join(message.lines),
        **message.parts,
        "runbook_url": message.runbook,
        "page_url": message.page,
        "command": message.command,
        "transactional_id": harmless(event.transactional_id or ""),
        "contact": harmless((event.owner.contact or "") if event.owner is not None else ""),
        "order": " ".join(f"{_MIDDLE + int(part):019d}" for part in harm(event)[:-1]),
    }
    annotations = {name: text for name, text in annotations.items() if text}
    if event.is_open and not target.wants(event):
        return _not_over(annotations, f"It is only {event.severity} now, and nobody is alerted about that.")
    return annotations


def _moved(alert: Alert) -> dict[str, str]:
    """The annotations of the alert that an incident had before its labels changed."""
    name, owner = alert.labels["alertname"], alert.labels["owner"]
    why = f"Its verdict or its owner has changed: another alert stands for it: {name}, owner {owner}."
    return _not_over(alert.annotations, why)


def _not_over(annotations: dict[str, str], why: str) -> dict[str, str]:
    """The annotations of an alert that ends before its incident: a chat would say that it is resolved."""
    kept = {name: text for name, text in annotations.items() if name != "command" and name not in PARTS}
    return {**kept, "summary": f"{annotations['summary']}: not over", "description": f"It is not over. {why}"}


# Which alerts a peer has, and which it gets next. Pure: no I/O, and time is an argument.

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
        wants: whether an incident is severe enough; of another one, only the end of its alert is sent.
    """

    def __init__(
        self,
        form: Form,
        resend_ms: DurationMs,
        sent: dict[str, SentAlert],
        wants: Callable[[IncidentEvent], bool] = lambda _: True,
    ) -> None:
        self._form = form
        self._wants = wants
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
        taken, sent = self._events.get(event.incident_id), self.sent.get(event.incident_id)
        if taken is not None and (taken.sequence > event.sequence or taken == event):
            return
        if sent is None and not self._wants(event):
            self._forget(event.incident_id)
            return
        if not self._form(event, now_ms).is_firing and _is_told(event, sent, now_ms):
            return
        self._events[event.incident_id] = event
        self._due[event.incident_id] = now_ms
        if sent is None or sent.sequence < event.sequence:
            self._new.setdefault(event.incident_id, event.time_ms)

    def _forget(self, incident_id: str) -> None:
        for of_incident in (self._events, self._due, self._new):
            of_incident.pop(incident_id, None)

    def forget_events(self) -> None:
        """Drops the incidents as they were; what Alertmanager has stays known."""
        for of_incident in (self._events, self._due, self._new):
            of_incident.clear()

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
        return [replace(former, annotations=_moved(alert), is_of_former_labels=True), alert]

    def taken(self, alerts: Iterable[Alert], now_ms: TimestampMs) -> list[str]:
        """Alertmanager has taken the alerts; returns the incidents whose entry in `sent` has changed."""
        return [
            alert.incident_id
            for alert in alerts
            if self._is_known(alert) and not alert.is_of_former_labels and self._is_changed(alert, now_ms)
        ]

    def _is_known(self, alert: Alert) -> bool:
        """Whether the incident was not dropped while the request was under way."""
        return alert.incident_id in self._events

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
            self._forget(incident_id)
            self.sent.pop(incident_id, None)
        else:
            self.sent[incident_id] = after
        return self.sent.get(incident_id) != before

    def give_up(self, alerts: Iterable[Alert], now_ms: TimestampMs) -> None:
        """Alertmanager refuses the alerts; they are tried again with the next renewal."""
        for alert in filter(self._is_known, alerts):
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
