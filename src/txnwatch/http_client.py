"""One HTTP request: one connection, one deadline for everything, no redirect, no proxy.

The library h11 has the protocol; the loop here gives every read and write the time that is left, so a server that sends
one byte now and then does not hold its thread. `request` is for who needs the status, and `read` for who needs the
whole body, which has a bound before and after it is uncompressed.
"""

from __future__ import annotations

import contextlib
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, socket
from typing import Final, TypeVar
from urllib.parse import urlsplit

import h11

from txnwatch.state.model.errors import ConfigError, SinkError
from txnwatch.state.text import is_host_name, printable

TIMEOUT_S: Final = 5.0
_READ: Final = 16 * 1024
_MOST_HEADERS: Final = 64 * 1024
_MOST_TEXT: Final = 200  # of an answer's body, for a message
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_GZIP: Final = 16 + zlib.MAX_WBITS
_OK: Final = 200
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class Address:
    """A URL that requests can go to; `shown` has no part that can be a secret."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_plain(self) -> bool:
        """Whether anybody on the way can read a request."""
        return self.scheme == "http" and self.host not in _LOOPBACK

    @property
    def shown(self) -> str:
        """The host and the port: a path or a query can be a secret, as in the web hooks of chat systems."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def below(self, path: str) -> Address:
        """The address of a path below this one."""
        return Address(self.scheme, self.host, self.port, self.path.rstrip("/") + path)


def parse_address(url: str) -> Address:
    """The parts of a URL.

    Raises:
        ValueError: it is not a URL for requests. The message has no part of it.
    """
    rule = "expected https://host:port/path, without a user, a fragment and blanks"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(rule) from None
    host, is_web = parts.hostname or "", parts.scheme in _PORTS
    is_whole = url.isascii() and url.isprintable() and " " not in url and not parts.fragment
    if not is_web or not is_whole or "@" in parts.netloc or not is_host_name(host) or port == 0:
        raise ValueError(rule)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], path)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its headers by lower-case name, and the beginning of its body."""

    status: int
    headers: Mapping[str, str]
    text: str = ""


@dataclass(frozen=True, slots=True)
class CertificateOfClient:
    """What shows a server who asks: a certificate and its key, in PEM, without a password."""

    cert_file: Path
    key_file: Path


class HttpClient:
    """Sends requests to one server.

    Args:
        address: the server, and the path of its requests.
        ca_file: certificates of authorities to trust instead of the system's.
        own: the certificate of this client; None if the server asks for none.

    The files are read again for each connection, so a renewed one needs no restart.
    """

    def __init__(self, address: Address, ca_file: Path | None = None, own: CertificateOfClient | None = None) -> None:
        self.address = address
        self._ca_file, self._own = ca_file, own
        self._context: tuple[object, ssl.SSLContext] | None = None

    def check(self) -> None:
        """Checks the files.

        Raises:
            ConfigError: one cannot be read, or has no certificate.
        """
        try:
            self._tls()
        except (OSError, ssl.SSLError) as exc:
            files = f"ca_file {self._ca_file}"
            if self._own is not None:
                files += f", cert_file {self._own.cert_file}, key_file {self._own.key_file}"
            raise ConfigError(f"{files}: expected certificates in PEM, found: {exc}") from exc

    def request(
        self, method: str, headers: Sequence[tuple[str, str]], body: bytes = b"", timeout_s: float = TIMEOUT_S
    ) -> Reply:
        """Sends one request, and returns the answer.

        Raises:
            SinkError: there is no whole answer within the timeout. The request may have arrived.
        """
        return self._within(
            timeout_s, lambda connection, until: _exchange(connection, self._events(method, headers, body), until)
        )

    def read(
        self, headers: Sequence[tuple[str, str]], most: int, timeout_s: float = TIMEOUT_S
    ) -> tuple[int, bytes | None]:
        """Sends a GET, and returns the status, and the whole body if it is 200.

        Raises:
            SinkError: there is no whole answer within the timeout, or it has more than `most` bytes.
        """
        events = self._events("GET", [("Accept-Encoding", "gzip"), *headers], b"")
        return self._within(timeout_s, lambda connection, until: _whole(connection, events, until, most))

    def _within(self, timeout_s: float, ask: Callable[[socket, float], _Found]) -> _Found:
        """Asks over a new connection, until the deadline."""
        deadline = time.monotonic() + timeout_s
        try:
            with self._connected(deadline) as connection:
                return ask(connection, deadline)
        except TimeoutError as exc:
            raise SinkError(f"{self.address.shown} has not answered within {timeout_s:g} s") from exc
        except (OSError, h11.ProtocolError, zlib.error) as exc:
            raise SinkError(f"{self.address.shown}: {printable(str(exc)[:200])}") from exc

    def reach(self, timeout_s: float = TIMEOUT_S) -> None:
        """Makes a connection, and sends no request.

        Raises:
            SinkError: it cannot be made.
        """
        try:
            self._connected(time.monotonic() + timeout_s).close()
        except OSError as exc:
            raise SinkError(f"{self.address.shown}: {printable(str(exc)[:200])}") from exc

    def _events(self, method: str, headers: Sequence[tuple[str, str]], body: bytes) -> list[h11.Event]:
        address = self.address
        default = address.port == _PORTS[address.scheme]
        host = address.shown.removesuffix(f":{address.port}") if default else address.shown
        given = [("Host", host), ("Connection", "close"), ("Content-Length", str(len(body))), *headers]
        events: list[h11.Event] = [h11.Request(method=method, target=address.path, headers=given)]
        return [*events, h11.Data(data=body), h11.EndOfMessage()] if body else [*events, h11.EndOfMessage()]

    def _connected(self, deadline: float) -> socket:
        plain = create_connection((self.address.host, self.address.port), _left(deadline))
        if self.address.scheme == "http":
            return plain
        try:
            plain.settimeout(_left(deadline))
            return self._tls().wrap_socket(plain, server_hostname=self.address.host)
        except BaseException:
            plain.close()
            raise

    def _tls(self) -> ssl.SSLContext:
        files = (self._ca_file, *((self._own.cert_file, self._own.key_file) if self._own is not None else ()))
        stamp = [file.stat().st_mtime_ns for file in files if file is not None]
        if self._context is None or self._context[0] != stamp:
            context = ssl.create_default_context(cafile=self._ca_file)
            if self._own is not None:
                context.load_cert_chain(self._own.cert_file, self._own.key_file, password="")
            self._context = (stamp, context)
        return self._context[1]


def _exchange(connection: socket, events: Sequence[h11.Event], deadline: float) -> Reply:
    """Sends the events of a request, and reads the answer. Once its status is known, the rest of it is only text."""
    protocol, answer = _answer(connection, events, deadline)
    text = b""
    with contextlib.suppress(OSError, h11.ProtocolError):
        while len(text) < _MOST_TEXT and isinstance(part := _next(connection, protocol, deadline), h11.Data):
            text += part.data
    headers = {name.decode("ascii"): value.decode("latin-1") for name, value in answer.headers}
    return Reply(answer.status_code, headers, printable(text[:_MOST_TEXT].decode(errors="replace")))


def _whole(connection: socket, events: Sequence[h11.Event], deadline: float, most: int) -> tuple[int, bytes | None]:
    """Sends the events of a request, and reads the answer with its body, if its status is 200."""
    protocol, answer = _answer(connection, events, deadline)
    if answer.status_code != _OK:
        return answer.status_code, None
    is_compressed = (b"content-encoding", b"gzip") in answer.headers
    inflating = zlib.decompressobj(_GZIP) if is_compressed else None
    body = bytearray()
    for part in _parts(connection, protocol, deadline):
        body += part if inflating is None else inflating.decompress(part, most + 1 - len(body))
        if len(body) > most or (inflating is not None and inflating.unconsumed_tail):
            raise h11.RemoteProtocolError(f"expected an answer of at most {most} bytes, found more")
    if inflating is not None and not inflating.eof:
        raise h11.RemoteProtocolError("expected a whole answer, found a part of it")
    return answer.status_code, bytes(body)


def _parts(connection: socket, protocol: h11.Connection, deadline: float) -> Iterator[bytes]:
    while isinstance(part := _next(connection, protocol, deadline), h11.Data):
        yield bytes(part.data)
    if not isinstance(part, h11.EndOfMessage):
        raise h11.RemoteProtocolError("expected a whole answer, found a part of it")


def _answer(connection: socket, events: Sequence[h11.Event], deadline: float) -> tuple[h11.Connection, h11.Response]:
    """Sends the events of a request, and reads the answer up to its body."""
    protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEADERS)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before the end of the body
        for event in events:
            connection.settimeout(_left(deadline))
            connection.sendall(protocol.send(event) or b"")
    while not isinstance(answer := _next(connection, protocol, deadline), h11.Response):
        if not isinstance(answer, h11.InformationalResponse):
            raise h11.RemoteProtocolError("the connection was closed without an answer")
    return protocol, answer


def _next(connection: socket, protocol: h11.Connection, deadline: float) -> object:
    while (event := protocol.next_event()) is h11.NEED_DATA:
        connection.settimeout(_left(deadline))
        data = connection.recv(_READ)
        if not data and protocol.their_state is h11.SEND_RESPONSE:
            raise h11.RemoteProtocolError("the connection was closed without an answer")
        protocol.receive_data(data)
    return event


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
