"""Delivers the ledger's events: to the events topic first, and to its mirrors once they are on the topic.

An event that is not on the topic is lost in a restart. Its incident would then never end in the mirrors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from txnwatch.sinks.delivery.outbox import MirrorOutbox, TopicOutbox
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.retention import Retention
from txnwatch.state.events.record_size import fitting
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

TIDY_MS = DurationMs(5_000)


@dataclass(slots=True)
class Delivery:
    """The queues of the events topic and of its mirrors.

    Attributes:
        listens: whether published events are read back from the topic.
    """

    topic: TopicOutbox
    mirrors: Sequence[MirrorOutbox]
    store: IncidentStore
    retention: Retention
    on_event: Callable[[IncidentEvent], None]
    report: Callable[[str], None]
    listens: bool
    _tidy_ms: TimestampMs = AT_ONCE

    def publish(self, events: Sequence[IncidentEvent], now_ms: TimestampMs) -> None:
        """Delivers events in order, cut where they do not fit into a record."""
        events = [fitting(event) for event in events]
        if self.listens:
            self.store.sent(events)
        self.topic.put(events)
        taken = self.topic.deliver(now_ms)
        for mirror in self.mirrors:
            mirror.put(taken)
            mirror.deliver(now_ms)
        for event in events:
            self.on_event(event)

    def publish_again(self) -> int:
        """Publishes the last event of open incidents again if an invalid record follows it; returns how many.

        The events keep their sequence.
        """
        again = [fitting(event) for event in self.store.overwritten()]
        self.topic.put(again)
        return len(again)

    def resend_to(self, mirrors: Iterable[MirrorOutbox]) -> None:
        """Queues the latest event of every known incident again, for mirrors that may have missed some.

        Incidents with events that are not on the topic yet are left out: these events follow once they are.
        """
        waiting = self.topic.waiting_incidents
        events = [event for event in self.store.known.values() if event.incident_id not in waiting]
        for mirror in mirrors:
            mirror.put(events)

    def tidy(self, now_ms: TimestampMs) -> None:
        """Drops incidents that ended long ago, also in mirrors that show them as open, and fills emptied mirrors."""
        if now_ms < self._tidy_ms:
            return
        self._tidy_ms = now_ms + TIDY_MS
        self.store.forget(now_ms)
        for mirror in self.mirrors:
            mirror.forget(self.store.has_ended, now_ms)
            if mirror.has_lost_everything():
                self.report(f"{mirror.name} is empty and is filled again")
                self.resend_to([mirror])
        if not self.topic.waiting:
            self.retention.on_tidy(self.store, now_ms)
