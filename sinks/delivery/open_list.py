"""What is open now, shown elsewhere as a whole: once a second if it has changed, and now and then if it has not.

It is a picture and no event: what could not be shown is not kept, the next one holds everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import Emitted, OpenTransaction, OpenTransactions

SHOWN = 1_000
_PAUSE_MS, _UNCHANGED_PAUSE_MS, _AWAY_PAUSE_MS = 1_000, 20_000, 30_000


class OpenList:
    """Shows the oldest open transactions; never raises.

    `show` replaces what is shown; if it raises SinkError, it is left alone for a while: the outbox tells of it.
    """

    def __init__(self, show: Callable[[Sequence[OpenTransaction]], None]) -> None:
        self._show = show
        self._shown: tuple[OpenTransaction, ...] | None = None
        self._due_ms = 0
        self._again_ms = 0

    def on_batch(self, emitted: Sequence[Emitted], now_ms: int) -> None:
        """One micro-batch."""
        if now_ms < self._due_ms:
            return
        told = (one for said in emitted if isinstance(said, OpenTransactions) for one in said.transactions)
        oldest = tuple(sorted(told, key=lambda one: (one.since_ms, one.producer_id))[:SHOWN])
        if oldest == self._shown and now_ms < self._again_ms:
            return
        try:
            self._show(oldest)
        except SinkError:
            self._shown, self._due_ms = None, now_ms + _AWAY_PAUSE_MS
            return
        self._shown, self._due_ms, self._again_ms = oldest, now_ms + _PAUSE_MS, now_ms + _UNCHANGED_PAUSE_MS
