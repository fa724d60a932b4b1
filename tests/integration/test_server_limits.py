"""The HTTP port cannot stop the watch: whatever its clients do, the process has descriptors and threads left."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from support.certificates import Authority
from support.held_connections import CLIENTS, PROBES, held, probes_answered, silent
from support.metrics_process import MetricsProcess, metrics_process

DESCRIPTORS = 256
MOST = 128  # connections at a time
REFUSED = 1  # a connection that is about to be closed
DEADLINE_S = 10.0
ANSWER_BYTES = 32 << 20  # more than the buffers of a connection
TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.pem\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    found = Authority(tmp_path_factory.mktemp("certificates"), "ca").create()
    found.issue("server", "IP:127.0.0.1")
    return found


def web_config(authority: Authority) -> Path:
    path = authority.directory / "web.yml"
    path.write_text(TLS)
    return path


def scraped(process: MetricsProcess, client: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> str:
    """The answer to a scrape from an address of this machine."""
    address: dict[str, object] = {"port": process.port, "timeout": 10.0, "source_address": (client, 0)}
    kind = http.client.HTTPConnection if tls is None else http.client.HTTPSConnection
    with closing(kind("127.0.0.1", **address, **({} if tls is None else {"context": tls}))) as connection:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()


def eventually(is_true: Callable[[], bool], within_s: float = 5.0) -> bool:
    until = time.monotonic() + within_s
    while not is_true() and time.monotonic() < until:
        time.sleep(0.1)
    return is_true()


def connected(process: MetricsProcess, client: str, count: int, stack: ExitStack) -> list[socket.socket]:
    """Connections from an address of this machine, which send nothing."""
    server = ("127.0.0.1", process.port)
    return [
        stack.enter_context(socket.create_connection(server, 10.0, source_address=(client, 0))) for _ in range(count)
    ]


def test_a_client_cannot_take_the_descriptors_of_the_process() -> None:
    with metrics_process(DESCRIPTORS, None) as process, ExitStack() as flood:
        before = process.at_rest()
        connected(process, "127.0.0.1", 2 * DESCRIPTORS, flood)
        during = process.in_use(wanted=40)
        assert during.opened == 40, "the process can still reach its brokers"
        assert before.descriptors < during.descriptors <= before.descriptors + MOST + REFUSED
        assert during.threads <= before.threads + MOST
        assert "txnwatch_up" in scraped(process, "127.0.0.2"), "the kubelet and Prometheus have other addresses"
        flood.close()
        assert eventually(lambda: process.in_use().descriptors == before.descriptors)
        refused = re.search(r"^txnwatch_refused_connections_total (\S+)$", scraped(process), re.MULTILINE)
        assert refused is not None
        assert float(refused[1]) == 2 * DESCRIPTORS - MOST + 1, "the scrape took one more place"


def test_many_clients_together_cannot_take_them_either() -> None:
    with metrics_process(DESCRIPTORS, None) as process, ExitStack() as flood:
        before = process.at_rest()
        for number in range(12):
            connected(process, f"127.0.1.{number + 1}", 32, flood)
        during = process.in_use(wanted=40)
        assert during.opened == 40
        assert during.descriptors <= before.descriptors + MOST + REFUSED
        assert during.threads <= before.threads + MOST
        flood.close()
        assert eventually(lambda: process.in_use().descriptors == before.descriptors)
        assert "txnwatch_up" in scraped(process)


def test_the_connection_that_has_waited_longest_is_closed_at_once_for_a_new_one() -> None:
    with metrics_process(DESCRIPTORS, None) as process, ExitStack() as flood:
        longest, *_ = connected(process, "127.0.0.1", MOST, flood)
        (new,) = connected(process, "127.0.0.1", 1, flood)
        since = time.monotonic()
        with contextlib.suppress(ConnectionError):
            assert longest.recv(1) == b""
        assert time.monotonic() - since < 2.0
        new.sendall(REQUEST)
        assert new.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize(("addresses", "of_each"), [(4, 32), (1, 400), (100, 4)])
def test_a_probe_is_answered_while_others_hold_connections(addresses: int, of_each: int, kind: str) -> None:
    assert probes_answered(addresses, of_each, CLIENTS[kind]) == PROBES


def test_a_probe_is_answered_while_others_make_no_handshake(authority: Authority) -> None:
    tls = ssl.create_default_context(cafile=authority.certificate)
    with metrics_process(2 * DESCRIPTORS, web_config(authority)) as process, held(process, 4, 100, silent):
        assert "txnwatch_up" in scraped(process, "127.0.9.9", tls)


def test_a_request_with_two_lengths_is_answered_and_its_connection_closed() -> None:
    """A proxy that counts by Content-Length takes the second request for the body of the first."""
    smuggled = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
    lengths = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(smuggled))
    with metrics_process(DESCRIPTORS, None) as process, ExitStack() as clients:
        (client,) = connected(process, "127.0.0.1", 1, clients)
        client.settimeout(5.0)
        client.sendall(b"GET /-/ready HTTP/1.1\r\nHost: localhost\r\n" + lengths + smuggled)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := client.recv(4096):
                answer += part
    head, _, _ = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 503"))
    assert b"connection: close" in head.lower().split(b"\r\n")
    assert answer.count(b"HTTP/1.1") == 1


REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEADERS = b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 40
CLIENT_HELLO = b"\x16\x03\x01\x02\x00" + b"\x01" * 512


def slow_request(client: socket.socket) -> Iterator[None]:
    """Sends a header, byte after byte."""
    for byte in HEADERS:
        client.send(bytes([byte]))
        yield


def slow_handshake(client: socket.socket) -> Iterator[None]:
    """Sends the beginning of a handshake, byte after byte."""
    for byte in CLIENT_HELLO:
        client.send(bytes([byte]))
        yield


def slow_reader(client: socket.socket) -> Iterator[None]:
    """Reads the answer in small pieces."""
    client.sendall(REQUEST)
    while client.recv(16):
        yield


def keep_on(step: Iterator[None], ended: threading.Event) -> None:
    """Makes a step of a slow client every half second, until the server ends the connection."""
    with contextlib.suppress(OSError):
        for _ in step:
            if ended.wait(0.5):
                return


def slow_clients(process: MetricsProcess, tls: ssl.SSLContext | None, stack: ExitStack) -> list[Iterator[None]]:
    """A client of each kind, all connected."""
    if tls is None:
        reading, writing = connected(process, "127.0.0.1", 2, stack)
        return [slow_reader(reading), slow_request(writing)]
    *begun, beginning = connected(process, "127.0.0.1", 3, stack)
    reading, writing = (stack.enter_context(tls.wrap_socket(one, server_hostname="127.0.0.1")) for one in begun)
    return [slow_reader(reading), slow_request(writing), slow_handshake(beginning)]


def test_a_connection_has_one_deadline(authority: Authority, capfd: pytest.CaptureFixture[str]) -> None:
    tls = ssl.create_default_context(cafile=authority.certificate)
    with (
        metrics_process(DESCRIPTORS, None, ANSWER_BYTES) as plain,
        metrics_process(DESCRIPTORS, web_config(authority), ANSWER_BYTES) as secured,
        ExitStack() as clients,
    ):
        servers: tuple[tuple[MetricsProcess, ssl.SSLContext | None], ...] = ((plain, None), (secured, tls))
        before = [process.at_rest() for process, _ in servers]
        since, ended = time.monotonic(), threading.Event()
        begun = [slow_clients(process, context, clients) for process, context in servers]
        for step in (step for steps in begun for step in steps):
            thread = threading.Thread(target=keep_on, args=(step, ended))
            clients.callback(thread.join)
            thread.start()
        clients.callback(ended.set)
        for (process, _), steps, at_first in zip(servers, begun, before, strict=True):
            left_s = since + DEADLINE_S - 1.0 - time.monotonic()
            expected = at_first.descriptors + len(steps)
            assert eventually(lambda: process.in_use().descriptors >= expected, left_s), (at_first, process.in_use())  # noqa: B023
        for (process, context), at_first in zip(servers, before, strict=True):
            left_s = since + DEADLINE_S + 3.0 - time.monotonic()
            assert eventually(lambda: process.in_use().descriptors == at_first.descriptors, left_s), context  # noqa: B023
            assert "txnwatch_up" in scraped(process, tls=context)
            assert eventually(lambda: process.in_use().threads <= at_first.threads + 1), "one thread collects"  # noqa: B023
    of_the_server = [line for line in capfd.readouterr().err.splitlines() if "|rdkafka#" not in line]
    assert of_the_server == [], "a client cannot fill the log"


def test_a_request_is_short() -> None:
    long = b"".join(b"X-%d: %s\r\n" % (number, b"a" * 60_000) for number in range(90))
    with metrics_process(DESCRIPTORS, None) as process, ExitStack() as clients:
        (client,) = connected(process, "127.0.0.1", 1, clients)
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(b"GET /metrics HTTP/1.1\r\n" + long + b"\r\n")
            answer = client.recv(100)
        assert b" 200 " not in answer
        assert "txnwatch_up" in scraped(process)
