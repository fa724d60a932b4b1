"""Removes incidents that ended before the retention: from the events topic by a tombstone, then from the store.

Several instances may write a tombstone for the same incident; that does no harm. An instance removes only incidents
that it has itself known as ended for a while, because the time of an end on the topic may be forged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

RETENTION_MS = DurationMs(7 * 24 * 3_600_000)
PAUSE_MS = DurationMs(600_000)
AT_A_TIME = 1_000


@dataclass(slots=True)
class Retention:
    """How long an incident that ended is kept.

    Attributes:
        bury: removes incidents from the topic; raises SinkError if some may not be removed.
    """

    retention_ms: DurationMs = RETENTION_MS
    bury: Callable[[Sequence[str]], None] = lambda _: None
    _due_ms: TimestampMs = AT_ONCE

    def on_tidy(self, store: IncidentStore, now_ms: TimestampMs) -> None:
        """Removes what has expired; checks at most every 10 minutes once nothing is left over."""
        if now_ms < self._due_ms:
            return
        expired = store.expired(now_ms, self.retention_ms, AT_A_TIME)
        if len(expired) < AT_A_TIME:
            self._due_ms = now_ms + PAUSE_MS
        if not expired:
            return
        try:
            self.bury(expired)
        except SinkError:
            self._due_ms = now_ms + PAUSE_MS  # it is retried
            return
        store.drop(expired)
