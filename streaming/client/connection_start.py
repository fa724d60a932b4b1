"""What a new connection does before its first request: it asks for the API versions, and it authenticates.

Both must end before the deadline of the set-up, however long the broker throttles them.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from txnwatch.state.model.errors import AuthorizationError, BrokerError, WireError
from txnwatch.streaming.client.answer_wait import NEVER
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.error_names import error_name
from txnwatch.streaming.client.sasl import Login

_API_VERSIONS = 3
_UNSUPPORTED_VERSION = 35
_MOST_MESSAGES = 16  # of one login; Kerberos needs four
_SESSION_PART = 0.85  # of a SASL session that is used


class NewConnection(Protocol):
    """The part of a connection that its start needs."""

    endpoint: Endpoint

    def call(self, request: Any, timeout_s: float, until: float) -> Any:
        """Sends one request and waits for its answer."""

    def broken(self, exc: Exception) -> BrokerError:
        """Closes the connection, and returns the error to raise."""


def supported_versions(connection: NewConnection, deadline: float) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of each request that the broker supports, by API key.

    Raises:
        BrokerError: the broker does not return them before the deadline, on the monotonic clock.
    """
    for version in (_API_VERSIONS, 0):
        request = ApiVersionsRequest(version=version, client_software_name="txnwatch", client_software_version="0")
        response = _call(connection, request, deadline)
        if response.error_code == 0:
            return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if response.error_code != _UNSUPPORTED_VERSION:
            break
    raise BrokerError(f"{connection.endpoint} did not return its API versions: {error_name(response.error_code)}")


def authenticate(connection: NewConnection, login: Login, protocol: str, deadline: float) -> float:
    """Authenticates with SASL; returns until when the session may be used, on the monotonic clock.

    Raises:
        AuthorizationError: the broker refuses the mechanism or the user.
        BrokerError: the broker does not follow the mechanism, or not before the deadline.
    """
    response = _call(connection, SaslHandshakeRequest(version=1, mechanism=login.mechanism), deadline)
    if response.error_code:
        raise AuthorizationError(
            f"{connection.endpoint} refused SASL mechanism {login.mechanism}: {error_name(response.error_code)}, "
            f"it offers {', '.join(response.mechanisms)}"
        )
    exchange = login.exchange(connection.endpoint.host, protocol)
    for _ in range(_MOST_MESSAGES):
        response = _call(connection, SaslAuthenticateRequest(version=1, auth_bytes=exchange.auth_bytes()), deadline)
        if response.error_code:
            raise AuthorizationError(
                f"{connection.endpoint} refused user {login.user!r}: {response.error_message or 'no reason given'}"
            )
        try:
            exchange.receive(response.auth_bytes)
        except WireError as exc:
            raise connection.broken(exc) from exc
        except AuthorizationError as exc:
            raise AuthorizationError(f"{connection.endpoint}: {exc}") from exc
        if exchange.is_done():
            return _session_end(response.session_lifetime_ms)
    raise connection.broken(ConnectionError(f"expected the end of the login after {_MOST_MESSAGES} messages at most"))


def _session_end(lifetime_ms: int) -> float:
    return time.monotonic() + _SESSION_PART * lifetime_ms / 1000 if lifetime_ms > 0 else NEVER


def _call(connection: NewConnection, request: Any, deadline: float) -> Any:
    return connection.call(request, deadline - time.monotonic(), deadline)
