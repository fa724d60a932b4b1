"""A cluster whose brokers answer with given bytes, decoded by the code that decodes the answers of real brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.streaming.client.answers import decode_answer
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security

BROKER = Endpoint("a", 1)
_LENGTH_BYTES = 2


def packed(answers: Iterable[bytes]) -> bytes:
    """Several answers as one input: each with its length in front."""
    return b"".join(len(one).to_bytes(_LENGTH_BYTES, "big") + one for one in answers)


def unpacked(data: bytes) -> Iterator[bytes]:
    """The answers of an input; the last one may be cut off."""
    while data:
        size = int.from_bytes(data[:_LENGTH_BYTES], "big")
        yield data[_LENGTH_BYTES : _LENGTH_BYTES + size]
        data = data[_LENGTH_BYTES + size :]


class _Connection:
    """Answers each request with the next bytes."""

    endpoint, is_open, throttled_s = BROKER, True, 0.0

    def __init__(self, answers: Iterator[bytes]) -> None:
        self._answers = answers
        self._asked: list[Any] = []

    def version(self, request_class: Any, highest: int | None = None) -> int:
        newest: int = request_class.max_version
        return newest if highest is None else min(newest, highest)

    def require_version(self, request_class: Any, highest: int | None = None, lowest: int = 0) -> int:
        return max(lowest, self.version(request_class, highest))

    def send(self, request: Any, _until: float = 0.0) -> None:
        request.with_header(correlation_id=1, client_id="fuzz")
        request.encode(framed=True, header=True)
        self._asked.append(request.header)

    def call(self, request: Any, timeout_s: float) -> Any:
        self.send(request)
        return self.receive(timeout_s)

    def receive(self, _timeout_s: float, _until: float = 0.0) -> Any:
        body = next(self._answers, None)
        if body is None:
            raise BrokerError("lost the broker")
        try:
            return decode_answer(self._asked.pop(0), body)
        except WireError as exc:
            raise BrokerError(str(exc)) from exc

    def close(self) -> None:
        """Nothing to close."""


class AnsweringCluster(Cluster):
    """A cluster with one broker, which answers with the bytes of one input."""

    def __init__(self, data: bytes) -> None:
        super().__init__([BROKER], Security())
        self._fuzzed: Any = _Connection(unpacked(data))

    def connection(self, _endpoint: Endpoint) -> Any:
        return self._fuzzed
