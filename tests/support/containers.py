"""The servers of `TXNWATCH_TEST_SERVERS=docker`: the embedded ones, each with a container in place of its process.

Law: a test does not see the difference. Ports, settings and addresses are those of the embedded class, since the
containers share the host's network; one that was stopped or killed comes back on its port with its data. Leaving the
context removes the container, and so does the end of the interpreter: no reaper is counted on. What lies in the
files of a node is out of reach, so whoever reads or cuts them takes the embedded server in either case.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from docker.errors import DockerException
from docker.models.containers import Container
from testcontainers.core.container import DockerContainer

from support.waiting import eventually
from txnwatch.state.model.errors import TxnwatchError
from txnwatch_demo.embedded.jars import Progress
from txnwatch_demo.embedded.real_servers import READY_LINE, EmbeddedKafka, EmbeddedRedis

KAFKA_IMAGE = os.environ.get("TXNWATCH_TEST_KAFKA_IMAGE") or "apache/kafka:4.3.1"
REDIS_IMAGE = os.environ.get("TXNWATCH_TEST_REDIS_IMAGE") or "redis:7-alpine"
_STOP_S = 20
_REDIS_READY_LINE = "Ready to accept connections"
_KAFKA_LOG_DIRECTORY = Path("/tmp/kraft-combined-logs")


class ServerContainer:
    """One server in a container on the host's network; what `ServerProcess` is to the embedded servers."""

    def __init__(
        self, image: str, ready_line: str, *, command: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        self._image = image
        self._ready_line = ready_line
        self._command = list(command)
        self._env = dict(env or {})
        self._container: DockerContainer | None = None

    @property
    def is_running(self) -> bool:
        """Whether the server is there."""
        if self._container is None:
            return False
        self._wrapped.reload()
        return self._wrapped.status == "running"

    def start(self, timeout_s: float = 60.0) -> None:
        """Makes the container, or starts the one that was stopped, and waits until its server is ready.

        Raises:
            TxnwatchError: no Docker daemon, no such image, or a server that ends at once.
        """
        ready_before = self._times_ready()
        if self._container is None:
            self._create()
        else:
            self._wrapped.start()

        def is_ready() -> bool:
            if not self.is_running:
                raise TxnwatchError(f"{self._image} ended at once: {self._last_lines()}")
            return self._times_ready() > ready_before

        eventually(is_ready, timeout_s, f"{self._image} to print {self._ready_line!r}")

    def stop(self) -> None:
        """Asks the server to end, and makes it."""
        if self.is_running:
            self._wrapped.stop(timeout=_STOP_S)

    def kill(self) -> None:
        """Ends the server without asking."""
        if self.is_running:
            self._wrapped.kill()
            self._wrapped.wait()

    def remove(self) -> None:
        """Ends the server and forgets its data."""
        atexit.unregister(self.remove)
        if self._container is not None:
            self._container.stop()
            self._container = None

    @property
    def _wrapped(self) -> Container:
        assert self._container is not None
        return self._container.get_wrapped_container()

    def _create(self) -> None:
        try:
            container = DockerContainer(self._image, command=self._command or None, env=self._env)
            self._container = container.with_kwargs(network_mode="host")
            atexit.register(self.remove)
            self._container.start()
        except DockerException as exc:
            raise TxnwatchError(f"expected a Docker daemon that runs {self._image}, found: {exc}") from exc

    def _times_ready(self) -> int:
        return 0 if self._container is None else self._wrapped.logs().decode(errors="replace").count(self._ready_line)

    def _last_lines(self) -> str:
        return " | ".join(self._wrapped.logs(tail=5).decode(errors="replace").splitlines())


class ContainerRedis(EmbeddedRedis):
    """Redis in a container. A context manager."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._container = ServerContainer(
            REDIS_IMAGE, _REDIS_READY_LINE, command=["redis-server", *self.server_options]
        )

    def __exit__(self, *_: object) -> None:
        self._container.remove()

    def start(self, progress: Progress = lambda _: None) -> ContainerRedis:
        progress(f"starting {REDIS_IMAGE}")
        self._container.start()
        return self

    def stop(self) -> None:
        self._container.stop()


class ContainerKafka(EmbeddedKafka):
    """One broker in a container that takes settings as apache/kafka does, from KAFKA_*. A context manager."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        properties = self._server_properties(1)
        env = {f"KAFKA_{key.upper().replace('.', '_')}": value for key, value in properties.items()}
        env |= {"CLUSTER_ID": self.cluster_id, "KAFKA_HEAP_OPTS": f"-Xmx{self._heap}"}
        self._container = ServerContainer(KAFKA_IMAGE, READY_LINE, env=env)

    def __exit__(self, *_: object) -> None:
        self._container.remove()

    def start(self, progress: Progress = lambda _: None) -> ContainerKafka:
        progress(f"starting {KAFKA_IMAGE}")
        self._container.start()
        return self

    def stop(self) -> None:
        self._container.stop()

    def start_broker(self, node: int) -> None:
        assert node == 1
        self._container.start()

    def broker(self, node: int) -> ServerContainer:
        assert node == 1
        return self._container

    def log_directory(self, node: int) -> Path:
        """Where the broker keeps its logs inside the container: no path of this machine."""
        assert node == 1
        return _KAFKA_LOG_DIRECTORY
