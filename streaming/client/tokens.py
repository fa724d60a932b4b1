"""OAuth tokens for SASL OAUTHBEARER: each process keeps the token of a source and renews it before it expires.

Law: a token that cannot be renewed is used as long as it is valid. No error shows a token or a client secret.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import re
import threading
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit

from txnwatch.state.model.errors import AuthorizationError, BrokerError, ConfigError, install_command
from txnwatch.state.text import printable, read_json, redacted, shown_url
from txnwatch.streaming.client.tls import Tls

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


# The client credentials grant of OAuth 2.0: a token from a token endpoint, for a client id and its secret.
#
# The endpoint gets the secret, so its certificate is verified, and a redirect is an error.

_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1 << 20
_REFUSED: Final = frozenset({400, 401, 403})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A TokenSource over HTTP.

    Attributes:
        encodes_header: whether id and secret are URL-encoded in the Authorization header, as RFC 6749 demands.
        tls: the certificates of the endpoint.
    """

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    encodes_header: bool = False
    tls: Tls = field(default_factory=Tls)

    @property
    def user(self) -> str:
        """See TokenSource."""
        return self.client_id

    @property
    def _where(self) -> str:
        return f"token endpoint {shown_url(self.url)}"

    def fetch(self) -> Token:
        """See TokenSource.

        Raises:
            AuthorizationError: the endpoint refuses the client.
            BrokerError: the endpoint does not answer, or answers without a token.
        """
        try:
            with self._opener().open(self._request(), timeout=_TIMEOUT_S) as answer:
                fields = _json(answer.read(_MOST_BYTES))
        except HTTPError as exc:
            raise self._refusal(exc) from None  # its headers and body are not for a log
        except (OSError, HTTPException, UnicodeError) as exc:
            reason = printable(str(getattr(exc, "reason", exc)).strip())
            raise BrokerError(f"{self._where}: {reason}{self._doubt(exc)}") from exc
        return token_of(fields.get("access_token"), self._where, seconds_of(fields.get("expires_in")))

    def _request(self) -> urllib.request.Request:
        encode = quote_plus if self.encodes_header else str
        pair = f"{encode(self.client_id)}:{encode(self.client_secret)}"
        body = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        headers = {
            "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        return urllib.request.Request(self.url, urlencode(body).encode(), headers, method="POST")  # noqa: S310 - checked

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if self.url.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=self.tls.context()))
        return urllib.request.build_opener(*handlers)

    def _refusal(self, exc: HTTPError) -> BrokerError:
        answer: Mapping[str, Any] = {}
        with exc, contextlib.suppress(OSError, HTTPException):  # the status is enough
            answer = _json(exc.read(_MOST_BYTES))
        reason = ": ".join(str(answer[name]) for name in ("error", "error_description") if name in answer) or exc.reason
        message = f"{self._where}: HTTP {exc.code} for client {self.client_id!r}: {printable(redacted(reason))}"
        return AuthorizationError(message) if exc.code in _REFUSED else BrokerError(message)

    def _doubt(self, exc: OSError | HTTPException | UnicodeError) -> str:
        reason = getattr(exc, "reason", exc)
        parts = urlsplit(self.url)
        return self.tls.doubt(reason, parts.hostname or "", parts.port or 443)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another host must not get the secret."""

    def redirect_request(self, *_: Any) -> None:
        """Follows none; urllib then raises the answer as an error."""
        return


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        value = read_json(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# Tokens for Amazon MSK with IAM, made by the vendor's signer (an extra).
#
# The brokers also accept them with the mechanism OAUTHBEARER. librdkafka has this mechanism, but not AWS_MSK_IAM.

AWS_MSK_IAM: Final = "AWS_MSK_IAM"
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?:")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_OPTIONS: Final = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName"})


@dataclass(frozen=True, slots=True)
class MskIam:
    """A TokenSource of signed requests; without a profile and a role, the default chain of AWS has the credentials."""

    region: str
    profile: str | None = None
    role: str | None = None
    session: str = "txnwatch"

    @property
    def user(self) -> str:
        """See TokenSource."""
        return self.role or (f"of the AWS profile {self.profile}" if self.profile else "of the AWS credentials")

    def fetch(self) -> Token:
        """See TokenSource.

        Raises:
            ConfigError: the signer is not installed.
            BrokerError: AWS gives no credentials.
        """
        signer = _signer()
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - an extra

        try:
            token, expires_ms = self._signed(signer)
        except (BotoCoreError, ClientError, ValueError, AttributeError) as exc:  # the last one: no credentials at all
            problem = "no credentials" if isinstance(exc, AttributeError) else redacted(str(exc))
            raise BrokerError(f"AWS_MSK_IAM {self.user}: expected a signed token, found: {problem}") from exc
        return token_of(token, AWS_MSK_IAM, _life_s(expires_ms))

    def _signed(self, signer: Any) -> tuple[str, int]:
        if self.role is not None:
            signed = signer.generate_auth_token_from_role_arn(self.region, self.role, self.session)
        elif self.profile is not None:
            signed = signer.generate_auth_token_from_profile(self.region, self.profile)
        else:
            signed = signer.generate_auth_token(self.region)
        token, expires_ms = signed
        return str(token), int(expires_ms)


def msk_iam_of(properties: Mapping[str, str], options: Mapping[str, str]) -> MskIam:
    """The token source among client properties and the options of the login module.

    Raises:
        ConfigError: the region is unknown, or an option cannot be used.
    """
    unknown = sorted(name for name in options if name.startswith("aws") and name not in _OPTIONS)
    if unknown:
        raise ConfigError(
            f"sasl.jaas.config: expected only these AWS options: {', '.join(sorted(_OPTIONS))}; found {unknown[0]}"
        )
    host = _HOST.search(properties.get("bootstrap.servers", ""))
    region = host[1] if host else next((os.environ[name] for name in _REGIONS if os.environ.get(name)), None)
    if region is None:
        raise ConfigError(
            f"sasl.mechanism: expected a region in the broker's name or in {_REGIONS[0]} for {AWS_MSK_IAM}, found none"
        )
    session = options.get("awsRoleSessionName", "txnwatch")
    return MskIam(region, options.get("awsProfileName"), options.get("awsRoleArn"), session)


def _life_s(expires_ms: int) -> float:
    return expires_ms / 1000 - time.time()


def _signer() -> Any:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            f"sasl.mechanism {AWS_MSK_IAM} needs `{install_command('aws')}`: the package "
            "aws-msk-iam-sasl-signer-python is missing"
        ) from exc
    return MSKAuthTokenProvider
