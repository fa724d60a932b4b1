"""Which connection proves that a broker has not restarted, by the versions of the requests that the broker offers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest

from txnwatch.streaming.client import cluster as module
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security

BROKER = Endpoint("a", 1)
_numbers = itertools.count()


class OpenConnection:
    """A connection to a broker whose active controller has a version."""

    features: int | None = 1

    def __init__(self, *_: Any, **__: Any) -> None:
        self.identity, self.is_open = f"connection {next(_numbers)}", True

    def version(self, request: type) -> int | None:
        assert request is UpdateFeaturesRequest
        return self.features

    def close(self) -> None:
        self.is_open = False


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(module, "Connection", OpenConnection)
    found = Cluster([BROKER], Security())
    found.metadata = Metadata("cluster", {1: BROKER}, {})
    return found


@pytest.mark.parametrize(("features", "counts"), [(None, True), (0, True), (1, True), (2, False), (3, False)])
def test_a_connection_counts_where_a_restart_may_keep_the_leader_epochs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, features: int | None, *, counts: bool
) -> None:
    """UpdateFeatures has version 2 since Kafka 4.0; brokers with ZooKeeper do not have it at all."""
    monkeypatch.setattr(OpenConnection, "features", features)
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
