"""A broker that accepts connections and never answers: within one time budget, the other brokers are still asked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka.protocol.metadata import MetadataRequest

from support.bad_servers import bad_server, stays_silent
from support.topics import create_topic, unique
from txnwatch.cli.watching import why_not_reached
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import BrokerId
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security

BUDGET_S = 2.0
SILENT = BrokerId(7)


@pytest.fixture
def silent() -> Iterator[Endpoint]:
    with bad_server(stays_silent) as endpoint:
        yield endpoint


def metadata_request(connection: Connection) -> MetadataRequest:
    return MetadataRequest(version=connection.require_version(MetadataRequest, highest=12), topics=[])


def test_metadata_comes_from_another_broker_in_the_same_budget(cluster: Cluster, silent: Endpoint) -> None:
    with closing(Cluster([silent, *cluster.bootstrap], Security())) as asked, asked.budget(BUDGET_S):
        assert asked.refresh().brokers


def test_the_leader_of_a_partition_is_read_in_the_same_budget(cluster: Cluster, silent: Endpoint) -> None:
    (partition,) = create_topic(cluster, unique("beside-silent"))
    with closing(Cluster(cluster.bootstrap, Security())) as asked, asked.budget(BUDGET_S):
        asked.known.brokers[SILENT] = silent
        answers = asked.ask(dict.fromkeys(asked.known.brokers, metadata_request), BUDGET_S)
        assert isinstance(answers[SILENT], BrokerError)
        reading = ClusterAdmin(asked).read_partitions([partition])[partition]
    assert reading.problem is None, reading.problem


def test_the_reason_why_no_broker_is_reached_comes_in_time_and_names_each_broker(silent: Endpoint) -> None:
    gone = Endpoint("127.0.0.1", 1)
    begun_s = time.monotonic()
    why = why_not_reached([silent, gone], Security()) or ""
    assert time.monotonic() - begun_s < 6.0
    assert f"{silent}: no answer in time" in why, why
    assert str(gone) in why
    assert "refused" in why


def test_there_is_no_reason_if_one_broker_answers(cluster: Cluster, silent: Endpoint) -> None:
    assert why_not_reached([silent, *cluster.bootstrap], Security()) is None
