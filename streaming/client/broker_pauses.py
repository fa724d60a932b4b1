"""Pauses after a broker has failed: it is not asked for 0.25 s, then for twice as long each time, up to 5 s."""

from __future__ import annotations

import time
from typing import NamedTuple

from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.endpoint import Endpoint

_FIRST_S, _LONGEST_S = 0.25, 5.0


class _Pause(NamedTuple):
    """The end of a pause on the monotonic clock, how many failures came before, and the failure that caused it."""

    until: float
    failures: int
    why: str


class Pauses:
    """The brokers that must not be asked now."""

    def __init__(self) -> None:
        """Starts without any pause."""
        self._pauses: dict[Endpoint, _Pause] = {}

    def check(self, endpoint: Endpoint) -> None:
        """Returns if the broker may be asked.

        Raises:
            BrokerError: it failed a moment ago.
        """
        pause = self._pauses.get(endpoint)
        if pause is not None and time.monotonic() < pause.until:
            raise BrokerError(f"failed a moment ago: {pause.why}")

    def begin(self, endpoint: Endpoint, why: BrokerError) -> None:
        """Starts a pause after a failure."""
        last = self._pauses.get(endpoint)
        failures = last.failures + 1 if last is not None else 0
        until = time.monotonic() + doubled(_FIRST_S, _LONGEST_S, failures)
        self._pauses[endpoint] = _Pause(until, failures, str(why))

    def end(self, endpoint: Endpoint) -> None:
        """Ends the pause, because the broker can be reached."""
        self._pauses.pop(endpoint, None)
