"""A web hook: one thread that sends incident events in order, one at a time, until the receiver has taken each.

Apart: targets.py makes the targets of both kinds, and this is one of them.

A request is that of CloudEvents 1.0 over HTTP, structured or binary. The attributes are those of the events topic.
Their text is cut, because servers limit their headers, and made printable, because CloudEvents allows no control
characters in them; the event itself has the whole names.

The signature is that of Standard Webhooks: HMAC-SHA256 of the id, the time and the body, so a receiver can check who
sent it, and that it is not an old request. The id is the same at each attempt: by it a receiver drops doubles.

A chat gets text for people: one event in a message, or a digest of many (digest.py). It is made anew at each attempt,
so a chat that was away gets one digest of all that came meanwhile.

Law: the position is kept after the receiver has taken an event. So an event arrives at least once, and an incident's
sequence never goes back.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from txnwatch.http_client import HttpClient, Reply
from txnwatch.push.digest import MessagePace, Portion, text_of
from txnwatch.push.push_file import MESSAGES_PER_MINUTE, WebhookTarget
from txnwatch.push.sender import (
    TRIES_OF_A_REFUSED_EVENT,
    Journal,
    Sender,
    TargetAnswer,
    TargetPosition,
    TargetThread,
    Undelivered,
)
from txnwatch.sinks.delivery.encoding import cloud_event_attributes, to_json
from txnwatch.sinks.delivery.outbox import WHEN_WOKEN, QueueBound
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import AT_ONCE, LONG_AGO, NO_TIME, DurationMs, TimestampMs
from txnwatch.state.text import cut, printable

JSON: Final = "application/json"
STRUCTURED_TYPE: Final = "application/cloudevents+json; charset=UTF-8"
LONGEST_ATTRIBUTE: Final = 512
Headers = list[tuple[str, str]]


class Request(NamedTuple):
    """The headers and the body of a delivery."""

    headers: Headers
    body: bytes


def structured(event: IncidentEvent, external_url: str | None = None, before: IncidentEvent | None = None) -> Request:
    """Attributes and event in one JSON object, and the extension `message`: the text for people."""
    message = text_of([event], external_url, before)
    fields = {**_attributes(event), "datacontenttype": JSON, "message": message}
    attributes = json.dumps(fields, separators=(",", ":"))
    body = attributes.encode()[:-1] + b',"data":' + to_json(event) + b"}"
    return Request([("Content-Type", STRUCTURED_TYPE)], body)


def binary(event: IncidentEvent, _: str | None = None, __: IncidentEvent | None = None) -> Request:
    """Attributes in headers, and the event as the body. The text for people is too long for a header."""
    headers = [(f"ce-{name}", _encoded(value)) for name, value in _attributes(event).items()]
    return Request([*headers, ("Content-Type", JSON)], to_json(event))


MODES: Final = {"structured": structured, "binary": binary}


def chat(
    events: Sequence[IncidentEvent], external_url: str | None = None, before: IncidentEvent | None = None
) -> Request:
    """One message, as Slack, Mattermost, Rocket.Chat and Google Chat take it."""
    body = json.dumps({"text": text_of(events, external_url, before)}, separators=(",", ":"))
    return Request([("Content-Type", JSON)], body.encode())


def signature_headers(event_id: str, body: bytes, keys: Sequence[bytes], now_ms: TimestampMs) -> Headers:
    """The headers of the signature, one signature for each key; none without keys."""
    if not keys:
        return []
    seconds = str(now_ms // 1000)
    signed = f"{event_id}.{seconds}.".encode() + body
    signatures = [base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys]
    return [
        ("webhook-id", event_id),
        ("webhook-timestamp", seconds),
        ("webhook-signature", " ".join(f"v1,{signature}" for signature in signatures)),
    ]


def _attributes(event: IncidentEvent) -> dict[str, str]:
    return {name: _short(value) for name, value in cloud_event_attributes(event).items()}


def _short(value: str) -> str:
    """The value, cut before its escapes are made, and once more with them."""
    return cut(printable(cut(value, LONGEST_ATTRIBUTE)), LONGEST_ATTRIBUTE)


def _encoded(text: str) -> str:
    """Percent-encoded as the HTTP binding has it: everything but printable ASCII, the blank, the quote and %."""
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte not in b'"%' else f"%{byte:02X}" for byte in text.encode()
    )


CONSENT_MS: Final = DurationMs(86_400_000)


class Consent:
    """The consent of a receiver, asked for once a day: if it takes events of this origin, and how many a minute."""

    def __init__(self, origin: str) -> None:
        self.headers = [("WebHook-Request-Origin", origin)]
        self.pause_ms = NO_TIME
        self._origin = origin
        self._until_ms: TimestampMs = AT_ONCE

    def is_due(self, now_ms: TimestampMs) -> bool:
        """Whether the receiver has to be asked."""
        return now_ms >= self._until_ms

    def take(self, reply: Reply, now_ms: TimestampMs) -> bool:
        """Takes an answer, whose status says nothing; returns whether the receiver agrees."""
        allowed = reply.headers.get("webhook-allowed-origin", "").strip()
        if allowed not in {"*", self._origin}:
            return False
        rate = reply.headers.get("webhook-allowed-rate", "").strip()
        per_minute = int(rate[:9]) if rate.isascii() and rate.isdecimal() else 0
        self.pause_ms = DurationMs(60_000 // per_minute) if per_minute else NO_TIME
        self._until_ms = now_ms + CONSENT_MS
        return True


# The former speaker may have died after an end was on the topic, and before the target had it. The next one speaks
# after a minute at the latest, and between two attempts there are at most 36 s.
UNSURE_END_MS: Final = DurationMs(120_000)


class Webhook(TargetThread):
    """A MirrorQueue that sends to one web hook.

    Law: each event is told once. Another instance has a position of its own. So while another one speaks, what is on
    the topic counts as told, but not the last event of each open incident, and not ends that are younger than
    `UNSURE_END_MS`: a lost alert is worse than one that is told twice. If no other one has spoken, everything is told
    that the target has not taken.
    """

    def __init__(
        self,
        target: WebhookTarget,
        journal: Journal,
        now_ms: Callable[[], TimestampMs],
        log: Log,
    ) -> None:
        (address,) = target.addresses
        client = HttpClient(address, target.ca_file)
        super().__init__(
            Sender(f"webhook {target.name}", target, client, journal, now_ms, log), self._work, self._left, log
        )
        self._target = target
        self._position = TargetPosition(journal, now_ms())
        self._now_ms = now_ms
        self._waiting: deque[IncidentEvent] = deque()
        self._bound = QueueBound()
        self._queued: dict[str, int] = {}
        self._last: dict[str, IncidentEvent] = {}  # the last event of each open incident that the target need not get
        self._current: list[IncidentEvent] = []
        self._tries = 0
        self._next_ms: TimestampMs = AT_ONCE
        self._consent = Consent(target.origin) if target.validate_first and target.origin is not None else None
        self._pace = MessagePace(target.messages_per_minute or MESSAGES_PER_MINUTE) if target.is_chat else None

    def _left(self) -> Undelivered:
        with self._lock:
            oldest_ms = next((event.time_ms for event in (*self._current, *islice(self._waiting, 1))), None)
            return Undelivered(len(self._waiting) + len(self._current), oldest_ms)

    def put(self, events: Iterable[IncidentEvent]) -> None:
        """Adds events that this instance has just published."""
        self._add(events, lambda _: True)

    def take_history(self, event: IncidentEvent) -> None:
        """Adds an event of the topic's history, if it is new to the target; at the first start none of them is."""
        self._add([event], lambda of_history: self._position.is_above_floor(of_history.time_ms))

    def others_told(self) -> None:
        """See MirrorQueue. What the next take-over has to tell comes again with it."""
        with self._lock:
            self._position.raise_floor(self._now_ms() - UNSURE_END_MS)
            self._waiting.clear()
            self._queued.clear()
            self._current = []
            self._tries = 0
        self._thread.wake()

    def take_over(self, events: Iterable[IncidentEvent], since_ms: Mapping[str, TimestampMs]) -> None:
        """See MirrorQueue."""

        def is_news(event: IncidentEvent) -> bool:
            made_ms = max(event.time_ms, since_ms.get(event.incident_id, LONG_AGO))
            return event.is_open or self._position.is_above_floor(made_ms)

        self._add(events, is_news)

    def _add(self, events: Iterable[IncidentEvent], is_news: Callable[[IncidentEvent], bool]) -> None:
        with self._lock:
            for event in events:
                if self._is_new(event, is_news):
                    self._waiting.append(event)
                    self._queued[event.incident_id] = event.sequence
                elif event.incident_id not in self._queued:
                    self._is_last(event)
            self._waiting = self._bound.applied(self._waiting)
        self._thread.wake()

    def _is_new(self, event: IncidentEvent, is_news: Callable[[IncidentEvent], bool]) -> bool:
        queued = self._queued.get(event.incident_id)
        if queued is None and not self._target.wants(event) and not self._position.is_known(event):
            return False
        if queued is not None:  # its end is new also if the clock was set back behind the floor
            return event.sequence > queued
        return not self._position.has_taken(event) and is_news(event)

    def _work(self) -> float:
        self._position.keep_floor()
        while self._goes_on:
            portion = self._portion()
            if not portion.events:
                return WHEN_WOKEN
            wait_ms = max(self._sender.wait_ms(), self._next_ms - self._now_ms(), portion.wait_ms)
            if wait_ms > 0:
                return wait_ms
            if self._has_consent() and (events := self._taken(portion.events)):
                self._send(events)
        return WHEN_WOKEN

    def _portion(self) -> Portion:
        """What the next request tells."""
        with self._lock:
            if self._current:
                return Portion(len(self._current))
            if self._pace is not None:
                return self._pace.next_portion(len(self._waiting), self._now_ms())
            return Portion(min(len(self._waiting), 1))

    def _taken(self, count: int) -> list[IncidentEvent]:
        """The events of the next request; `others_told` may have left fewer."""
        with self._lock:
            if not self._current:
                self._current = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
            return self._current

    def _has_consent(self) -> bool:
        consent = self._consent
        if consent is None or not consent.is_due(self._now_ms()):
            return True
        reply = self._sender.ask("OPTIONS", consent.headers)
        if reply is None:
            return False
        if not consent.take(reply, self._now_ms()):
            self._sender.fail("it does not allow this origin (WebHook-Allowed-Origin)")
            return False
        return True

    def _send(self, events: list[IncidentEvent]) -> None:
        last = events[-1]
        request = self._request(events)
        try:
            keys = self._target.signing_keys()
        except SinkError as exc:
            self._sender.fail(str(exc))
            return
        signature = signature_headers(last.event_id, request.body, keys, self._now_ms())
        asked = self._consent.headers if self._consent is not None else []
        answer = self._sender.post([*request.headers, *signature, *asked], request.body)
        self._next_ms = self._now_ms() + (self._consent.pause_ms if self._consent is not None else NO_TIME)
        match answer:
            case TargetAnswer.TAKEN:
                self._delivered += len(events)
                if self._pace is not None:
                    self._pace.sent(len(events), self._now_ms())
                self._are_over(events)
            case TargetAnswer.REFUSED:
                self._tries += 1
                if self._tries >= TRIES_OF_A_REFUSED_EVENT:
                    self._sender.set_aside(f"event {last.event_id}")
                    self._are_over(events)
            case _:
                if self._pace is not None:
                    self._put_back()

    def _request(self, events: list[IncidentEvent]) -> Request:
        url, before = self._target.external_url, self._last.get(events[0].incident_id)
        if self._target.is_chat:
            return chat(events, url, before)
        return MODES[self._target.mode](events[0], url, before)

    def _is_last(self, event: IncidentEvent) -> None:
        """Keeps what the next event of an incident is compared with."""
        last = self._last.get(event.incident_id)
        if not event.is_open:
            self._last.pop(event.incident_id, None)
        elif last is None or last.sequence < event.sequence:
            self._last[event.incident_id] = event

    def _put_back(self) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(self._current))
            self._current = []
            self._waiting = self._bound.applied(self._waiting)

    def _are_over(self, events: list[IncidentEvent]) -> None:
        for event in events:
            self._position.take(event)  # outside the lock: a disk may be slow, and `put` must not wait for it
        self._tries = 0
        with self._lock:
            self._current = []
            for event in events:
                self._is_last(event)
                if self._queued.get(event.incident_id) == event.sequence:
                    del self._queued[event.incident_id]
