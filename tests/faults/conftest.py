"""The worlds the faults happen in, one for each version of Kafka, and the file their results are kept in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from support.fault_results import Results
from support.fault_world import FaultWorld, Worlds
from support.servers import Clusters


@pytest.fixture(scope="module")
def worlds(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Three brokers of the version asked for, watched."""
    with contextlib.closing(Worlds(clusters, tmp_path_factory)) as found:
        yield found


@pytest.fixture
def way() -> str:
    """How the watch finds out about data; a test that has both is parametrised."""
    return "scanned"


@pytest.fixture
def world(worlds: Worlds, version: str, way: str) -> FaultWorld:
    """The world of this test's version and way."""
    return worlds.of(version, way)


@pytest.fixture
def results(request: pytest.FixtureRequest, way: str) -> Results | None:
    """Where results go, a file for each way. None if no results are requested: then no other tool runs either."""
    path = request.config.getoption("--fault-results")
    if path is None:
        return None
    return Results.at(path if way == "scanned" else path.with_stem(f"{path.stem}-{way.replace('_', '-')}"))
