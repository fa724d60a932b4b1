"""How long a cluster waits for one broker, and when it leaves a broker alone."""

from __future__ import annotations

from typing import Any

import pytest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import BrokerId
from txnwatch.streaming.client import cluster as cluster_module
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security

BROKER, NODE = Endpoint("a", 1), BrokerId(1)
BUDGET_S, PATIENCE_S = 2.0, 5.0


class SilentConnection:
    """Takes requests and never answers; records how long it was given."""

    given_s: list[float]

    def __init__(self, endpoint: Endpoint, *_: Any, **__: Any) -> None:
        self.endpoint, self.throttled_s, self.is_open = endpoint, 0.0, True

    def send(self, *_: Any) -> None:
        """Takes it."""

    def call(self, _request: Any, timeout_s: float) -> Any:
        return self.receive(timeout_s)

    def receive(self, patience_s: float, _until: float = 0.0) -> Any:
        type(self).given_s.append(patience_s)
        self.is_open = False
        raise BrokerError("no answer in time")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    SilentConnection.given_s = []
    monkeypatch.setattr(cluster_module, "Connection", SilentConnection)
    made = Cluster([BROKER], Security(), timeout_s=PATIENCE_S)
    made.metadata = Metadata("cluster", {NODE: BROKER}, {})
    return made


def call(cluster: Cluster) -> None:
    with pytest.raises(BrokerError, match="no answer in time"):
        cluster.call(cluster.connection(BROKER), object())


def ask(cluster: Cluster) -> None:
    assert "no answer in time" in str(cluster.ask({NODE: lambda _: object()}, PATIENCE_S)[NODE])


@pytest.mark.parametrize("request_", [call, ask])
def test_one_broker_has_at_most_half_of_the_budget_that_is_left(cluster: Cluster, request_: Any) -> None:
    with cluster.budget(BUDGET_S):
        request_(cluster)
    (given_s,) = SilentConnection.given_s
    assert BUDGET_S / 4 < given_s <= BUDGET_S / 2


@pytest.mark.parametrize("request_", [call, ask])
def test_a_small_rest_of_the_budget_is_not_halved(cluster: Cluster, request_: Any) -> None:
    """A broker that is slow for a moment would not be heard, and would get a pause."""
    rest_s = cluster_module.LEAST_PATIENCE_S
    with cluster.budget(rest_s):
        request_(cluster)
    (given_s,) = SilentConnection.given_s
    assert rest_s / 2 < given_s <= rest_s


@pytest.mark.parametrize("request_", [call, ask])
def test_without_a_budget_the_whole_timeout_counts(cluster: Cluster, request_: Any) -> None:
    request_(cluster)
    assert SilentConnection.given_s == [PATIENCE_S]


@pytest.mark.parametrize("request_", [call, ask])
def test_a_broker_that_did_not_answer_is_left_alone_for_a_moment(cluster: Cluster, request_: Any) -> None:
    with cluster.budget(BUDGET_S):
        request_(cluster)
    with pytest.raises(BrokerError, match="failed a moment ago: no answer in time"):
        cluster.connection(BROKER)


def test_without_a_budget_a_call_that_failed_gives_no_pause(cluster: Cluster) -> None:
    """A marker is written by a call, and what it did is read at once, from the same broker."""
    call(cluster)
    assert cluster.connection(BROKER).is_open
