"""A user with the documented rights, on one Redis, through Sentinel and on Redis Cluster: each of them is necessary."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from support.incidents import an_event
from support.mirror_use import is_shown, use_everything
from support.redis_servers import PASSWORD, RedisCluster, WithSentinel
from support.redis_users import RedisUser, documented, of_cluster, of_one_server, of_sentinel
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.doctor import Health, check_redis
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.sinks.delivery.redis_views import COMMANDS, read_shown
from txnwatch.state.model.errors import SinkError
from txnwatch_demo.embedded.real_servers import EmbeddedRedis

POINTER = "`txnwatch doctor --redis-url` lists the missing rights"
OF_THE_CLIENT = {
    "one server": [],
    "Sentinel": documented("txnwatch-sentinel"),
    "Redis Cluster": documented("USER"),
}
KINDS = list(OF_THE_CLIENT)
ASKING = "+asking"


def rights_of(user: str) -> list[tuple[str, str]]:
    """Each documented right of a user, with the kind of Redis."""
    return [(kind, right) for kind, own in OF_THE_CLIENT.items() for right in [*documented(user), *own]]


@pytest.fixture(scope="module")
def sentinel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithSentinel]:
    servers = WithSentinel(tmp_path_factory.mktemp("sentinel"))
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    nodes = RedisCluster(tmp_path_factory.mktemp("cluster"))
    yield nodes
    nodes.stop()


@pytest.fixture
def user(kind: str, request: pytest.FixtureRequest) -> Iterator[RedisUser]:
    """The user on a Redis of this kind."""
    started: dict[str, Callable[[], RedisUser]] = {
        "one server": lambda: of_one_server(server(request)),
        "Sentinel": lambda: of_sentinel(request.getfixturevalue("sentinel")),
        "Redis Cluster": lambda: of_cluster(request.getfixturevalue("cluster")),
    }
    found = started[kind]()
    yield found
    found.remove()


def server(request: pytest.FixtureRequest) -> EmbeddedRedis:
    found: EmbeddedRedis = request.getfixturevalue("redis_server")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_documented_rights_are_enough(user: RedisUser, kind: str) -> None:
    cluster_id = unique("cluster")
    user.grant(*documented("txnwatch"), *OF_THE_CLIENT[kind])
    user.forget_scripts()
    with closing(RedisMirror(user.url, cluster_id)) as mirror:
        use_everything(mirror, cluster_id)
    row = check_redis(user.url)
    assert (row.status, row.fix) == (Health.OK, None), row.detail
    user.grant(*documented("txnwatch-status"), *OF_THE_CLIENT[kind])
    is_shown(user.url, cluster_id)


def test_the_documentation_has_every_command() -> None:
    assert {rule[1:] for rule in documented("txnwatch") if rule[0] == "+"} == set(COMMANDS)


@pytest.mark.matrix
@pytest.mark.parametrize(("kind", "missing"), [case for case in rights_of("txnwatch") if case[1] != ASKING])
def test_without_one_of_the_rights_the_mirror_fails_and_doctor_names_it(
    user: RedisUser, kind: str, missing: str
) -> None:
    cluster_id = unique("cluster")
    user.grant(*(rule for rule in [*documented("txnwatch"), *OF_THE_CLIENT[kind]] if rule != missing))
    user.forget_scripts()
    with closing(RedisMirror(user.url, cluster_id)) as mirror, pytest.raises(SinkError) as raised:
        use_everything(mirror, cluster_id)
    assert POINTER in str(raised.value)
    if missing in OF_THE_CLIENT[kind]:  # Redis names a subcommand only since 7.0
        assert f"'{missing[1:].partition('|')[0]}" in str(raised.value)
    row = check_redis(user.url)
    assert row.status is Health.MISSING
    who = "<user of the sentinels>" if "sentinel" in missing else "<user>"
    assert row.fix == f"ACL SETUSER {who} {missing}"
    assert missing[0] == "~" or f"refuses {missing[1:]}: " in row.detail


@pytest.mark.matrix
@pytest.mark.parametrize(("kind", "missing"), [case for case in rights_of("txnwatch-status") if case[1] != ASKING])
def test_without_one_of_the_rights_status_fails(user: RedisUser, kind: str, missing: str) -> None:
    cluster_id = unique("cluster")
    user.grant(*documented("txnwatch"), *OF_THE_CLIENT[kind])
    with closing(RedisMirror(user.url, cluster_id)) as mirror:
        use_everything(mirror, cluster_id)
    user.grant(*(rule for rule in [*documented("txnwatch-status"), *OF_THE_CLIENT[kind]] if rule != missing))
    try:
        shown = read_shown(user.url)
    except SinkError:
        return
    assert shown.unread


@pytest.mark.parametrize("kind", ["one server", "Sentinel"])
def test_a_database_other_than_0_needs_one_more_right(user: RedisUser, kind: str) -> None:
    place, mark, query = user.url.partition("?")
    url = f"{place.removesuffix('/0')}/1{mark}{query}"
    rights = [*documented("txnwatch"), *OF_THE_CLIENT[kind]]
    user.grant(*rights)
    with closing(RedisMirror(url, unique("cluster"))) as mirror, pytest.raises(SinkError, match="'select' command"):
        mirror.deliver([an_event("open")])
    row = check_redis(url)
    assert (row.status, row.fix) == (Health.MISSING, "ACL SETUSER <user> +select")
    user.grant(*rights, "+select")
    with closing(RedisMirror(url, unique("cluster"))) as mirror:
        mirror.deliver([an_event("open")])
    assert check_redis(url).status is Health.OK


@pytest.mark.parametrize("kind", ["Redis Cluster"])
@pytest.mark.parametrize("is_permitted", [True, False])
def test_while_a_slot_moves_the_client_of_a_cluster_asks_the_other_node(
    user: RedisUser, cluster: RedisCluster, kind: str, *, is_permitted: bool
) -> None:
    cluster_id = unique("cluster")
    rights = [*documented("txnwatch"), *OF_THE_CLIENT[kind]]
    user.grant(*(rule for rule in rights if is_permitted or rule != ASKING))
    with cluster.moving(f"{{{cluster_id}}}"), closing(RedisMirror(user.url, cluster_id)) as mirror:
        if is_permitted:
            assert mirror.has_lost_everything()
            assert not mirror.has_lost_everything(), "the other node has the key now"
        else:
            with pytest.raises(SinkError, match="'asking' command"):
                mirror.has_lost_everything()
    row = check_redis(user.url)
    assert row.fix == (None if is_permitted else f"ACL SETUSER <user> {ASKING}")


@pytest.mark.parametrize("kind", ["Sentinel"])
def test_after_a_failover_the_rights_on_the_former_replica_count(
    user: RedisUser, sentinel: WithSentinel, kind: str
) -> None:
    """The last test of this file: the primary is gone."""
    cluster_id = unique("cluster")
    user.grant(*documented("txnwatch"), *OF_THE_CLIENT[kind])
    with closing(RedisMirror(user.url, cluster_id)) as mirror:
        use_everything(mirror, cluster_id)
        with sentinel.primary.client(PASSWORD) as client:
            client.execute_command("WAIT", 1, 2_000)
        sentinel.fail_over()

        def delivers() -> bool:
            with suppress(SinkError):
                mirror.deliver([an_event("after", cluster_id=cluster_id)])
                return True
            return False

        eventually(delivers, 20.0, "a delivery to the new primary")
    assert check_redis(user.url).status is Health.OK
