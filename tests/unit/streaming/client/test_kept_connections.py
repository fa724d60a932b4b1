"""Which connection proves that a broker has not restarted, by the finalized features of the cluster."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from txnwatch.streaming.client import cluster as module
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security

BROKER = Endpoint("a", 1)
_numbers = itertools.count()


class OpenConnection:
    """A connection to a broker of a cluster with these features."""

    finalized: Mapping[str, int] = {}

    def __init__(self, *_: Any, **__: Any) -> None:
        self.identity, self.is_open = f"connection {next(_numbers)}", True

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(module, "Connection", OpenConnection)
    found = Cluster([BROKER], Security())
    found.metadata = Metadata("cluster", {1: BROKER}, {})
    return found


FEATURES = {
    "ZooKeeper": ({}, True),
    "Kafka 3.9": ({"metadata.version": 21}, True),
    "Kafka 3.9 with unstable features": ({"metadata.version": 23}, True),
    "brokers of 4.x, and the active controller may be of 3.9": (
        {"metadata.version": 21, "transaction.version": 0, "kraft.version": 1},
        True,
    ),
    "Kafka 4.0": ({"metadata.version": 25}, False),
    "Kafka 4.4": ({"metadata.version": 33, "transaction.version": 2}, False),
}


@pytest.mark.parametrize(("features", "counts"), FEATURES.values(), ids=FEATURES)
def test_a_connection_counts_where_a_restart_may_keep_the_leader_epochs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, features: Mapping[str, int], *, counts: bool
) -> None:
    """A broker offers the requests of its own version until it has asked the active controller for something.

    So the versions of requests do not show an older controller; the finalized metadata.version excludes one.
    """
    monkeypatch.setattr(OpenConnection, "finalized", features)
    connection = cluster.node(1)
    assert cluster.connection_to_keep(1) == (connection.identity if counts else "")


def test_a_new_connection_is_another_one(cluster: Cluster) -> None:
    first = cluster.node(1)
    before = cluster.connection_to_keep(1)
    assert before == cluster.connection_to_keep(1)
    first.close()
    cluster.node(1)
    assert cluster.connection_to_keep(1) != before


def test_without_a_connection_nothing_is_the_same(cluster: Cluster) -> None:
    assert cluster.connection_to_keep(1) != cluster.connection_to_keep(1)
    assert cluster.connection_to_keep(2) != ""
