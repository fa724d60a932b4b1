"""OAuth tokens for SASL OAUTHBEARER: each process keeps the token of a source and renews it before it expires.

Law: a token that cannot be renewed is used as long as it is valid. No error shows a token or a client secret.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from kafka.net.sasl import get_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.text.outside_json import read_json
from txnwatch.streaming.client.sasl_messages import Exchange, NoDataExchange

OAUTHBEARER: Final = "OAUTHBEARER"
_RENEWED_AFTER: Final = 0.8  # of its life, as Kafka's sasl.login.refresh.window.factor
_UNKNOWN_LIFE_S: Final = 60.0
_LARGEST_S: Final = 253_402_300_799  # the end of the year 9999
_VALID = re.compile(r"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and until when it is valid (epoch seconds)."""

    text: str = field(repr=False)
    subject: str
    obtained_s: float
    expires_s: float

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return time.time() >= self.obtained_s + _RENEWED_AFTER * (self.expires_s - self.obtained_s)

    @property
    def is_valid(self) -> bool:
        """Whether a broker still accepts it."""
        return time.time() < self.expires_s


class TokenSource(Protocol):
    """Where tokens come from; hashable and picklable."""

    @property
    def user(self) -> str:
        """For messages."""

    def fetch(self) -> Token:
        """A new token.

        Raises:
            BrokerError: the source does not answer, or refuses us.
        """


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token that another program renews, for example the kubelet."""

    path: str

    @property
    def user(self) -> str:
        """See TokenSource."""
        return f"of the token in {self.path}"

    def fetch(self) -> Token:
        """See TokenSource."""
        try:
            return token_of(Path(self.path).read_text(encoding="utf-8").strip(), self.path, None)
        except (OSError, UnicodeDecodeError) as exc:
            problem = exc.strerror if isinstance(exc, OSError) else "no text"
            raise BrokerError(f"token file {self.path}: expected a token, found: {problem}") from exc


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """A Login by a token.

    Attributes:
        extensions: SASL extensions (KIP-342), by name.
    """

    source: TokenSource
    extensions: tuple[tuple[str, str], ...] = ()

    @property
    def mechanism(self) -> str:
        """See Login."""
        return OAUTHBEARER

    @property
    def user(self) -> str:
        """See Login."""
        return self.source.user

    def exchange(self, host: str, protocol: str) -> Exchange:
        """See Login."""
        del host, protocol
        provider = _Provider(current(self.source).text, dict(self.extensions))
        computed = get_sasl_mechanism(self.mechanism)(sasl_oauth_token_provider=provider)
        return NoDataExchange(self.mechanism, computed, has_reason=True)


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        super().__init__()
        self._token = token
        self._extensions = extensions

    def token(self) -> str:
        """The token."""
        return self._token

    def extensions(self) -> dict[str, str]:
        """The SASL extensions."""
        return self._extensions


HELD_TOKENS: Final[dict[TokenSource, Token]] = {}
_FETCHING: Final = threading.Lock()  # librdkafka asks from a thread of its own


def current(source: TokenSource) -> Token:
    """A valid token of the source; fetches one only if it is time to renew the last one.

    Raises:
        BrokerError: there is no valid token, and the source does not give one.
    """
    with _FETCHING:
        held = HELD_TOKENS.get(source)
        if held is not None and not held.is_due:
            return held
        try:
            held = HELD_TOKENS[source] = source.fetch()
        except BrokerError:
            if held is None or not held.is_valid:
                raise
        return held


def token_of(text: object, where: str, life_s: float | None) -> Token:
    """A token with the subject and the time that its claims have, if it is a JWT.

    Args:
        text: the token.
        where: its source, for errors.
        life_s: how long it is valid, if the source returned that.

    Raises:
        BrokerError: the text is no token, or it is expired.
    """
    if not isinstance(text, str) or _VALID.fullmatch(text) is None:
        raise BrokerError(f"{where}: expected a token, found something else")
    claims, now = _claims(text), time.time()
    expires = seconds_of(claims.get("exp"))
    if expires is None:
        expires = now + (life_s if life_s is not None else _UNKNOWN_LIFE_S)
    if expires <= now:
        raise BrokerError(f"{where}: expected a valid token, found one that expired {now - expires:.0f} s ago")
    subject = claims.get("sub")
    return Token(text, subject if isinstance(subject, str) else "unknown", now, expires)


def seconds_of(value: object) -> float | None:
    """A time in seconds that a token server gave; None if it gave none, or one that is no time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST_S:
        return None
    return float(value)


def _claims(token: str) -> Mapping[str, Any]:
    """The claims of a JWT, not verified: the broker does that; empty for another token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = read_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}
