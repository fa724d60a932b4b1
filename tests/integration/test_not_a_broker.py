"""Servers that are no Kafka brokers, and none at all: a BrokerError that names the address, in time."""

from __future__ import annotations

import re
import time

import pytest

from support.bad_inputs import BadInputs
from support.bad_servers import Behaviour, answers, bad_server, hangs_up, stays_silent, trickles
from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.client.tls import Tls

IN_TIME_S, LIMIT_S = 1.0, 10.0  # the limit is for a machine with other work
BAD_SERVERS: dict[str, tuple[Behaviour, str]] = {
    "never answers": (stays_silent, "no answer in time"),
    "hangs up": (hangs_up, "closed the connection"),
    "answers a byte at a time": (trickles, "no answer in time"),
    "is a web server": (answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not a Kafka broker"),
    "is a Redis": (answers(b"-ERR unknown command\r\n"), "not a Kafka broker"),
    "answers a negative size": (answers(b"\xff\xff\xff\xff" + bytes(60)), "not a Kafka broker"),
    "answers another question": (
        answers(b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00"),
        "found the answer to request 99",
    ),
    "answers too little": (answers(b"\x00\x00\x00\x02\x00\x00"), "lost broker"),
    "answers nonsense": (
        answers(b"\x00\x00\x00\x0c\x00\x00\x00\x01" + b"\xff" * 8),
        "lost broker|did not return its API versions",
    ),
}


@pytest.mark.parametrize(("behaviour", "message"), BAD_SERVERS.values(), ids=BAD_SERVERS.keys())
def test_a_server_that_is_no_broker_is_a_broker_error_in_time(
    behaviour: Behaviour, message: str, bad_inputs: BadInputs
) -> None:
    with bad_server(behaviour) as endpoint:
        started = time.monotonic()
        with pytest.raises(BrokerError, match=message) as raised:
            Connection(endpoint, Security(), timeout_s=IN_TIME_S)
        assert time.monotonic() - started < LIMIT_S
        assert str(endpoint) in str(raised.value)
    bad_inputs.keep("Brokers", raised.value, before="a server that ")


@pytest.mark.parametrize("behaviour", [stays_silent, hangs_up, answers(b"HTTP/1.1 400\r\n\r\n")])
def test_a_server_that_does_not_shake_hands_is_a_broker_error_in_time(behaviour: Behaviour) -> None:
    with bad_server(behaviour) as endpoint:
        started = time.monotonic()
        expected = rf"cannot connect to broker {endpoint}: .*\(is security\.protocol=SSL right for this listener\?\)$"
        with pytest.raises(BrokerError, match=expected):
            Connection(endpoint, Security(protocol="SSL", tls=Tls(verify_host=False)), timeout_s=IN_TIME_S)
        assert time.monotonic() - started < LIMIT_S


def test_a_closed_port_is_a_broker_error() -> None:
    with bad_server(stays_silent) as endpoint:
        pass
    with pytest.raises(BrokerError, match=f"cannot connect to broker {endpoint}: .*refused"):
        Connection(endpoint, Security(), timeout_s=IN_TIME_S)


@pytest.mark.parametrize(
    "host",
    ["no-such-host.invalid", "a..b", "x" * 64],
    ids=["an unknown host", "a host with an empty label", "a host of 64 characters"],
)
def test_a_host_that_does_not_exist_is_a_broker_error(host: str, bad_inputs: BadInputs) -> None:
    """A broker can tell any host in its metadata, also one that no socket accepts."""
    with pytest.raises(BrokerError, match=rf"cannot connect to broker {re.escape(host)}:9092: ") as raised:
        Connection(Endpoint(host, 9092), Security(), timeout_s=IN_TIME_S)
    bad_inputs.keep("Brokers", raised.value, before="in the metadata: ")
