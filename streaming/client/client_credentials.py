"""The client credentials grant of OAuth 2.0: a token from a token endpoint, for a client id and its secret.

The endpoint gets the secret, so its certificate is verified, and a redirect is an error.
"""

from __future__ import annotations

import base64
import contextlib
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit

from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.state.text.escape import printable
from txnwatch.state.text.outside_json import read_json
from txnwatch.state.text.redaction import redacted, shown_url
from txnwatch.streaming.client.tls import Tls
from txnwatch.streaming.client.tokens import Token, seconds_of, token_of

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
                found = _json(answer.read(_MOST_BYTES))
        except HTTPError as exc:
            raise self._refusal(exc) from None  # its headers and body are not for a log
        except (OSError, HTTPException, UnicodeError) as exc:
            reason = printable(str(getattr(exc, "reason", exc)).strip())
            raise BrokerError(f"{self._where}: {reason}{self._doubt(exc)}") from exc
        return token_of(found.get("access_token"), self._where, seconds_of(found.get("expires_in")))

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
        found: Mapping[str, Any] = {}
        with exc, contextlib.suppress(OSError, HTTPException):  # the status is enough
            found = _json(exc.read(_MOST_BYTES))
        reason = ": ".join(str(found[name]) for name in ("error", "error_description") if name in found) or exc.reason
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
        found = read_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
