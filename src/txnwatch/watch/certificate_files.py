"""The certificate files of the connection to Kafka: whether they were renewed since the clients were made.

librdkafka reads certificates only when a client is made. Our own connections use renewed files anyway.
"""

from __future__ import annotations

import time
from typing import Final

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.streaming.client.tls import Tls

LOOK_S: Final = 5.0


class CertificateFiles:
    """The files of one watch; looks at them every few seconds."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._used = tls.stamps
        self._next_look_s = 0.0

    def use(self) -> None:
        """The clients are made now, with the files as they are."""
        self._used = self._tls.stamps

    def are_renewed(self) -> bool:
        """Whether the files have changed since, and can be used."""
        if time.monotonic() < self._next_look_s:
            return False
        self._next_look_s = time.monotonic() + LOOK_S
        if self._tls.stamps == self._used:
            return False
        try:
            self._tls.context()
        except TxnwatchError:  # somebody may be replacing the files at this moment
            return False
        return True
