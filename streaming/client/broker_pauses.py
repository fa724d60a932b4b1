"""Brokers that did not answer are left alone for a short while, which doubles each time up to a few seconds."""

from __future__ import annotations

import time
from typing import NamedTuple

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.connection import Endpoint

_FIRST_S, _LONGEST_S = 0.25, 5.0


class _Pause(NamedTuple):
    """Until when a broker is left alone, how long that is altogether, and what it did."""

    until: float
    length_s: float
    why: str


class Pauses:
    """Which brokers are left alone."""

    def __init__(self) -> None:
        """None is."""
        self._pauses: dict[Endpoint, _Pause] = {}

    def check(self, endpoint: Endpoint) -> None:
        """Passes if the broker may be asked.

        Raises:
            BrokerError: it failed a moment ago.
        """
        pause = self._pauses.get(endpoint)
        if pause is not None and time.monotonic() < pause.until:
            raise BrokerError(f"a moment ago: {pause.why}")

    def begin(self, endpoint: Endpoint, why: BrokerError) -> None:
        """It failed."""
        last = self._pauses.get(endpoint)
        length_s = min(max(2 * last.length_s if last is not None else 0.0, _FIRST_S), _LONGEST_S)
        self._pauses[endpoint] = _Pause(time.monotonic() + length_s, length_s, str(why))

    def end(self, endpoint: Endpoint) -> None:
        """It can be reached."""
        self._pauses.pop(endpoint, None)
