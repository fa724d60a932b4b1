"""Servers that are no token endpoints, or break off: a BrokerError in one line, and never another error."""

from __future__ import annotations

import pytest

from support.bad_inputs import BadInputs
from support.bad_servers import Behaviour, answers_and_hangs_up, bad_server, hangs_up
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.tokens import ClientCredentials

OK, REFUSED = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 401 Unauthorized\r\n"
BAD_SERVERS: dict[str, tuple[Behaviour, str]] = {
    "hangs up": (hangs_up, "Remote end closed connection"),
    "is no web server": (answers_and_hangs_up(b"SSH-2.0-OpenSSH_9.6\r\n"), "SSH-2.0-OpenSSH_9.6"),
    "breaks off": (answers_and_hangs_up(OK + b"Content-Length: 99\r\n\r\n{"), "expected a token"),
    "breaks off a refusal": (answers_and_hangs_up(REFUSED + b"Content-Length: 99\r\n\r\n{"), "HTTP 401"),
    "answers a deep list": (answers_and_hangs_up(OK + b"\r\n" + b"[" * 100_000), "expected a token"),
    "moves the cursor": (answers_and_hangs_up(b"HTTP/1.1 401 \x1b[2J\r\n\r\n"), r"HTTP 401 .*\\x1b\[2J"),
    "refuses without a reason": (answers_and_hangs_up(b"HTTP/1.1 403\r\n\r\n"), "HTTP 403 for client 'id'"),
    "answers no object": (answers_and_hangs_up(OK + b"\r\n[1]"), "expected a token"),
}


@pytest.mark.parametrize(("behaviour", "message"), BAD_SERVERS.values(), ids=BAD_SERVERS.keys())
def test_a_server_that_gives_no_token_is_a_broker_error(
    behaviour: Behaviour, message: str, bad_inputs: BadInputs
) -> None:
    with bad_server(behaviour) as endpoint:
        source = ClientCredentials(f"http://{endpoint}/token", "id", "secret")
        with pytest.raises(BrokerError, match=message) as raised:
            source.fetch()
    assert str(endpoint) in str(raised.value)
    assert str(raised.value).isprintable()
    bad_inputs.keep("Token endpoints", raised.value, before="a server that ")


def test_a_life_that_is_no_time_is_not_used() -> None:
    answer = OK + b'\r\n{"access_token": "opaque", "expires_in": 1%s}' % (b"0" * 400)
    with bad_server(answers_and_hangs_up(answer)) as endpoint:
        assert ClientCredentials(f"http://{endpoint}/token", "id", "secret").fetch().text == "opaque"


def test_a_host_that_no_socket_accepts_is_a_broker_error() -> None:
    with pytest.raises(BrokerError, match="label empty or too long"):
        ClientCredentials("http://a..b/token", "id", "secret").fetch()
