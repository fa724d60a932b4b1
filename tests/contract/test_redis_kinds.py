"""The Redis mirror with Sentinel, with Redis Cluster, and as a user with the least rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from support.heartbeats import a_heartbeat
from support.incidents import a_life, an_event, id_of
from support.redis_servers import RedisCluster, WithSentinel
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.diagnosis import Health
from txnwatch.cli.doctor import check_redis
from txnwatch.sinks.delivery.redis import RedisMirror, prefix_of
from txnwatch.sinks.delivery.redis_check import COMMANDS, refused_commands
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import OpenTransaction
from txnwatch_demo.embedded.redis import EmbeddedRedis

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "connection.md").read_text()
USER, PASSWORD = "watch", "of-the-watch"


def use_everything(mirror: RedisMirror, cluster_id: str) -> None:
    """Every operation of the mirror once."""
    assert mirror.has_lost_everything()
    mirror.deliver([*a_life("over", cluster_id=cluster_id), an_event("open", cluster_id=cluster_id)])
    mirror.show_open([OpenTransaction(7, "checkout", "Ongoing", 1_000, None, ())])
    mirror.beat(a_heartbeat(cluster_id=cluster_id))
    mirror.deliver([an_event("forgotten", cluster_id=cluster_id)])
    mirror.forget({id_of("forgotten")}.__contains__)


def is_shown(url: str, cluster_id: str) -> None:
    """What `txnwatch status` reads there."""
    shown = read_shown(url)
    assert cluster_id in shown.clusters
    assert [event.incident_id for event in shown.incidents if event.cluster_id == cluster_id] == [id_of("open")]
    assert [beat.cluster_id for beat in shown.heartbeats if beat.cluster_id == cluster_id] == [cluster_id]
    assert shown.unread == {}


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
        assert refused_commands(sentinel.url) == {}
        is_shown(sentinel.url, cluster_id)
        with sentinel.primary.client("of-the-server") as client:
            client.execute_command("WAIT", 1, 2_000)
        sentinel.fail_over()

        def delivers() -> bool:
            try:
                mirror.deliver([an_event("after", cluster_id=cluster_id)])
            except SinkError:
                return False
            return True

        eventually(delivers, 20.0, "a delivery to the new primary")
        with sentinel.replica.client("of-the-server") as client:
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
    assert refused_commands(redis_cluster.url) == {}
    (row,) = [check_redis(redis_cluster.url)]
    assert (row.status, row.detail) == (Health.OK, f"{len(COMMANDS)} commands work")


def url_of(server: EmbeddedRedis) -> str:
    return f"redis://{USER}:{PASSWORD}@{urlsplit(server.url).netloc}/0"


def grant(server: EmbeddedRedis, *rules: str) -> None:
    with closing(redis.Redis.from_url(server.url)) as client:
        client.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *rules)


def documented(reader: str) -> list[str]:
    """The rules in the documentation after the name of the user."""
    (line,) = [line for line in DOCUMENTED.splitlines() if line.startswith(f"ACL SETUSER {reader} ")]
    return [rule for rule in line.split()[3:] if rule[0] in "+~"]


@pytest.fixture
def server(redis_server: EmbeddedRedis) -> Iterator[EmbeddedRedis]:
    yield redis_server
    with closing(redis.Redis.from_url(redis_server.url)) as client:
        client.execute_command("ACL", "DELUSER", USER)


def test_the_documented_rights_are_enough(server: EmbeddedRedis) -> None:
    cluster_id = unique("cluster")
    grant(server, *documented("txnwatch"))
    with closing(RedisMirror(url_of(server), cluster_id)) as mirror:
        use_everything(mirror, cluster_id)
    assert check_redis(url_of(server)).status is Health.OK
    grant(server, *documented("txnwatch-status"))
    assert cluster_id in read_shown(url_of(server)).clusters


def test_the_documentation_has_every_command() -> None:
    assert {rule[1:] for rule in documented("txnwatch") if rule[0] == "+"} == set(COMMANDS)


@pytest.mark.parametrize("missing", COMMANDS)
def test_without_one_of_the_commands_the_mirror_fails_and_doctor_names_it(server: EmbeddedRedis, missing: str) -> None:
    cluster_id = unique("cluster")
    grant(server, *[rule for rule in documented("txnwatch") if rule != f"+{missing}"])
    with closing(redis.Redis.from_url(server.url)) as client:
        client.script_flush()
    with closing(RedisMirror(url_of(server), cluster_id)) as mirror, pytest.raises(SinkError):
        use_everything(mirror, cluster_id)
    row = check_redis(url_of(server))
    assert row.status is Health.MISSING
    assert row.fix == f"ACL SETUSER <user> +{missing}"


@pytest.mark.parametrize("missing", ["+scan", "+zrange", "+hgetall"])
def test_without_one_of_the_commands_status_fails(server: EmbeddedRedis, missing: str) -> None:
    cluster_id = unique("cluster")
    with closing(RedisMirror(server.url, cluster_id)) as mirror:
        use_everything(mirror, cluster_id)
    grant(server, *[rule for rule in documented("txnwatch-status") if rule != missing])
    try:
        shown = read_shown(url_of(server))
    except SinkError:
        return
    assert shown.unread
