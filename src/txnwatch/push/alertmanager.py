"""One peer of an Alertmanager: a thread that sends it new alerts, renewals and ends.

Each peer gets every alert, as Prometheus does it: a balancer would give each alert to one of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from typing import Final

from txnwatch.push.alert_book import Alert, AlertBook, SentAlert, alert_of, from_kept, is_long_over, to_kept
from txnwatch.push.http_client import Address, HttpClient
from txnwatch.push.journal import Journal
from txnwatch.push.push_file import AlertmanagerTarget
from txnwatch.push.sender import TRIES_OF_A_REFUSED_EVENT, Sender, TargetAnswer, TargetThread
from txnwatch.sinks.delivery.outbox import WHEN_WOKEN, DeliveryCounts
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import Log
from txnwatch.state.model.values import TimestampMs

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
            Sender(f"alertmanager {target.name} {address.shown}", target, client, journal, now_ms, log), self._work, log
        )
        self._journal = journal
        self._now_ms = now_ms
        self._delivered = 0
        self._tries = 0
        self._most = _AT_A_TIME
        form = functools.partial(_form, target)
        self._book = AlertBook(form, target.resend_ms, self._kept())

    def _kept(self) -> dict[str, SentAlert]:
        now_ms = self._now_ms()
        found = {key: from_kept(value) for key, value in self._journal.values.items()}
        kept = {key: sent for key, sent in found.items() if sent is not None and not is_long_over(sent, now_ms)}
        for key in found.keys() - kept.keys():
            self._journal.keep(key, None)
        return kept

    @property
    def waiting(self) -> int:
        """See MirrorQueue."""
        with self._lock:
            return self._book.waiting

    @property
    def tally(self) -> DeliveryCounts:
        """See MirrorQueue."""
        with self._lock:
            oldest_ms = self._book.oldest_ms
        return DeliveryCounts(self._delivered, self._sender.refused, oldest_ms, self._sender.is_stopped)

    def put(self, events: Iterable[IncidentEvent]) -> None:
        """Takes the latest events of incidents."""
        now_ms = self._now_ms()
        with self._lock:
            for event in events:
                self._book.take(event, now_ms)
        self._thread.wake()

    def take_history(self, event: IncidentEvent) -> None:
        """An alert shows an incident as it is; its history is of no use."""

    def _work(self) -> float:
        while not self._thread.is_stopping and not self._sender.is_stopped:
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
