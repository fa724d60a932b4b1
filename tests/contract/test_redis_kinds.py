"""The Redis mirror with Sentinel and with Redis Cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from support.incidents import an_event, id_of
from support.mirror_use import is_shown, use_everything
from support.redis_servers import PASSWORD, RedisCluster, WithSentinel
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.doctor import Health, check_redis
from txnwatch.sinks.delivery.redis_sink import RedisMirror, prefix_of
from txnwatch.sinks.delivery.redis_views import COMMANDS, refused_commands
from txnwatch.state.model.errors import SinkError


@pytest.fixture(scope="module")
def sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithSentinel]:
    with_sentinel = WithSentinel(tmp_path_factory.mktemp("sentinel"))
    yield with_sentinel
    with_sentinel.stop()


@pytest.fixture(scope="module")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    nodes = RedisCluster(tmp_path_factory.mktemp("redis-cluster"))
    yield nodes
    nodes.stop()


def test_the_mirror_follows_the_primary_that_sentinel_names(sentinel: WithSentinel) -> None:
    cluster_id = unique("cluster")
    with closing(RedisMirror(sentinel.url, cluster_id)) as mirror:
        assert PASSWORD not in mirror.name
        use_everything(mirror, cluster_id)
        assert refused_commands(sentinel.url) == []
        is_shown(sentinel.url, cluster_id)
        with sentinel.primary.client(PASSWORD) as client:
            client.execute_command("WAIT", 1, 2_000)
        sentinel.fail_over()

        def delivers() -> bool:
            try:
                mirror.deliver([an_event("after", cluster_id=cluster_id)])
            except SinkError:
                return False
            return True

        eventually(delivers, 20.0, "a delivery to the new primary")
        with sentinel.replica.client(PASSWORD) as client:
            assert client.zscore(f"{prefix_of(cluster_id)}incidents", id_of("after")) is not None


def test_all_keys_of_a_kafka_cluster_are_on_one_node_of_a_redis_cluster(redis_cluster: RedisCluster) -> None:
    used: set[int] = set()
    for number in range(12):
        cluster_id = f"{unique('cluster')}-{number}"
        with closing(RedisMirror(redis_cluster.url, cluster_id)) as mirror:
            use_everything(mirror, cluster_id)
        having = [any(cluster_id in key for key in keys) for keys in redis_cluster.keys_of_nodes()]
        assert having.count(True) == 1
        used.add(having.index(True))
        is_shown(redis_cluster.url, cluster_id)
    assert used == {0, 1}, "different clusters are on different nodes"
    assert refused_commands(redis_cluster.url) == []
    (row,) = [check_redis(redis_cluster.url)]
    assert (row.status, row.detail) == (Health.OK, f"{len(COMMANDS)} commands work")
