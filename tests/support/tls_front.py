"""TLS in front of a server that has none: it asks each client for a certificate, as a server with TLS does."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Coroutine
from typing import Any, Self

from support.certificates import Authority

_CHUNK = 1 << 16


class TlsFront:
    """Listens on loopback and passes on what clients send that have a certificate of the authority; a context manager.

    Attributes:
        port: where it listens.
        connections: how many connections had such a certificate.
    """

    def __init__(self, port: int, authority: Authority) -> None:
        self._target = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._context = self._context_of(authority)
        self._server: asyncio.Server | None = None
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        """Where it listens, for an HTTP client."""
        return f"https://127.0.0.1:{self.port}"

    def use(self, authority: Authority) -> None:
        """From here on it has a certificate of this authority, and accepts its clients alone; all connections end."""
        self._wait(self._end())
        self._context = self._context_of(authority)
        self._wait(self._listen())

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10.0)
        self._loop.close()

    def _context_of(self, authority: Authority) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue(f"front-{self._target}", "IP:127.0.0.1"))
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _wait(self, step: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(step, self._loop).result(10.0)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", self._target)
            await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except OSError:
        return
    finally:
        writer.close()
