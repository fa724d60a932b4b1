"""What ended before the retention leaves the events topic, by a tombstone, and then the ledger's memory.

Several instances may put a tombstone for the same incident: it does no harm. An instance takes nothing away that it
has not itself known as ended for a while: the time of an end is what somebody wrote on the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txnwatch.sinks.incidents.incident_store import Memory
from txnwatch.state.model.errors import SinkError

RETENTION_MS = 7 * 24 * 3_600_000
PAUSE_MS = 600_000
AT_A_TIME = 1_000


@dataclass(slots=True)
class Retention:
    """How long an incident that ended is kept.

    Attributes:
        bury: takes incidents away from the topic; raises SinkError where it is not known that all are gone.
    """

    retention_ms: int = RETENTION_MS
    bury: Callable[[Sequence[str]], None] = lambda _: None
    _due_ms: int = 0

    def on_tidy(self, memory: Memory, now_ms: int) -> None:
        """Takes away what is due; looks for it now and then."""
        if now_ms < self._due_ms:
            return
        expired = memory.expired(now_ms, self.retention_ms, AT_A_TIME)
        if len(expired) < AT_A_TIME:
            self._due_ms = now_ms + PAUSE_MS
        if not expired:
            return
        try:
            self.bury(expired)
        except SinkError:
            self._due_ms = now_ms + PAUSE_MS  # it is tried again
            return
        memory.drop(expired)
