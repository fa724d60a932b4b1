"""SCRAM: the messages of a server are used only if they follow RFC 5802 and stay within the limits."""

from __future__ import annotations

from base64 import b64encode

import pytest

from support.scripted_brokers import server_final
from txnwatch.state.model.errors import AuthorizationError, WireError
from txnwatch.streaming.client.security import Exchange, PasswordLogin

pytestmark = pytest.mark.unit

SALT = b"salt"


def begun() -> tuple[Exchange, bytes]:
    """An exchange that has sent its first message."""
    exchange = PasswordLogin("SCRAM-SHA-256", "me", "pw").exchange("broker", "SASL_SSL")
    return exchange, exchange.auth_bytes()


def first(
    client_first: bytes, *, nonce: bytes = b"%sxyz", salt: bytes = b64encode(SALT), count: bytes = b"4096"
) -> bytes:
    ours = client_first.rpartition(b"r=")[2]
    return b"r=" + nonce.replace(b"%s", ours) + b",s=" + salt + b",i=" + count


@pytest.mark.parametrize("more", [b"", b",x=an extension"])
def test_a_server_that_knows_the_password_is_accepted(more: bytes) -> None:
    exchange, sent = begun()
    answer = first(sent) + more
    exchange.receive(answer)
    exchange.auth_bytes()
    exchange.receive(server_final("pw", sent, answer, SALT, 4096))
    assert exchange.is_done()


BAD_FIRST = {
    "nothing": ({}, b"", "expected r=nonce,s=salt,i=iterations, found 0 bytes b''"),
    "no UTF-8": ({}, b"\xff\xfe", "expected r=nonce,s=salt,i=iterations, found 2 bytes"),
    "no fields": ({}, b"welcome", "expected r=nonce,s=salt,i=iterations, found 7 bytes b'welcome'"),
    "no salt": ({}, b"r=a,i=4096", "expected r=nonce,s=salt,i=iterations"),
    "another nonce": ({"nonce": b"theirs"}, None, "expected our nonce with the server's nonce behind it"),
    "only our nonce": ({"nonce": b"%s"}, None, "expected our nonce with the server's nonce behind it"),
    "a salt of another alphabet": ({"salt": b"!!"}, None, "expected r=nonce"),
    "a salt without padding": ({"salt": b"abc"}, None, "expected base64, found 3 bytes b'abc'"),
    "no number": ({"count": b"many"}, None, "expected r=nonce"),
    "a negative count": ({"count": b"-1"}, None, "expected r=nonce"),
    "no iterations": ({"count": b"0"}, None, "expected 4096 to 1000000 iterations, found 0"),
    "few iterations": ({"count": b"4095"}, None, "expected 4096 to 1000000 iterations, found 4095"),
    "many iterations": ({"count": b"1000001"}, None, "expected 4096 to 1000000 iterations, found 1000001"),
    "a second count": ({"count": b"4096,i=1"}, None, "expected r=nonce"),
    "a demanded extension": ({"nonce": b"%sxyz,m=all"}, None, "expected r=nonce"),
}


@pytest.mark.parametrize(("fields", "message", "error"), BAD_FIRST.values(), ids=BAD_FIRST.keys())
def test_a_first_message_that_cannot_be_used_is_a_typed_error(
    fields: dict[str, bytes], message: bytes | None, error: str
) -> None:
    exchange, sent = begun()
    with pytest.raises(WireError, match=f"^SCRAM-SHA-256 server-first-message at byte .*{error}"):
        exchange.receive(first(sent, **fields) if message is None else message)


BAD_FINAL = {
    "nothing": (b"", "at byte 0: expected v=signature, found 0 bytes b''"),
    "no UTF-8": (b"\xff", "at byte 0: expected v=signature, found 1 bytes"),
    "no signature": (b"x=y", "at byte 0: expected v=signature, found 3 bytes b'x=y'"),
    "no base64": (b"v=a", "at byte 2: expected base64, found 1 bytes b'a'"),
    "another signature": (b"v=abcd", "at byte 0: expected the signature of a server that knows the password, found"),
}


@pytest.mark.parametrize(("message", "error"), BAD_FINAL.values(), ids=BAD_FINAL.keys())
def test_a_final_message_that_cannot_be_used_is_a_typed_error(message: bytes, error: str) -> None:
    exchange, sent = begun()
    exchange.receive(first(sent))
    exchange.auth_bytes()
    with pytest.raises(WireError, match=f"^SCRAM-SHA-256 server-final-message {error}"):
        exchange.receive(message)


def test_a_refusal_in_the_final_message_is_an_authorization_error() -> None:
    exchange, sent = begun()
    exchange.receive(first(sent))
    exchange.auth_bytes()
    with pytest.raises(AuthorizationError, match="the server refused us: invalid-proof"):
        exchange.receive(b"e=invalid-proof")
