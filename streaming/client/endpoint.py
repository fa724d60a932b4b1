"""The address of a broker."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """A broker's address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """An endpoint written as host:port, or [v6]:port.

        Raises:
            ValueError: there is no port, or it is not a number from 1 to 65535.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"expected host:port, found {text.strip()!r}")
        return cls(host.strip("[]"), int(port))
