"""Publishes the list of open transactions: at most once a second if it has changed, every 20 s if it has not.

The list is not an event. A list that could not be published is not kept, because the next one has everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import Finding, OpenTransaction, OpenTransactions
from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

SHOWN = 1_000
_PAUSE_MS, _UNCHANGED_PAUSE_MS, _AWAY_PAUSE_MS = DurationMs(1_000), DurationMs(20_000), DurationMs(30_000)


class OpenList:
    """Publishes the oldest open transactions; never raises.

    `show` replaces the published list. After a SinkError it is not called for 30 s; the outbox reports the failure.
    """

    def __init__(self, show: Callable[[Sequence[OpenTransaction]], None]) -> None:
        self._show = show
        self._shown: tuple[OpenTransaction, ...] | None = None
        self._due_ms = AT_ONCE
        self._again_ms = AT_ONCE

    def on_batch(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> None:
        """Publishes the list after a micro-batch, if it is due."""
        if now_ms < self._due_ms:
            return
        transactions = (
            one for finding in emitted if isinstance(finding, OpenTransactions) for one in finding.transactions
        )
        oldest = tuple(sorted(transactions, key=lambda one: (one.since_ms, one.producer_id))[:SHOWN])
        if oldest == self._shown and now_ms < self._again_ms:
            return
        try:
            self._show(oldest)
        except SinkError:
            self._shown, self._due_ms = None, now_ms + _AWAY_PAUSE_MS
            return
        self._shown, self._due_ms, self._again_ms = oldest, now_ms + _PAUSE_MS, now_ms + _UNCHANGED_PAUSE_MS
