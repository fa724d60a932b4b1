"""How many bytes went over connections to brokers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Bytes of requests and answers with their headers, before TLS."""

    sent: int = 0
    received: int = 0
