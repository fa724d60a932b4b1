"""One user on every server of a Redis, with the rights that a test gives; and the documented rights."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import redis

from support.redis_servers import PASSWORD, SENTINEL_PASSWORD, RedisCluster, WithSentinel
from txnwatch_demo.embedded.real_servers import EmbeddedRedis

_DOCUMENTED = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
_USER, _USER_PASSWORD = "watch", "of-the-watch"
_OF_SENTINELS, _OF_SENTINELS_PASSWORD = "asks", "of-the-asking"


def documented(user: str) -> list[str]:
    """The rules in the documentation after the name of a user."""
    (line,) = [line for line in _DOCUMENTED.splitlines() if line.startswith(f"ACL SETUSER {user} ")]
    return [rule for rule in line.split()[3:] if rule[0] in "+~"]


class RedisUser:
    """The user.

    Attributes:
        url: the URL of a client with this user.
    """

    def __init__(self, url: str, servers: Sequence[redis.Redis], sentinel: redis.Redis | None = None) -> None:
        self.url = url
        self._servers = servers
        self._sentinel = sentinel

    def grant(self, *rules: str) -> None:
        """Only these rules from now on; connections stay open, with the new rights."""
        of_sentinel = [rule for rule in rules if rule.startswith("+sentinel")]
        for server in self._servers:
            _set_user(server, _USER, _USER_PASSWORD, [rule for rule in rules if rule not in of_sentinel])
        if self._sentinel is not None:
            _set_user(self._sentinel, _OF_SENTINELS, _OF_SENTINELS_PASSWORD, of_sentinel)

    def forget_scripts(self) -> None:
        """No server knows a script."""
        for server in self._servers:
            server.script_flush()

    def remove(self) -> None:
        """Removes the user, and closes the connections of the test."""
        for server in self._servers:
            with contextlib.suppress(redis.ConnectionError):  # a test has ended this server
                server.execute_command("ACL", "DELUSER", _USER)
            server.close()
        if self._sentinel is not None:
            self._sentinel.close()


def _set_user(server: redis.Redis, name: str, password: str, rules: Sequence[str]) -> None:
    server.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", *rules)


def of_one_server(server: EmbeddedRedis) -> RedisUser:
    """A user of one server."""
    place = server.url.removeprefix("redis://")
    return RedisUser(f"redis://{_USER}:{_USER_PASSWORD}@{place}", [redis.Redis.from_url(server.url)])


def of_sentinel(servers: WithSentinel) -> RedisUser:
    """A user of a primary and its replica, and another one of the sentinel."""
    query = f"sentinel_username={_OF_SENTINELS}&sentinel_password={_OF_SENTINELS_PASSWORD}"
    return RedisUser(
        f"redis+sentinel://{_USER}:{_USER_PASSWORD}@{servers.place}?{query}",
        [server.client(PASSWORD) for server in (servers.primary, servers.replica)],
        servers.sentinel.client(SENTINEL_PASSWORD),
    )


def of_cluster(cluster: RedisCluster) -> RedisUser:
    """A user of all nodes of a Redis Cluster."""
    place = cluster.url.removeprefix("redis+cluster://")
    return RedisUser(f"redis+cluster://{_USER}:{_USER_PASSWORD}@{place}", [node.client() for node in cluster.nodes])
