"""A broker behind a gate: what a client sends and gets passes through, and a test can stop it at one request.

Kafka's frames are four bytes of length and as many bytes; a request begins with its api key and, after the version,
the correlation id its answer begins with. That is all the gate looks at.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest

from txnwatch_demo.embedded.real_servers import EmbeddedKafka

Act = Callable[[], bool]
METADATA, OFFSET_COMMIT, API_VERSIONS, WRITE_TXN_MARKERS = 3, 8, 18, 27
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66
_TAGS_SINCE = 9  # Metadata: its header has tagged fields, and it is sure to be asked with the ids of topics
_UNKNOWN_TOPIC = 3
_LISTENER, _NODE = "GATED", 1
_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # api key, api version, correlation id
_ANSWER = struct.Struct(">i")  # correlation id


class Gate:
    """Takes connections for a server; a context manager.

    Attributes:
        hidden: topics that Metadata answers leave out, or call unknown where they are asked for by name.
        unsupported: api keys that ApiVersions answers leave out, as brokers do that are not Apache Kafka.

    Law: every connection is served by two threads, one a direction, and ends when either end does.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._rule: tuple[int, bool, Act, threading.Event] | None = None
        self._ends: list[socket.socket] = []
        self._accepting: threading.Thread | None = None
        self.hidden: set[str] = set()
        self.unsupported: set[int] = set()

    @property
    def address(self) -> str:
        """host:port, which is also the address that the broker advertises."""
        return "{}:{}".format(*self._listener.getsockname())

    def open_to(self, server: str) -> Self:
        """From here on connections are passed on to host:port."""
        host, _, port = server.rpartition(":")
        self._target = (host, int(port))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._accepting is not None:
            self._accepting.join(10.0)
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def at_request(self, api_key: int, passes: Act) -> threading.Event:
        """Runs `passes` when the next request of this kind is here; if it returns False, the broker never gets it.

        Returns what is set once that is done.
        """
        return self._arm(api_key, passes, is_answer=False)

    def at_answer(self, api_key: int, passes: Act) -> threading.Event:
        """The same when the broker has answered the next request of this kind, before the client gets the answer."""
        return self._arm(api_key, passes, is_answer=True)

    def _arm(self, api_key: int, passes: Act, *, is_answer: bool) -> threading.Event:
        done = threading.Event()
        with self._lock:
            self._rule = (api_key, is_answer, passes, done)
        return done

    def _look(self, api_key: int, *, is_answer: bool) -> None:
        with self._lock:
            if self._rule is None or self._rule[:2] != (api_key, is_answer):
                return
            _, _, passes, done = self._rule
            self._rule = None
        does_pass = passes()
        done.set()
        if not does_pass:
            raise EOFError

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                assert self._target is not None
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self._ends += [client, server]
                asked: dict[int, tuple[int, int]] = {}
                for work, source, sink in ((self._requests, client, server), (self._answers, server, client)):
                    threading.Thread(target=_serve, args=(work, source, sink, asked), daemon=True).start()

    def _requests(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        api_key, version, correlation_id = _REQUEST.unpack_from(frame)
        asked[correlation_id] = (api_key, version)
        self._look(api_key, is_answer=False)
        return frame

    def _answers(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        (correlation_id,) = _ANSWER.unpack_from(frame)
        api_key, version = asked.pop(correlation_id, (-1, -1))
        self._look(api_key, is_answer=True)
        if api_key == API_VERSIONS and self.unsupported:
            return self._without_unsupported(frame, version)
        return self._without_hidden(frame, version) if api_key == METADATA and self.hidden else frame

    def _without_unsupported(self, frame: bytes, version: int) -> bytes:
        header = frame[: _ANSWER.size]  # without tagged fields in every version (KIP-511)
        answer = ApiVersionsResponse.decode(frame[len(header) :], version=version)
        answer.api_keys = [api for api in answer.api_keys if api.api_key not in self.unsupported]
        return header + bytes(answer.encode())

    def _without_hidden(self, frame: bytes, version: int) -> bytes:
        header = frame[: _ANSWER.size + (version >= _TAGS_SINCE)]
        request = MetadataRequest(version=version, topics=None)
        request.with_header(correlation_id=0, client_id="gate")
        answer = request.header.get_response_class().decode(frame[len(header) :])
        if len(answer.topics) > 1:
            answer.topics = [topic for topic in answer.topics if topic.name not in self.hidden]
        for topic in answer.topics:
            if topic.name in self.hidden:
                topic.error_code, topic.partitions = _UNKNOWN_TOPIC, []
        return header + bytes(answer.encode())


class GatedKafka(EmbeddedKafka):
    """One broker with a second listener, which is reached through the gate alone."""

    def __init__(
        self, directory: Path, gate: Gate, *, heap: str = "384m", properties: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, listeners={_LISTENER: "PLAINTEXT"}, heap=heap, properties=dict(properties or {}))
        self.gate = gate
        gate.open_to(self.listener(_LISTENER, _NODE))

    def _server_properties(self, node: int) -> dict[str, str]:
        properties = super()._server_properties(node)
        behind, before = self.listener(_LISTENER, node), self.gate.address
        advertised = properties["advertised.listeners"].replace(behind, before)
        return {**properties, "advertised.listeners": advertised}


def _serve(
    look: Callable[[bytes, dict[int, tuple[int, int]]], bytes],
    source: socket.socket,
    sink: socket.socket,
    asked: dict[int, tuple[int, int]],
) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            length = _read(source, _LENGTH.size)
            frame = _read(source, *_LENGTH.unpack(length))
            passed = look(frame, asked)
            sink.sendall(_LENGTH.pack(len(passed)) + passed)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _read(source: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = source.recv(min(1 << 20, size - len(parts)))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
