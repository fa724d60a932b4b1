"""A client of the page without a browser: requests, and a stream that is read event by event."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from txnwatch.page.picture import Picture


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer to a request; `text` is not compressed."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def get(url: str, path: str, client: str = "127.0.0.1", method: str = "GET", **headers: str) -> HttpAnswer:
    """The answer; header names with `_` for `-`."""
    at = urlsplit(url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=10.0, source_address=(client, 0))
    with closing(connection):
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return HttpAnswer(answer.status, answer.headers, answer.read().decode())


class UnpackedLines:
    """The lines of a compressed stream; `received` counts its bytes, `is_whole` is whether its checksum was right."""

    def __init__(self, raw: Any) -> None:
        self._raw, self._packed, self._plain = raw, zlib.decompressobj(31), b""
        self.received = 0
        while raw.readline().strip():
            pass

    @property
    def is_whole(self) -> bool:
        return self._packed.eof

    def readline(self) -> bytes:
        while b"\n" not in self._plain:
            size = int(self._raw.readline(), 16)
            if not size:
                return b""
            chunk = self._raw.read(size)
            self._raw.readline()
            self.received += size
            self._plain += self._packed.decompress(chunk)
        line, _, self._plain = self._plain.partition(b"\n")
        return line + b"\n"


@dataclass(slots=True)
class Stream:
    """An open stream; iterating gives (event, data) until its last chunk, and blocks for at most 10 s."""

    connection: socket.socket
    status: int
    lines: Any

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        kind, data = "", ""
        for raw in iter(self.lines.readline, b""):
            if raw == b"0\r\n":
                return
            line = raw.decode().rstrip("\r\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                data = line.removeprefix("data: ")
            elif not line and data:
                yield kind, json.loads(data)
                kind, data = "", ""

    def until(self, wanted: str) -> Any:
        """The data of the next event of this kind."""
        return next(data for kind, data in self if kind == wanted)


@contextlib.contextmanager
def a_stream(
    url: str, client: str = "127.0.0.1", path: str = "/api/v1/stream", *, is_packed: bool = False
) -> Iterator[Stream]:
    """An open stream; a browser takes it compressed."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname or "", at.port or 0), 10.0, source_address=(client, 0)) as connection:
        accepts = "Accept-Encoding: gzip, deflate, br\r\n" if is_packed else ""
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{accepts}\r\n".encode())
        with connection.makefile("rb") as lines:
            status = int(lines.readline().split()[1])
            yield Stream(connection, status, UnpackedLines(lines) if is_packed else lines)


def applied(before: Picture, difference: Mapping[str, Any]) -> Picture:
    """The next picture, as the browser makes it."""
    gone = difference["gone"]
    kept = {
        section: {key: value for key, value in entries.items() if key not in gone.get(section, ())}
        for section, entries in before.items()
    }
    return {section: {**entries, **difference["set"].get(section, {})} for section, entries in kept.items()}
