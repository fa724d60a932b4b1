"""The worlds the faults happen in, one for each version of Kafka, and the file their results are kept in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.fault_results import Results
from support.fault_world import NODES, World, fault_world, three_brokers
from support.servers import Clusters


@pytest.fixture(scope="module")
def world(
    request: pytest.FixtureRequest, clusters: Clusters, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Three brokers of the version asked for, watched."""
    version: str = request.param
    kafka = clusters.start("world", lambda: three_brokers(tmp_path_factory.mktemp("faults"), version))
    with fault_world(kafka, tmp_path_factory.mktemp("checkpoint")) as started:
        yield started
    for node in NODES:
        kafka.broker(node).kill()  # nobody needs the data, and three orderly ends take their time
    clusters.end("world")


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results | None:
    """Where results go, None if they are not asked for: then nobody else is asked what they say either."""
    path = request.config.getoption("--fault-results")
    return Results.at(path) if path is not None else None
