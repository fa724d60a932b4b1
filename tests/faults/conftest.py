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
def world(worlds: Worlds, version: str) -> FaultWorld:
    """The world of this test's version."""
    return worlds.of(version)


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results | None:
    """Where results go. None if no results are requested: then no other tool runs either."""
    path = request.config.getoption("--fault-results")
    return Results.at(path) if path is not None else None
