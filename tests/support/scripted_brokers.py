"""A broker that has sent all its bytes before it is asked: the start of a connection, without a network."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from unittest import mock

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse


class _Socket(socket.socket):
    """One end of a pair; it takes the options of a TCP socket."""

    def setsockopt(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def has_sent(data: bytes) -> Iterator[None]:
    """Each new connection inside gets these bytes, then the end of the stream."""
    ends: list[socket.socket] = []

    def connect(*_: Any, **__: Any) -> socket.socket:
        client, server = socket.socketpair()
        ends.append(server)
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        return _Socket(fileno=client.detach())

    with mock.patch("socket.create_connection", connect):
        try:
            yield
        finally:
            for server in ends:
                server.close()


def framed(*bodies: bytes) -> bytes:
    """Answers to the first requests of a connection."""
    answers = (number.to_bytes(4, "big") + body for number, body in enumerate(bodies, 1))
    return b"".join(len(answer).to_bytes(4, "big") + answer for answer in answers)


def api_versions(throttle_ms: int = 0, version: int = 4, error_code: int = 0, own_version: int = 4) -> bytes:
    """The first answer; an error is in version 0, and has the versions of this request that the broker knows."""
    highest = {3: 12, ApiVersionsRequest.API_KEY: own_version}
    made = ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=0, max_version=high)
            for key, high in highest.items()
        ],
        throttle_time_ms=throttle_ms,
        supported_features=[],
        finalized_features_epoch=-1,
        finalized_features=[],
        zk_migration_ready=False,
    )
    return bytes(made.encode(version=version))


def handshake(*mechanisms: str) -> bytes:
    return bytes(SaslHandshakeResponse(error_code=0, mechanisms=list(mechanisms)).encode(version=1))


def sasl_answer(data: bytes = b"", *, error_code: int = 0, error: str | None = None, session_ms: int = 0) -> bytes:
    made = SaslAuthenticateResponse(
        error_code=error_code, error_message=error, auth_bytes=data, session_lifetime_ms=session_ms
    )
    return bytes(made.encode(version=1))


def server_final(password: str, client_first: bytes, server_first: bytes, salt: bytes, iterations: int) -> bytes:
    """The final message of a server that knows the password (RFC 5802, SHA-256)."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    nonce = server_first.split(b",")[0]
    signed = b",".join([client_first.removeprefix(b"n,,"), server_first, b"c=biws", nonce])
    key = hmac.digest(salted, b"Server Key", "sha256")
    return b"v=" + b64encode(hmac.digest(key, signed, "sha256"))
