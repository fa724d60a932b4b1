"""Brokers whose messages of a login cannot be used: a BrokerError in one line, in time."""

from __future__ import annotations

import base64
import re
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from support.bad_inputs import BadInputs
from support.bad_servers import Behaviour, bad_server
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.security import PasswordLogin, Security

IN_TIME_S, LIMIT_S = 1.0, 10.0  # the limit is for a machine with other work
API_VERSIONS, SASL_HANDSHAKE = 18, 17
VERSIONS = b"".join(struct.pack(">hhhb", key, 0, version, 0) for key, version in ((18, 3), (17, 1), (36, 1)))
SALT = base64.b64encode(b"salt").decode()
Message = Callable[[str], bytes]


def message(text: str | bytes) -> Message:
    """A message of the mechanism; NONCE is the one of the client."""
    return lambda nonce: text if isinstance(text, bytes) else text.replace("NONCE", nonce).encode()


def broker(*messages: Message) -> Behaviour:
    """Logs a client in with these messages."""

    def behave(client: socket.socket, over: threading.Event) -> None:
        left, nonce = list(messages), ""
        while not over.is_set():
            request = read(client)
            key, _, correlation = struct.unpack_from(">hhi", request)
            if key == API_VERSIONS:
                body = b"\0\0\x04" + VERSIONS + bytes(5)
            elif key == SASL_HANDSHAKE:
                body = struct.pack(">hi", 0, 0)
            else:
                nonce = request.rpartition(b"r=")[2].decode() if b"n,," in request else nonce
                content = left.pop(0)(nonce) if left else b""
                body = struct.pack(">hhi", 0, -1, len(content)) + content + bytes(8)
            client.sendall(struct.pack(">ii", len(body) + 4, correlation) + body)

    return behave


def read(client: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL) or bytes(4))
    found = client.recv(size, socket.MSG_WAITALL)
    if not found:
        raise ConnectionError
    return found


UNUSABLE: dict[str, tuple[Message, ...]] = {
    "no pairs": (message("sesame"),),
    "no text": (message(b"r=\xff\xfe"),),
    "no nonce": (message(f"s={SALT},i=4096"),),
    "a foreign nonce": (message(f"r=abc,s={SALT},i=4096"),),
    "a salt that is no base64": (message("r=NONCEx,s=!,i=4096"),),
    "no number of iterations": (message(f"r=NONCEx,s={SALT},i=many"),),
    "no iterations": (message(f"r=NONCEx,s={SALT},i=0"),),
    "iterations without end": (message(f"r=NONCEx,s={SALT},i=999999999"),),
    "no signature": (message(f"r=NONCEx,s={SALT},i=4096"), message("e=other-error")),
    "a false signature": (message(f"r=NONCEx,s={SALT},i=4096"), message(f"v={SALT}")),
}


def connect(behaviour: Behaviour) -> Exception:
    """The error of a login, which names the address in one line and shows no password."""
    security = Security(protocol="SASL_PLAINTEXT", login=PasswordLogin("SCRAM-SHA-256", "me", "sesame-open"))
    with bad_server(behaviour) as endpoint:
        began_s = time.monotonic()
        with pytest.raises(BrokerError) as raised:
            Connection(endpoint, security, timeout_s=IN_TIME_S)
        assert time.monotonic() - began_s < LIMIT_S
    assert str(endpoint) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "sesame-open" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("messages", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_message_of_scram_that_cannot_be_used(messages: tuple[Message, ...], bad_inputs: BadInputs) -> None:
    error = connect(broker(*messages))
    assert re.search(r"SCRAM-SHA-256 server-(first|final)-message\b.*: ", str(error))
    bad_inputs.keep("Logins", error, before="a message of SCRAM with ")


def test_plain_with_these_messages_would_succeed() -> None:
    security = Security(protocol="SASL_PLAINTEXT", login=PasswordLogin("PLAIN", "me", "sesame-open"))
    with bad_server(broker()) as endpoint:
        Connection(endpoint, security, timeout_s=IN_TIME_S).close()
