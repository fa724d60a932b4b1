"""Checks the SASL messages of a server before kafka-python's mechanisms compute with them.

The mechanisms raise any error on a message that they do not expect. A server that is not logged in to could also make
them compute for hours: the iteration count of SCRAM has limits. Fewer than 4096 iterations make a password easy to
guess from the messages, and Kafka's Java client refuses them too (RFC 5802). A million takes about half a second.
"""

from __future__ import annotations

import base64
import re
from typing import Any, Final, Protocol

from txnwatch.state.model.errors import AuthorizationError, WireError

FEWEST_ITERATIONS, MOST_ITERATIONS = 4_096, 1_000_000
_SHOWN: Final = 60
# Extensions may follow. One with the name of an attribute would replace its value.
_EXTENSIONS: Final = rb"(?:,(?![rsive]=)[A-Za-z]=[\x20-\x2b\x2d-\x7e]+)*"
_BASE64: Final = rb"([A-Za-z0-9+/]+={0,2})"
_SERVER_FIRST = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=" + _BASE64 + rb",i=([0-9]{1,20})" + _EXTENSIONS)
_SERVER_FINAL = re.compile(rb"(?:v=" + _BASE64 + rb"|e=([\x20-\x2b\x2d-\x7e]+))" + _EXTENSIONS)


class Exchange(Protocol):
    """The messages of one authentication; kafka-python's class SaslMechanism has the same methods."""

    def auth_bytes(self) -> bytes:
        """Our next message."""

    def receive(self, message: bytes) -> None:
        """Takes the server's answer.

        Raises:
            WireError: the message cannot be used.
            AuthorizationError: the message refuses us.
        """

    def is_done(self) -> bool:
        """Whether no more messages follow."""


class NoDataExchange:
    """PLAIN and OAUTHBEARER: a server that accepts us has no data to send.

    A server of OAUTHBEARER may send the reason of its refusal. The next message of the mechanism asks for its error.
    """

    def __init__(self, mechanism: str, computed: Any, *, has_reason: bool) -> None:
        self._mechanism = mechanism
        self._computed = computed
        self._has_reason = has_reason

    def auth_bytes(self) -> bytes:
        """See Exchange."""
        return bytes(self._computed.auth_bytes())

    def receive(self, message: bytes) -> None:
        """See Exchange."""
        if message and not self._has_reason:
            raise WireError(f"{self._mechanism} answer", 0, _shown(message), "no data")
        self._has_reason = False
        self._computed.receive(b"" if not message else b"refused")

    def is_done(self) -> bool:
        """See Exchange."""
        return bool(self._computed.is_done())


class ScramExchange:
    """SCRAM: the server's first message has nonce, salt and iteration count, its final message has a signature."""

    def __init__(self, mechanism: str, computed: Any) -> None:
        self._mechanism = mechanism
        self._computed = computed
        self._nonce = b""
        self._check = self._check_first

    def auth_bytes(self) -> bytes:
        """See Exchange."""
        sent = bytes(self._computed.auth_bytes())
        if not self._nonce:
            self._nonce = sent.rpartition(b",r=")[2]
        return sent

    def receive(self, message: bytes) -> None:
        """See Exchange."""
        self._check(message)
        self._check = self._check_final
        try:
            self._computed.receive(message)
        except ValueError as exc:
            what = "the signature of a server that knows the password"
            raise WireError(f"{self._mechanism} server-final-message", 0, "another signature", what) from exc

    def is_done(self) -> bool:
        """See Exchange."""
        return bool(self._computed.is_done())

    def _check_first(self, message: bytes) -> None:
        name = f"{self._mechanism} server-first-message"
        found = _SERVER_FIRST.fullmatch(message)
        if found is None:
            raise WireError(name, 0, _shown(message), "r=nonce,s=salt,i=iterations")
        if not found[1].startswith(self._nonce) or found[1] == self._nonce:
            raise WireError(name, found.start(1), "another nonce", "our nonce with the server's nonce behind it")
        _check_base64(name, found.start(2), found[2])
        iterations = int(found[3])
        if not FEWEST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            expected = f"{FEWEST_ITERATIONS} to {MOST_ITERATIONS} iterations"
            raise WireError(name, found.start(3), iterations, expected)

    def _check_final(self, message: bytes) -> None:
        name = f"{self._mechanism} server-final-message"
        found = _SERVER_FINAL.fullmatch(message)
        if found is None:
            raise WireError(name, 0, _shown(message), "v=signature")
        if found[2] is not None:
            raise AuthorizationError(f"{name}: the server refused us: {found[2].decode('ascii')[:_SHOWN]}")
        _check_base64(name, found.start(1), found[1])


def _check_base64(name: str, position: int, text: bytes) -> None:
    try:
        base64.b64decode(text, validate=True)
    except ValueError as exc:
        raise WireError(name, position, _shown(text), "base64") from exc


def _shown(message: bytes) -> str:
    return f"{len(message)} bytes {message[:_SHOWN]!r}"
