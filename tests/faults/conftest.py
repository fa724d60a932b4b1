"""The worlds the faults happen in, one for each version of Kafka, and the file their results are kept in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from support.fault_results import Results
from support.fault_world import NODES, FaultWorld, fault_world, three_brokers
from support.servers import Clusters


class Worlds:
    """One world at a time: who asks for another version ends the one before.

    A fixture parametrised by version would be made anew whenever pytest sorts the scenarios in between.
    """

    def __init__(self, clusters: Clusters, directories: pytest.TempPathFactory) -> None:
        self._clusters = clusters
        self._directories = directories
        self._open = contextlib.ExitStack()
        self._world: FaultWorld | None = None

    def of(self, version: str) -> FaultWorld:
        """The world of a version."""
        if self._world is None or self._world.kafka.version != version:
            self.close()
            self._world = self._open.enter_context(self._start(version))
        return self._world

    def close(self) -> None:
        """Ends the world, if there is one."""
        self._open.close()
        self._world = None

    @contextlib.contextmanager
    def _start(self, version: str) -> Iterator[FaultWorld]:
        kafka = self._clusters.start("worlds", lambda: three_brokers(self._directories.mktemp("faults"), version))
        try:
            with fault_world(kafka, self._directories.mktemp("checkpoint")) as world:
                yield world
        finally:
            for node in NODES:
                kafka.broker(node).kill()  # nobody needs the data, and three orderly ends take their time
            self._clusters.end("worlds")


@pytest.fixture(scope="module")
def worlds(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Three brokers of the version asked for, watched."""
    with contextlib.closing(Worlds(clusters, tmp_path_factory)) as found:
        yield found


@pytest.fixture
def world(worlds: Worlds, version: str) -> FaultWorld:
    """The world of this test's version."""
    return worlds.of(version)


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results | None:
    """Where results go. None if no results are requested: then no other tool runs either."""
    path = request.config.getoption("--fault-results")
    return Results.at(path) if path is not None else None
