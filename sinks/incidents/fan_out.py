"""How events leave the ledger: to the events topic first, and to the other sinks what the topic has taken.

A restart would forget what the topic has not got, and other instances would never hear of its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from txnwatch.sinks.delivery.outbox import Outbox
from txnwatch.sinks.incidents.incident_store import Memory
from txnwatch.sinks.incidents.retention import Retention
from txnwatch.state.events.record_size import fitting
from txnwatch.state.model.incident import IncidentEvent

TIDY_MS = 5_000


@dataclass(slots=True)
class Delivery:
    """The outboxes, that of the events topic first.

    Attributes:
        listens: whether what was told is heard again from the topic.
    """

    outboxes: Sequence[Outbox]
    memory: Memory
    retention: Retention
    on_event: Callable[[IncidentEvent], None]
    report: Callable[[str], None]
    listens: bool
    _tidy_ms: int = 0

    def tell(self, events: Sequence[IncidentEvent], now_ms: int) -> None:
        """Hands events out, in order, as they fit into a record."""
        events = [fitting(event) for event in events]
        if self.listens:
            self.memory.telling(events)
        topic, *others = self.outboxes
        topic.put(events)
        taken = topic.deliver(now_ms)
        for outbox in others:
            outbox.put(taken)
            outbox.deliver(now_ms)
        for event in events:
            self.on_event(event)

    def tell_again(self) -> int:
        """Puts the last event of open incidents behind what others put over it; returns of how many.

        It is no news: no sequence rises.
        """
        again = [fitting(event) for event in self.memory.overwritten()]
        self.outboxes[0].put(again)
        return len(again)

    def resend_to(self, outboxes: Iterable[Outbox]) -> None:
        """Queues the latest event of every incident that is known again, for sinks that may have missed some.

        What the topic has not got yet goes to the others once it has.
        """
        waiting = self.outboxes[0].waiting_incidents
        events = [event for event in self.memory.known.values() if event.incident_id not in waiting]
        for outbox in outboxes:
            outbox.put(events)

    def tidy(self, now_ms: int) -> None:
        """Lets go of what is long over, here and where it is shown as open still, and fills what was lost."""
        if now_ms < self._tidy_ms:
            return
        self._tidy_ms = now_ms + TIDY_MS
        self.memory.forget(now_ms)
        for outbox in self.outboxes[1:]:
            outbox.forget(self.memory.is_past, now_ms)
            if outbox.has_lost_everything():
                self.report(f"{outbox.name} is empty; filling it")
                self.resend_to([outbox])
        if not self.outboxes[0].waiting:
            self.retention.on_tidy(self.memory, now_ms)
