"""The longest timeout that a transaction may have, which the coordinator view `none` needs.

Law: the limit never becomes shorter. A transaction that began under a longer limit keeps its own timeout. The brokers
are asked again in time: data must be open for the whole limit before it is late, so a longer limit is known before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs
from txnwatch.streaming.job.coordinator_view import UNKNOWN, BrokerTimeout, LongestTimeout, longest_timeout

_PAUSE_MS = DurationMs(60_000)


@dataclass(slots=True)
class TimeoutLimit:
    """The limit of the setting, or else of the brokers.

    Attributes:
        fixed_ms: the setting `max_transaction_timeout_ms`; the brokers are not asked if it is set.
        known: the limit; without a value if a broker did not show it, or if transactions have none.
    """

    fixed_ms: DurationMs | None
    known: LongestTimeout = UNKNOWN
    _due_ms: TimestampMs = AT_ONCE
    _change: str | None = None

    @property
    def ms(self) -> DurationMs | None:
        """The limit; None if it is not known, or if no timeout limits a transaction."""
        return self.fixed_ms if self.fixed_ms is not None else self.known.ms

    def read(self, timeouts: Callable[[], list[BrokerTimeout]]) -> None:
        """Reads the limit for the start of a watch: every broker must show it."""
        if self.fixed_ms is None:
            self.known = longest_timeout(timeouts())

    def refresh(self, timeouts: Callable[[], list[BrokerTimeout]], now_ms: TimestampMs) -> None:
        """Reads it again if that is due. A broker that does not show it now changes nothing."""
        if self.fixed_ms is not None or now_ms < self._due_ms:
            return
        self._due_ms = now_ms + min(_PAUSE_MS, self.known.ms or _PAUSE_MS)
        before, self.known = self.known, self._extended(timeouts())
        if self.known.ms != before.ms:
            self._change = f"the longest timeout of a transaction: {_shown(before)} before, {_shown(self.known)} now"

    def take_change(self) -> str | None:
        """What has changed since the last call: the query needs the new limit."""
        change, self._change = self._change, None
        return change

    def _extended(self, found: list[BrokerTimeout]) -> LongestTimeout:
        if self.known.is_unlimited:
            return self.known
        if self.known.ms is None or any(one.is_unlimited for one in found):
            return longest_timeout(found)
        return LongestTimeout(max([self.known.ms, *(one.ms for one in found if one.ms is not None)]))


def _shown(limit: LongestTimeout) -> str:
    return f"{limit.ms} ms" if limit.ms is not None else "no limit" if limit.is_unlimited else "unknown"
