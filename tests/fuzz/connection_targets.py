"""Decoders of the start of a connection, of a token endpoint's answer, and of Confluent framing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

from confluent_kafka.schema_registry import Schema

from fuzz.answers import BROKER, packed, unpacked
from fuzz.target import Target
from support.incidents import an_event
from support.scripted_brokers import api_versions, framed, handshake, has_sent, sasl_answer, server_final
from txnwatch.sinks.delivery.encoding import RegistryCodec, schema_text
from txnwatch.state.model.errors import AuthorizationError, BadEventError, BrokerError, WireError
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.security import Login, PasswordLogin, Security, TokenLogin
from txnwatch.streaming.client.tokens import ClientCredentials, Token

_JSON = True
_PASSWORD, _SALT, _FEWEST = "the-password", b"salt", 4_096
_SCRAM = PasswordLogin("SCRAM-SHA-256", "me", _PASSWORD)
_NONCE = uuid.UUID(int=7)
_UNTIL_S = 1e12
_pbkdf2 = hashlib.pbkdf2_hmac


class _OneToken:
    """Gives one token."""

    user = "me"

    def fetch(self) -> Token:
        return Token("token", "me", 0.0, _UNTIL_S)


def _start(data: bytes, login: Login | None) -> None:
    """The bytes are what the server sends; a throttle is not waited for."""
    security = Security() if login is None else Security("SASL_PLAINTEXT", login=login)
    with has_sent(data), mock.patch("time.sleep"), mock.patch("kafka.net.sasl.plain.log"), _quick_scram():
        Connection(BROKER, security, timeout_s=60.0).close()


def _fast_pbkdf2(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    assert _FEWEST <= iterations <= 1_000_000, "the iterations have no limit"
    return _pbkdf2(name, password, salt, 2)


@contextlib.contextmanager
def _quick_scram() -> Iterator[None]:
    """Every exchange has the same nonce, and makes only a few iterations."""
    with (
        mock.patch("uuid.uuid4", return_value=_NONCE),
        mock.patch("hashlib.pbkdf2_hmac", _fast_pbkdf2),
        mock.patch("kafka.net.sasl.scram.log"),
    ):
        yield


def _scram(data: bytes) -> None:
    """The answers of a server; only one that knows the password is accepted."""
    last = b""
    with _quick_scram():
        exchange = _SCRAM.exchange("broker", "SASL_SSL")
        for last in unpacked(data):
            exchange.auth_bytes()
            exchange.receive(last)
            if exchange.is_done():
                break
    if exchange.is_done():
        assert _signature(last) == _signature(_FINAL), "a server without the password is accepted"


def _signature(final: bytes) -> bytes:
    """Several texts in base64 mean the same bytes."""
    return b64decode(final.removeprefix(b"v=").partition(b",")[0])


def _scram_answers() -> tuple[bytes, bytes]:
    with _quick_scram():
        sent = _SCRAM.exchange("broker", "SASL_SSL").auth_bytes()
        first = b"r=" + sent.rpartition(b"r=")[2] + b"server,s=" + b64encode(_SALT) + b",i=%d" % _FEWEST
        return first, server_final(_PASSWORD, sent, first, _SALT, _FEWEST)


_FIRST, _FINAL = _scram_answers()


def _http(status: str, body: object) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + json.dumps(body).encode()


def _fetched(data: bytes) -> None:
    """Whatever the endpoint answers, no error shows the secret or moves the cursor of a terminal."""
    source = ClientCredentials("http://idp.example/token", "the-client", "the-secret")
    try:
        with has_sent(data), mock.patch.dict("os.environ", {"no_proxy": "*"}):
            source.fetch()
    except BrokerError as exc:
        _check_text(str(exc))
        raise


def _check_text(error: str) -> None:
    assert "the-secret" not in error, "an error shows the secret"
    assert error.isprintable(), "an error has a control character"


def _refused(data: bytes) -> None:
    """An answer with a status of refusal gives no token."""
    try:
        _fetched(b"HTTP/1.1 401 no\r\n" + data)
    except AuthorizationError:
        return
    raise AssertionError("a refusal is not an AuthorizationError")


@cache
def _codec() -> RegistryCodec:
    return RegistryCodec({"url": "http://registry.invalid"}, "events")


def _decoded(frame: bytes) -> None:
    """The registry has one schema, whatever its id."""
    codec: Any = _codec()
    with mock.patch.object(codec._client, "get_schema", return_value=Schema(schema_text(), "AVRO")):
        codec.decode(b"\0" + frame)


def _event_frame() -> bytes:
    """The event without the magic byte."""
    codec: Any = _codec()
    registered = SimpleNamespace(schema_id=7, guid=None, subject="events-value", version=1, schema=None)
    names = ("register_schema_full_response", "lookup_schema")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(mock.patch.object(codec._client, name, return_value=registered))
        return bytes(codec.encode(an_event())[1:])


_TOKEN_ANSWER = {"access_token": "opaque", "token_type": "Bearer", "expires_in": 300}
_REFUSAL = {"error": "invalid_client", "error_description": "unknown client or wrong secret"}
_TOKEN_LOGIN = TokenLogin(_OneToken())

TARGETS = [
    Target(
        "first_answer",
        "the first answer of a connection (ApiVersions)",
        lambda data: _start(data, None),
        (BrokerError,),
        [framed(api_versions()), framed(api_versions(throttle_ms=5))],
    ),
    Target(
        "sasl_plain",
        "answers to SASL PLAIN",
        lambda data: _start(data, PasswordLogin("PLAIN", "me", _PASSWORD)),
        (BrokerError,),
        [framed(api_versions(), handshake("PLAIN"), sasl_answer(session_ms=60_000))],
    ),
    Target(
        "sasl_token",
        "answers to SASL OAUTHBEARER",
        lambda data: _start(data, _TOKEN_LOGIN),
        (BrokerError,),
        [framed(api_versions(), handshake("OAUTHBEARER"), sasl_answer(session_ms=60_000))],
    ),
    Target(
        "sasl_scram",
        "answers to SASL SCRAM",
        lambda data: _start(data, _SCRAM),
        (BrokerError,),
        [framed(api_versions(), handshake("SCRAM-SHA-256"), sasl_answer(_FIRST), sasl_answer(_FINAL))],
    ),
    Target(
        "scram_messages",
        "the messages of SCRAM",
        _scram,
        (WireError, AuthorizationError),
        [packed([_FIRST, _FINAL])],
    ),
    Target(
        "token_answer",
        "the answer of a token endpoint",
        _fetched,
        (BrokerError,),
        [_http("200 OK", _TOKEN_ANSWER)],
        _JSON,
    ),
    Target(
        "token_refusal",
        "the refusal of a token endpoint",
        _refused,
        (),
        [b"\r\n" + json.dumps(_REFUSAL).encode()],
        _JSON,
    ),
    Target(
        "confluent_frame",
        "an event in Confluent framing",
        _decoded,
        (BadEventError,),
        [_event_frame()],
    ),
]
