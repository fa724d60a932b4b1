"""A cluster whose brokers answer with given bytes, decoded by the code that decodes the answers of real brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kafka.protocol.metadata import ApiVersionsResponse

from txnwatch.state.model.errors import BrokerError, WireError
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import decode_answer
from txnwatch.streaming.client.notations import Endpoint
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
    shown = ApiVersionsResponse(finalized_features=[])
    finalized: Mapping[str, int] = MappingProxyType({})

    def __init__(self, answers: Iterator[bytes]) -> None:
        self._answers = answers
        self.asked: list[Any] = []

    def version(self, request_class: Any, highest: int | None = None) -> int:
        newest: int = request_class.max_version
        return newest if highest is None else min(newest, highest)

    def require_version(self, request_class: Any, highest: int | None = None, lowest: int = 0) -> int:
        return max(lowest, self.version(request_class, highest))

    def send(self, request: Any, _until: float = 0.0) -> None:
        request.with_header(correlation_id=1, client_id="fuzz")
        request.encode(framed=True, header=True)
        self.asked.append(request.header)

    def call(self, request: Any, timeout_s: float) -> Any:
        self.send(request)
        return self.receive(timeout_s)

    def receive(self, _timeout_s: float, _until: float = 0.0) -> Any:
        body = next(self._answers, None)
        if body is None:
            raise BrokerError("lost the broker")
        try:
            return decode_answer(self.asked.pop(0), body)
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

    @property
    def oldest_request(self) -> str:
        """The name of the oldest request under way, for example Metadata."""
        name: str = self._fuzzed.asked[0].get_response_class().name
        return name.removesuffix("Response")

    def answer_with(self, answers: Iterator[bytes]) -> None:
        """Replaces the answers that are left."""
        self._fuzzed = _Connection(answers)


def on_cluster(ask: Callable[[AnsweringCluster], object]) -> Callable[[bytes], object]:
    """Asks a cluster that answers with an input."""

    def run(data: bytes) -> object:
        return ask(AnsweringCluster(data))

    return run


def recorded(ask: Callable[[AnsweringCluster], object], answers: Mapping[str, bytes]) -> bytes:
    """The input that gives `ask` these answers, by the name of the request."""
    cluster, taken = AnsweringCluster(b""), []

    def answer() -> Iterator[bytes]:
        while True:
            taken.append(answers[cluster.oldest_request])
            yield taken[-1]

    cluster.answer_with(answer())
    ask(cluster)
    return packed(taken)
