"""One connection to one broker: the project's only socket.

A blocking socket, read into one buffer that is reused and grown. This simple design makes the header scan several times
faster than a consumer library (docs/decisions/0003). kafka-python's generated classes encode and decode the messages,
and its mechanisms do SASL. answer_wait.py has the rules for timeouts and for throttling.

Law: any failure closes the connection and is raised as `BrokerError`, because after a lost or late answer the stream of
answers cannot be trusted any more. The caller connects again.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import sys
import time
from collections import Counter, deque
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest

from txnwatch.state.model.errors import BrokerError, UnsupportedRequestError, WireError
from txnwatch.state.model.quantities import NO_TIME, DurationMs
from txnwatch.streaming.client.answer_wait import NEVER, AnswerWait, Throttle
from txnwatch.streaming.client.answers import decode_answer, has_flexible_header
from txnwatch.streaming.client.connection_start import authenticate, supported_versions
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.fetch_pace import Pace
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.client.traffic import Traffic
from txnwatch.streaming.wire.primitives import Reader
from txnwatch.streaming.wire.record_skipper import RecordSkipper

CLIENT_ID = "txnwatch"
_SIZE = struct.Struct(">i")
_FIRST_BUFFER = 1 << 20
_SINCE = {"DescribeProducers": "2.8", "DescribeTransactions": "3.0", "ListTransactions": "3.0"}


class Connection:
    """An authenticated connection that knows which request versions its broker supports.

    Attributes:
        pace: how many bytes a Fetch asks for.
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
        self._buffer = memoryview(bytearray(_FIRST_BUFFER))
        self._versions: dict[int, tuple[int, int]] = {}
        self._is_proven = self._is_set_up = False
        self._session_end = NEVER
        self._can_drop_bytes = sys.platform == "linux" and not security.uses_tls  # TCP there, with MSG_TRUNC
        deadline = time.monotonic() + timeout_s
        self._socket = self._connected(timeout_s)
        try:
            self._versions = supported_versions(self, deadline)
            if security.login is not None:
                self._session_end = authenticate(self, security.login, security.protocol, deadline)
            self._is_set_up = True
        except BaseException:
            self.close()
            raise

    def _connected(self, timeout_s: float) -> socket.socket:
        tls = self._security.tls.context() if self._security.uses_tls else None
        try:
            plain = socket.create_connection(self.endpoint, timeout=timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return plain if tls is None else tls.wrap_socket(plain, server_hostname=self.endpoint.host)
        except (OSError, UnicodeError) as exc:  # UnicodeError: a broker has returned an invalid host name
            doubt = self._security.tls.doubt(exc, *self.endpoint)
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

    def version(self, request_class: Any, highest: int | None = None) -> int | None:
        """The highest version of a request that both sides support, at most `highest`; None if there is none."""
        supported = self._versions.get(request_class.API_KEY)
        if supported is None:
            return None
        low, high = supported
        found = min(high, request_class.max_version if highest is None else highest)
        return found if found >= low else None

    def require_version(self, request_class: Any, highest: int | None = None, lowest: int = 0) -> int:
        """Like `version`, for requests that we cannot do without.

        Raises:
            UnsupportedRequestError: the broker is too old for it.
        """
        found = self.version(request_class, highest)
        if found is None or found < lowest:
            api = request_class.name.removesuffix("Request")
            since = f" (Kafka {_SINCE[api]} or later)" if api in _SINCE else f" version {lowest} or later"
            raise UnsupportedRequestError(f"broker {self.endpoint} is too old: it does not support {api}{since}")
        return found

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
            if has_flexible_header(asked):
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
        # Brokers close a connection of the wrong protocol without an error; a SASL listener does so after ApiVersions.
        protocol = self._security.protocol
        doubt = "" if self._is_proven else f" (is security.protocol={protocol} right for this listener?)"
        doubt += self._security.tls.doubt(exc, *self.endpoint)
        return BrokerError(f"lost broker {self.endpoint}: {exc}{doubt}")
