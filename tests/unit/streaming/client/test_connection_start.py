"""The first answers of a connection: invalid ones are typed errors, in time and in little memory."""

from __future__ import annotations

import time
from itertools import repeat

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest

from support.scripted_brokers import api_versions, framed, handshake, has_sent, sasl_answer
from txnwatch.state.model.errors import AuthorizationError, BrokerError
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Login, PasswordLogin, Security, TokenLogin
from txnwatch.streaming.client.tokens import Token

pytestmark = pytest.mark.unit

BROKER = Endpoint("broker", 9092)
PLAIN = PasswordLogin("PLAIN", "me", "pw")
HOUR_MS = 3_600_000


class Source:
    """Gives one token."""

    user = "me"

    def fetch(self) -> Token:
        return Token("token", "me", time.time(), time.time() + 100)


TOKEN = TokenLogin(Source())


def start(data: bytes, login: Login | None = None, timeout_s: float = 5.0) -> Connection:
    security = Security() if login is None else Security("SASL_PLAINTEXT", login=login)
    with has_sent(data):
        return Connection(BROKER, security, timeout_s=timeout_s)


UNSUPPORTED = 35


@pytest.mark.parametrize("own_version", [0, 3])
def test_an_older_broker_is_asked_in_the_version_that_it_names(own_version: int) -> None:
    refusal = api_versions(version=0, error_code=UNSUPPORTED, own_version=own_version)
    connection = start(framed(refusal, api_versions(version=own_version, own_version=own_version)))
    assert connection.version(ApiVersionsRequest) == own_version
    assert connection.version(MetadataRequest) == 12
    connection.close()


def test_a_broker_that_refuses_each_version_is_an_error() -> None:
    refusal = api_versions(version=0, error_code=UNSUPPORTED)
    with pytest.raises(BrokerError, match="did not return its API versions: UNSUPPORTED_VERSION"):
        start(framed(refusal, refusal))


def test_a_login_with_a_password_is_accepted() -> None:
    start(framed(api_versions(), handshake("PLAIN"), sasl_answer()), PLAIN).close()


def test_a_login_with_a_token_is_accepted() -> None:
    start(framed(api_versions(), handshake("OAUTHBEARER"), sasl_answer()), TOKEN).close()


def test_data_in_the_answer_to_plain_is_an_error() -> None:
    data = framed(api_versions(), handshake("PLAIN"), sasl_answer(b"welcome"))
    expected = r"lost broker broker:9092: PLAIN answer at byte 0: expected no data, found 7 bytes b'welcome'"
    with pytest.raises(BrokerError, match=expected):
        start(data, PLAIN)


def test_a_refused_token_is_an_error_with_the_brokers_reason() -> None:
    refusal = sasl_answer(error_code=58, error='{"status":"invalid_token"}')
    data = framed(api_versions(), handshake("OAUTHBEARER"), sasl_answer(b"\xff"), refusal)
    with pytest.raises(AuthorizationError, match=r"broker:9092 refused user 'me': \{\"status\":\"invalid_token\"\}"):
        start(data, TOKEN)


def test_a_refusal_without_an_end_is_an_error() -> None:
    data = framed(api_versions(), handshake("OAUTHBEARER"), *repeat(sasl_answer(b"no"), 9))
    with pytest.raises(BrokerError, match=r"OAUTHBEARER answer at byte 0: expected no data, found 2 bytes b'no'"):
        start(data, TOKEN)


class Endless:
    """A login that never ends."""

    mechanism, user = "ENDLESS", "me"

    def exchange(self, *_: str) -> Endless:
        return self

    def auth_bytes(self) -> bytes:
        return b""

    def receive(self, message: bytes) -> None:
        del message

    def is_done(self) -> bool:
        return False


def test_a_login_has_a_limit_of_messages() -> None:
    data = framed(api_versions(), handshake("ENDLESS"), *repeat(sasl_answer(), 100))
    with pytest.raises(BrokerError, match="expected the end of the login after 16 messages at most"):
        start(data, Endless())


def test_a_throttle_beyond_the_time_of_the_start_is_an_error_at_once() -> None:
    data = framed(api_versions(throttle_ms=HOUR_MS), handshake("PLAIN"), sasl_answer())
    started = time.monotonic()
    with pytest.raises(BrokerError, match=r"broker broker:9092 throttles txnwatch for another 3600\.0 s"):
        start(data, PLAIN)
    assert time.monotonic() - started < 10.0


def test_a_throttle_within_the_time_of_the_start_is_waited_for() -> None:
    started = time.monotonic()
    start(framed(api_versions(throttle_ms=300), handshake("PLAIN"), sasl_answer()), PLAIN).close()
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("size", [1 << 30, -1])
@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((), "not a Kafka broker: its first answer"),
        ((api_versions(),), "an answer before the login"),
        ((api_versions(), handshake("PLAIN")), "an answer before the login"),
    ],
    ids=["the first answer", "the handshake", "the login"],
)
def test_an_answer_of_no_possible_size_before_the_end_of_the_login_is_refused_before_memory_is_taken(
    answers: tuple[bytes, ...], message: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def take(size: int) -> bytearray:
        taken.append(size)
        return bytearray(size)

    monkeypatch.setattr("txnwatch.streaming.client.connection.bytearray", take, raising=False)
    with pytest.raises(BrokerError, match=f"{message} begins with a length of {size} bytes"):
        start(framed(*answers) + size.to_bytes(4, "big", signed=True), PLAIN)
    assert sum(taken) == 1 << 20
