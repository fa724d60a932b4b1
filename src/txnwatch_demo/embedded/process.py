"""A server as a child process: with its own process group, its output in a file, killed when we exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from txnwatch.state.model.errors import TxnwatchError


class ServerProcess:
    """One server; `start` waits until it is ready."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = dict(env) if env is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def start(self, is_ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Starts the server and waits for it.

        Raises:
            TxnwatchError: the server ended, or was not ready in time; the message has the end of its log.
        """
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        atexit.register(self.kill)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if not self.is_running:
                raise TxnwatchError(f"{self.name} ended before it was ready: {self._last_lines()}")
            if is_ready():
                return
            time.sleep(0.05)
        self.kill()
        raise TxnwatchError(f"{self.name} was not ready within {timeout_s:.0f} s: {self._last_lines()}")

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stops the server with SIGTERM; kills it if it does not end in time."""
        if self._process is None:
            return
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """Kills the server with SIGKILL."""
        atexit.unregister(self.kill)
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Suspends the process; its connections stay open and get no answer."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes a suspended process."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _last_lines(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " | ".join(lines[-5:]) or f"no output in {self.log}"


# Free ports on the loopback interface, below the range from which the system takes ports for outgoing connections.

# A server that is stopped and started again keeps its port. No outgoing connection may get that port in between.
PORTS: Sequence[int] = range(20_000, 32_000)


def free_ports(count: int, among: Sequence[int] | None = None) -> list[int]:
    """`count` different ports that are free now, by default among `PORTS`.

    Raises:
        OSError: fewer ports are free.
    """
    among = PORTS if among is None else among
    with contextlib.ExitStack() as bound:
        found: list[int] = []
        for port in random.sample(among, len(among)):
            if _binds(bound.enter_context(socket.socket()), port):
                found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"expected {count} free ports from {min(among)} to {max(among)}, found {len(found)}")


def is_free(port: int) -> bool:
    """Whether the port is free now."""
    with socket.socket() as found:
        return _binds(found, port)


def _binds(found: socket.socket, port: int) -> bool:
    try:
        found.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True
