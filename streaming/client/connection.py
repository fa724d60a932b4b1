"""One connection to one broker; all requests to Kafka use one, except those of confluent-kafka for the events topic.

Its socket is a blocking one, read into one buffer that is reused and grown. This simple design makes the header scan
several times faster than a consumer library (docs/decisions/0003). kafka-python's generated classes encode and decode
the messages, and its mechanisms do SASL. The rules for answers, sizes, timeouts and throttling are below.

Law: any failure closes the connection and is raised as `BrokerError`, because after a lost or late answer the stream of
answers cannot be trusted any more. The caller connects again.
"""

from __future__ import annotations

import contextlib
import secrets
import select
import socket
import ssl
import struct
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, Protocol

from kafka import errors as kafka_errors
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from txnwatch.state.model.errors import AuthorizationError, BrokerError, UnsupportedRequestError, WireError
from txnwatch.state.model.values import NO_TIME, DurationMs, ErrorCode, Problem
from txnwatch.state.text import protocol_doubt
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Login, Security
from txnwatch.streaming.wire.fetch_response import RecordSkipper
from txnwatch.streaming.wire.primitives import Reader

# Decodes the answers of brokers with the classes of kafka-python.
#
# Those classes also accept a null where the schema has none. The code that reads an answer relies on the schema, so
# such an answer is refused here.

_WITH_NULL = {"string", "bytes", "records"}


class _Required(NamedTuple):
    """A field that must not be null, with such fields of its items; with `has_texts`, its items are not null either."""

    name: str
    of_items: tuple[_Required, ...]
    has_texts: bool


def decode_answer(asked: Any, body: memoryview | bytes) -> Any:
    """The answer to the request with the header `asked`, from the body of a response.

    Raises:
        WireError: the bytes do not follow the schema of that version.
    """
    response_class, version = asked.get_response_class(), asked.request_api_version
    try:
        answer = response_class.decode(body)
    except Exception as exc:  # invalid bytes can raise anything
        problem = f"{len(body)} bytes that cannot be decoded: {type(exc).__name__}: {exc}"
        raise WireError(response_class.name, 0, problem, f"an answer of version {version}") from exc
    missing = _null_in(answer, _required_of(response_class, version))
    if missing is not None:
        raise WireError(response_class.name, 0, f"null in {missing}", f"an answer of version {version}")
    return answer


def the_one(items: Sequence[Any]) -> Any:
    """The only item of a list in an answer to a question about one thing.

    Raises:
        BrokerError: the list has another number of items.
    """
    if len(items) != 1:
        raise BrokerError(f"expected an answer about one thing, found {len(items)}")
    return items[0]


def _has_flexible_header(asked: Any) -> bool:
    """Whether the response header has tagged fields; that of ApiVersions never has them (KIP-511)."""
    if asked.request_api_key == ApiVersionsRequest.API_KEY:
        return False
    return bool(asked.get_response_class().flexible_version_q(asked.request_api_version))


def _null_in(value: Any, required: tuple[_Required, ...]) -> str | None:
    for name, of_items, has_texts in required:
        field = getattr(value, name)
        if field is None or (has_texts and None in field):
            return name
        if of_items:
            for item in field:
                missing = _null_in(item, of_items)
                if missing is not None:
                    return f"{name}.{missing}"
    return None


@cache
def _required_of(response_class: Any, version: int) -> tuple[_Required, ...]:
    return _required(response_class.fields, version)


def _required(fields: Mapping[str, Any], version: int) -> tuple[_Required, ...]:
    return tuple(
        _Required(
            name,
            _required(field.array_of.fields, version) if field.is_struct_array() else (),
            has_texts=field.is_array() and field.array_of.type_str in _WITH_NULL,
        )
        for name, field in fields.items()
        if field.for_version_q(version)
        and not field.nullable_for_version_q(version)
        and (field.is_array() or field.type_str in _WITH_NULL)
    )


# How many bytes to ask one broker for in one Fetch, so that an answer takes about a second. Pure: no I/O, no clock.
#
# A fast link gets the largest requests after a few answers. A slow link gets small ones: an answer of 16 MB at 1 MB/s
# would block everything else for 16 s. A quota leads to small requests too: if an answer exceeds the quota, the broker
# sends none of it, and throttles for as long as the whole answer would have taken.

LEAST, FIRST, MOST = 64 << 10, 2 << 20, 16 << 20
_WANTED_S, _WANTED_THROTTLE_S, _QUICK_S = 1.0, 0.25, 0.3
_GROWTH = 1.25


@dataclass(slots=True)
class Pace:
    """The size of the next Fetch of one connection, in bytes."""

    size: int = FIRST

    def answered(self, asked: int, received: int, took_s: float, throttled_s: float = 0.0) -> None:
        """Adjusts the size to an answer: its bytes, how long it took, and how long the broker throttles us for it."""
        wanted = float(self.size)
        if throttled_s > _WANTED_THROTTLE_S:
            wanted *= _WANTED_THROTTLE_S / throttled_s
        elif took_s > _WANTED_S:
            wanted = min(wanted, received * _WANTED_S / took_s)
        elif took_s < _QUICK_S and 2 * received > asked:
            wanted *= _GROWTH
        self.size = max(LEAST, min(int(wanted), MOST))


# How long a connection waits for an answer, and how long it waits before it sends while a broker throttles it.
#
# The wait for an answer goes on while bytes arrive. It fails only if no bytes arrive for the time of its patience. An
# answer that must be complete at a given time has an `until` as well as a patience.
#
# A broker that throttles a client sends the throttle time in its answer, and then does not read from the connection for
# that time (KIP-219). A request that is sent earlier stays unread. So we wait before we send, and that wait does not
# count against any patience.

PROGRESS = 4096  # bytes that renew the patience; a server that sends single bytes gets no more time
NEVER = float("inf")


class AnswerWait:
    """The wait for one answer; times are on the monotonic clock, in seconds."""

    def __init__(self, first_by: float, patience_s: float, until: float) -> None:
        """Starts the wait: the first bytes are due by `first_by`, the whole answer by `until`."""
        self._due = min(first_by, until)
        self._patience_s = patience_s
        self._until = until
        self._new = 0

    def left_s(self) -> float:
        """How long the next byte may take; 0 means to read only what has arrived already.

        Raises:
            TimeoutError: `until` has passed, even if bytes have arrived.
        """
        now = time.monotonic()
        if now >= self._until:
            raise TimeoutError("no answer in time")
        return max(0.0, self._due - now)

    def got(self, count: int) -> None:
        """Counts bytes that have arrived."""
        self._new += count
        if self._new >= PROGRESS:
            self._new = 0
            self._due = min(max(self._due, time.monotonic() + self._patience_s), self._until)


class Throttle:
    """The time until which a broker does not read what a connection sends."""

    def __init__(self, total_ms: Counter[str]) -> None:
        """Starts without a throttle; throttle times are added to `total_ms`, by kind of request."""
        self._total_ms = total_ms
        self._until = 0.0

    def add(self, request: str, throttle_ms: DurationMs) -> None:
        """Records the throttle time of an answer."""
        if throttle_ms > 0:
            self._total_ms[request] += throttle_ms
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """How long the throttle still lasts, in seconds."""
        return max(0.0, self._until - time.monotonic())


# How many bytes went over connections to brokers.


@dataclass(slots=True)
class Traffic:
    """Bytes of requests and answers with their headers, before TLS."""

    sent: int = 0
    received: int = 0


# Kafka's names of the error codes in answers.


def problem_of(code: int) -> Problem | None:
    """The problem that an error code of an answer reports; None if it reports no error."""
    return Problem(error_name(code), code) if code != ErrorCode.NONE else None


def error_name(code: int) -> str:
    """kafka-python's name of an error code, for example NOT_LEADER_FOR_PARTITION; the number if it has none."""
    error = kafka_errors.kafka_errors.get(code)
    return str(error.message) if error is not None else f"error {code}"


# What a new connection does before its first request: it asks for the API versions, and it authenticates.
#
# Both must end before the deadline of the set-up, however long the broker throttles them.

_API_VERSIONS = 4  # from it on, a feature whose lowest level is 0 is in the answer, too
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


def _first_answer(connection: NewConnection, deadline: float) -> Any:
    """The ApiVersionsResponse: what the broker supports. An older broker says which version of this request it has.

    Raises:
        BrokerError: the broker does not return it before the deadline, on the monotonic clock.
    """
    version, code = _API_VERSIONS, _UNSUPPORTED_VERSION
    for _ in range(2):
        request = ApiVersionsRequest(version=version, client_software_name="txnwatch", client_software_version="0")
        response = _call(connection, request, deadline)
        code = response.error_code
        if code == ErrorCode.NONE:
            return response
        if code != _UNSUPPORTED_VERSION:
            break
        supported = (api.max_version for api in response.api_keys if api.api_key == ApiVersionsRequest.API_KEY)
        version = min(next(supported, 0), _API_VERSIONS)
    raise BrokerError(f"{connection.endpoint} did not return its API versions: {error_name(code)}")


def authenticate(connection: NewConnection, login: Login, protocol: str, deadline: float) -> float:
    """Authenticates with SASL; returns until when the session may be used, on the monotonic clock.

    Raises:
        AuthorizationError: the broker refuses the mechanism or the user.
        BrokerError: the broker does not follow the mechanism, or not before the deadline.
    """
    response = _call(connection, SaslHandshakeRequest(version=1, mechanism=login.mechanism), deadline)
    if response.error_code:
        offered = f", it offers {', '.join(response.mechanisms)}" if response.mechanisms else ""
        doubt = "" if offered else protocol_doubt(protocol)
        raise AuthorizationError(
            f"{connection.endpoint} refused SASL mechanism {login.mechanism}: "
            f"{error_name(response.error_code)}{offered}{doubt}"
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


# The connection.

CLIENT_ID = "txnwatch"
_SIZE = struct.Struct(">i")
_FIRST_BUFFER = 1 << 20
_SINCE = {"DescribeProducers": "2.8", "DescribeTransactions": "3.0", "ListTransactions": "3.0"}


class Connection:
    """An authenticated connection that knows which request versions its broker supports.

    Attributes:
        pace: how many bytes a Fetch asks for.
        identity: differs from that of each other connection, also of other processes.
        shown: the ApiVersionsResponse of the broker, when the connection began.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        security: Security,
        *,
        timeout_s: float = 10.0,
        client_id: str = CLIENT_ID,
        throttled_ms: Counter[str] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """Connects; adds the broker's throttle times to `throttled_ms`, by kind of request, and bytes to `traffic`.

        Raises:
            BrokerError: the broker cannot be reached, is not a Kafka broker, or does not answer in time.
            AuthorizationError: SASL refused the credentials.
        """
        self.endpoint = endpoint
        self._security = security
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._in_flight: deque[tuple[Any, float]] = deque()
        self._throttle = Throttle(Counter() if throttled_ms is None else throttled_ms)
        self._traffic = Traffic() if traffic is None else traffic
        self.pace = Pace()
        self.identity = secrets.token_hex(4)
        self._buffer = memoryview(bytearray(_FIRST_BUFFER))
        self.shown: Any = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._is_proven = self._is_set_up = False
        self._session_end = NEVER
        self._can_drop_bytes = sys.platform == "linux" and not security.uses_tls  # TCP there, with MSG_TRUNC
        deadline = time.monotonic() + timeout_s
        self._socket = self._connected(timeout_s)
        try:
            self.shown = _first_answer(self, deadline)
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in self.shown.api_keys}
            if security.login is not None:
                self._session_end = authenticate(self, security.login, security.protocol, deadline)
            self._is_set_up = True
        except BaseException:
            self.close()
            raise

    def _connected(self, timeout_s: float) -> socket.socket:
        tls = self._security.tls.context() if self._security.uses_tls else None
        doubt = ""
        try:
            plain = socket.create_connection(self.endpoint, timeout=timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            doubt = protocol_doubt(self._security.protocol)
            return plain if tls is None else tls.wrap_socket(plain, server_hostname=self.endpoint.host)
        except (OSError, UnicodeError) as exc:  # UnicodeError: a broker has returned an invalid host name
            if isinstance(exc, ssl.SSLCertVerificationError):
                doubt = ""  # the listener speaks TLS
            doubt += self._security.tls.doubt(exc, *self.endpoint)
            raise BrokerError(f"cannot connect to broker {self.endpoint}: {exc}{doubt}") from exc

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used: neither we closed it nor, while it was idle, the broker.

        A connection whose SASL session ends soon is closed: the broker closes it at the first request after the end
        (KIP-368), and the next connection authenticates with a new token.
        """
        if not self._in_flight and time.monotonic() >= self._session_end:
            self.close()
        if self._socket.fileno() >= 0 and not self._in_flight:
            idle = select.poll()
            idle.register(self._socket, select.POLLIN)
            if idle.poll(0):  # no request is under way, so readable means closed by the broker
                self.close()
        return self._socket.fileno() >= 0

    def close(self) -> None:
        """Closes the socket; answers under way are lost."""
        self._in_flight.clear()
        with contextlib.suppress(OSError):
            self._socket.close()

    @property
    def finalized(self) -> dict[str, int]:
        """The level of each feature of the cluster, when the connection began; none from a broker that has none."""
        return {feature.name: feature.max_version_level for feature in self.shown.finalized_features or ()}

    def version(self, request_class: Any, highest: int | None = None) -> int | None:
        """The highest version of a request that both sides support, at most `highest`; None if there is none."""
        supported = self._versions.get(request_class.API_KEY)
        if supported is None:
            return None
        low, high = supported
        common = min(high, request_class.max_version if highest is None else highest)
        return common if common >= low else None

    def require_version(self, request_class: Any, highest: int | None = None, lowest: int = 0) -> int:
        """Like `version`, for requests that we cannot do without.

        Raises:
            UnsupportedRequestError: the broker is too old for it.
        """
        version = self.version(request_class, highest)
        if version is None or version < lowest:
            api = request_class.name.removesuffix("Request")
            since = f" (Kafka {_SINCE[api]} or later)" if api in _SINCE else f" version {lowest} or later"
            raise UnsupportedRequestError(f"broker {self.endpoint} is too old: it does not support {api}{since}")
        return version

    @property
    def throttled_s(self) -> float:
        """How long the broker will not read what is sent, in seconds."""
        return self._throttle.left_s

    def throttled(self, asked: Any, throttle_ms: DurationMs) -> None:
        """Records the throttle time of the answer to the request with this header; `receive` does so itself."""
        self._throttle.add(asked.get_response_class().name.removesuffix("Response"), throttle_ms)

    def call(self, request: Any, timeout_s: float, until: float = NEVER) -> Any:
        """Sends one request and waits for its answer.

        Raises:
            BrokerError: the connection broke, or no answer came in time.
        """
        self.send(request, until)
        return self.receive(timeout_s, until)

    def send(self, request: Any, until: float = NEVER) -> None:
        """Sends one request, after any throttle has ended; `receive` returns the answers in the order of sending.

        Raises:
            BrokerError: the connection broke, or the broker does not read again before `until`.
        """
        if time.monotonic() + self.throttled_s > until:
            raise BrokerError(f"broker {self.endpoint} throttles txnwatch for another {self.throttled_s:.1f} s")
        time.sleep(self.throttled_s)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        request.with_header(correlation_id=self._correlation_id, client_id=self._client_id)
        encoded = request.encode(framed=True, header=True)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(encoded)
        except OSError as exc:
            raise self.broken(exc) from exc
        self._traffic.sent += len(encoded)
        if request.expect_response():
            self._in_flight.append((request.header, time.monotonic()))

    def receive(self, timeout_s: float, until: float = NEVER) -> Any:
        """The answer to the oldest request under way, with the timeouts of `receive_body`.

        Raises:
            BrokerError: the connection broke, no answer came in time, or it cannot be decoded.
        """
        asked, body = self.receive_body(timeout_s, until)
        try:
            answer = decode_answer(asked, body)
        except WireError as exc:
            raise self.broken(exc) from exc
        self.throttled(asked, getattr(answer, "throttle_time_ms", NO_TIME))
        return answer

    def receive_body(
        self, timeout_s: float, until: float = NEVER, *, skips_records: bool = False
    ) -> tuple[Any, memoryview]:
        """The header of the oldest request under way and the undecoded body of its answer.

        The answer must begin within `timeout_s` of the request, must not pause for that long, and must be complete by
        `until` (on the monotonic clock). The body is a view into the connection's buffer: the next answer overwrites
        it. With `skips_records`, the answer to a Fetch may have other bytes in place of the records of large batches.

        Raises:
            BrokerError: the connection broke, or no answer came in time.
        """
        asked, sent = self._in_flight.popleft()
        wait = AnswerWait(sent + timeout_s, timeout_s, until)
        try:
            size = self._answer_size(_SIZE.unpack(self._read(_SIZE.size, wait))[0])
            skipper = RecordSkipper(asked.request_api_version) if skips_records and self._can_drop_bytes else None
            reader = Reader(self._read(size, wait, skipper))
            self._traffic.received += _SIZE.size + size
            answered = reader.int32("correlation id")
            if _has_flexible_header(asked):
                reader.tagged_fields("response header tags")
            body = reader.take(reader.remaining, "response body")
        except (OSError, WireError) as exc:
            raise self.broken(exc) from exc
        if answered != asked.correlation_id:
            expected = f"expected the answer to request {asked.correlation_id}"
            raise self.broken(ValueError(f"{expected}, found the answer to request {answered}"))
        self._is_proven = asked.request_api_key != ApiVersionsRequest.API_KEY
        return asked, body

    def _answer_size(self, claimed: int) -> int:
        """The size in front of an answer; four bytes of another protocol read as hundreds of megabytes."""
        if claimed < 0 or (claimed > _FIRST_BUFFER and not self._is_set_up):
            answer = "an answer before the login" if self._versions else "its first answer"
            raise ConnectionError(f"not a Kafka broker: {answer} begins with a length of {claimed} bytes")
        return claimed

    def _read(self, size: int, wait: AnswerWait, skipper: RecordSkipper | None = None) -> memoryview:
        if size > len(self._buffer):
            self._buffer = memoryview(bytearray(size + size // 4))
        filled = 0
        while filled < size:
            to, flags = size, 0
            if skipper is not None and (wanted_at := skipper.skip_to(self._buffer, filled)) > filled:
                to, flags = min(size, wanted_at), socket.MSG_TRUNC
            elif skipper is not None:
                to = min(size, filled + skipper.next_size)
            self._socket.settimeout(wait.left_s())
            try:
                count = self._socket.recv_into(self._buffer[filled:to], 0, flags)
            except (TimeoutError, BlockingIOError, ssl.SSLWantReadError) as exc:
                raise TimeoutError("no answer in time") from exc
            if count == 0:
                raise ConnectionError("the broker closed the connection")
            filled += count
            wait.got(count)
        return self._buffer[:size]

    def broken(self, exc: Exception) -> BrokerError:
        """Closes the connection after an answer that cannot be trusted, and returns the error to raise."""
        self.close()
        doubt = "" if self._is_proven else protocol_doubt(self._security.protocol)
        doubt += self._security.tls.doubt(exc, *self.endpoint)
        return BrokerError(f"lost broker {self.endpoint}: {exc}{doubt}")
