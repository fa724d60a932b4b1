"""The real servers of a test session: a pytest plugin, registered by tests/conftest.py.

Law: at most one Kafka cluster of a worker runs at a time, so that the suite fits a small machine. A cluster starts
when a test first asks for it; when a test asks for another one, it is stopped and keeps its data and ports; when a test
asks for it again it comes back as it was. Tests do not share topics or transactional ids, so none notices.
Each worker has servers and ports of its own.
`TXNWATCH_TEST_SERVERS` sets what `kafka` and `redis_server` run on; every other cluster is embedded.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from support.raw_producer import RawProducer
from support.registry import SchemaRegistry
from support.waiting import eventually
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.embedded import real_servers
from txnwatch_demo.embedded.real_servers import SHORT_LIVED, EmbeddedKafka, EmbeddedRedis
from txnwatch_demo.late_write import set_verification

_SERVERS = "TXNWATCH_TEST_SERVERS"
_THREE_REPLICAS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}


class Clusters:
    """Every Kafka cluster of the session, by the name of its fixture; one of them may be running."""

    def __init__(self) -> None:
        self._known: dict[str, EmbeddedKafka] = {}
        self._running: str | None = None

    def start(self, name: str, make: Callable[[], EmbeddedKafka]) -> EmbeddedKafka:
        """Starts a new cluster, once what runs has stopped."""
        self._stop_running()
        kafka = self._known[name] = make()
        self._running = name
        return kafka.start()

    def bring_back(self, name: str) -> None:
        """Lets a cluster of this name run again, if there is one and another has taken its place."""
        if name in self._known and name != self._running:
            self._stop_running()
            self._running = name
            self._known[name].start()

    def end(self, name: str) -> None:
        """Stops a cluster for good."""
        self._known.pop(name).stop()
        if self._running == name:
            self._running = None

    def _stop_running(self) -> None:
        if self._running is not None:
            self._known[self._running].stop()
            self._running = None


_CLUSTERS = Clusters()


def on_docker(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `kafka` and `redis_server` are containers.

    Raises:
        pytest.UsageError: the variable has another value.
    """
    chosen = environ.get(_SERVERS) or "embedded"
    if chosen not in {"embedded", "docker"}:
        raise pytest.UsageError(f"{_SERVERS}: expected embedded or docker, found {chosen!r}")
    return chosen == "docker"


def ports_of_worker(environ: Mapping[str, str] = os.environ) -> Sequence[int]:
    """The ports of one worker of pytest-xdist: while its cluster is stopped, no other worker takes a port of it."""
    worker = int(environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    return real_servers.PORTS[worker :: int(environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]


def pytest_configure() -> None:
    """An unknown value ends the session before any test."""
    on_docker()
    real_servers.PORTS = ports_of_worker()
    EmbeddedKafka.broker_options = SHORT_LIVED


def pytest_report_header() -> str:
    """What the servers run on, and from which images."""
    if not on_docker():
        return "servers: embedded"
    from support.containers import KAFKA_IMAGE, REDIS_IMAGE

    return f"servers: docker for kafka ({KAFKA_IMAGE}) and redis_server ({REDIS_IMAGE}), embedded for the rest"


def _one_broker(directory: Path) -> EmbeddedKafka:
    if not on_docker():
        return EmbeddedKafka(directory)
    from support.containers import ContainerKafka

    return ContainerKafka(directory)


def _redis(directory: Path) -> EmbeddedRedis:
    if not on_docker():
        return EmbeddedRedis(directory)
    from support.containers import ContainerRedis

    return ContainerRedis(directory)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the same cluster follow each other, so that it starts once; files without a cluster are the last.

    The files with three brokers, one unit, are the first, because they take the longest. What is left when a worker has
    nothing more to do is short.
    """
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for item in items:
        names[item.path].update(getattr(item, "fixturenames", ()))
    places = {path: ("clusters" not in found, "kafka" in found, "kafka3" not in found) for path, found in names.items()}
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture: the cluster a test needs may have been stopped for another one."""
    for name in getattr(item, "fixturenames", ()):
        _CLUSTERS.bring_back(name)


@pytest.fixture(scope="session")
def clusters() -> Clusters:
    """For fixtures that start a cluster of their own."""
    return _CLUSTERS


@pytest.fixture(scope="session")
def kafka(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One broker that does not verify transactional writes, so that a raw producer can make faults."""
    with _one_broker(tmp_path_factory.mktemp("kafka")) as one_broker:
        started = clusters.start("kafka", lambda: one_broker)
        set_verification(started.bootstrap_servers, [1], enabled=False)
        create_coordinators(started)
        yield started
        clusters.end("kafka")


@pytest.fixture(scope="session")
def kafka3(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """Three brokers, three replicas by default; unclean election is a topic's own choice. Node 1 is the controller."""
    directory = tmp_path_factory.mktemp("kafka3")
    started = clusters.start("kafka3", lambda: EmbeddedKafka(directory, brokers=3, properties=_THREE_REPLICAS))
    create_coordinators(started)
    yield started
    clusters.end("kafka3")


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A Redis; who stops it starts it again."""
    with _redis(tmp_path_factory.mktemp("redis")) as server:
        yield server.start()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A schema registry that nobody stops."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as started:
        yield started


@pytest.fixture
def cluster(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    """Fresh connections to `kafka`."""
    found = connect(kafka)
    yield found
    found.close()


def create_coordinators(kafka: EmbeddedKafka) -> None:
    """`__transaction_state` is made when somebody first looks for a coordinator; here, not in whose test runs first."""
    with contextlib.closing(connect(kafka)) as found:
        RawProducer(found, "the-first-id").init()


def whole(kafka: EmbeddedKafka) -> None:
    """Starts the brokers that a test has ended, and waits until each broker knows all of them."""
    servers = kafka.bootstrap_servers.split(",")
    for node in range(1, 1 + len(servers)):
        if not kafka.broker(node).is_running:
            kafka.start_broker(node)

    def is_whole() -> bool:
        return all(len(found.metadata_from(endpoint).brokers) == len(servers) for endpoint in found.bootstrap)

    with contextlib.closing(connect(kafka)) as found:
        eventually(is_whole, 30.0, "every broker to know the others")


def connect(kafka: EmbeddedKafka, *, timeout_s: float = 5.0) -> Cluster:
    """Connections to every broker of a cluster."""
    endpoints = [Endpoint.parse(text) for text in kafka.bootstrap_servers.split(",")]
    return Cluster(endpoints, Security(), timeout_s=timeout_s)
