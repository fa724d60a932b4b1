"""Real Redis servers of other kinds than one server: a primary with Sentinel, and a Redis Cluster of two nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import redis

from support.waiting import eventually
from txnwatch_demo.embedded import real_servers
from txnwatch_demo.embedded.real_servers import ServerProcess, free_ports, redis_program

PASSWORD, SENTINEL_PASSWORD, SERVICE = "of-the-server", "of-the-sentinel", "the-service"
_SLOTS, _BUS = 16_384, 10_000


def _ports_of_nodes(count: int) -> list[int]:
    """Free ports of nodes. The port of a node's bus is 10,000 above; it is no port of outgoing connections either."""
    last = max(real_servers.PORTS) - _BUS
    among = [port for port in real_servers.PORTS if port <= last]
    found: list[int] = []
    for port in free_ports(100, among):
        with contextlib.suppress(OSError):  # the port of its bus is taken
            free_ports(1, [port + _BUS])
            found.append(port)
    return found[:count]


class Server:
    """One process of redis-server with these lines as its configuration."""

    def __init__(self, directory: Path, name: str, port: int, lines: list[str], *arguments: str) -> None:
        self.port = port
        config = directory / f"{name}.conf"
        base = [f"port {port}", "bind 127.0.0.1", f"dir {directory}", 'save ""', f"dbfilename {name}.rdb"]
        config.write_text("\n".join([*base, *lines]) + "\n")
        self._process = ServerProcess(
            name, [redis_program("redis-server"), str(config), *arguments], directory / f"{name}.log"
        )
        self._process.start(self._answers, timeout_s=20.0)

    def stop(self) -> None:
        """Kills the process."""
        self._process.kill()

    def client(self, password: str | None = None) -> redis.Redis:
        """A client of this server only."""
        return redis.Redis(port=self.port, password=password, decode_responses=True)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.ConnectionError), self.client() as client:
            with contextlib.suppress(redis.AuthenticationError, redis.ResponseError):  # it has a password
                client.ping()
            return True
        return False


class WithSentinel:
    """A primary, its replica and one sentinel, all with passwords.

    Attributes:
        place: the hosts of the sentinels and the name of the service, as in the URL.
        url: the URL with both passwords.
    """

    def __init__(
        self, directory: Path, *, password: str = PASSWORD, sentinel_password: str = SENTINEL_PASSWORD
    ) -> None:
        self._password, self._sentinel_password = password, sentinel_password
        first, second, third = free_ports(3)
        own = [f"requirepass {password}", f"masterauth {password}"]
        self.primary = Server(directory, "primary", first, own)
        self.replica = Server(directory, "replica", second, [*own, f"replicaof 127.0.0.1 {first}"])
        watching = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {first} 1",
            f"sentinel auth-pass {SERVICE} {password}",
            f"sentinel down-after-milliseconds {SERVICE} 500",
            f"sentinel failover-timeout {SERVICE} 2000",
            f"requirepass {sentinel_password}",
        ]
        self.sentinel = Server(directory, "sentinel", third, watching, "--sentinel")
        self.place = f"127.0.0.1:1,127.0.0.1:{third}/{SERVICE}/0"  # the first one does not answer
        self.url = f"redis+sentinel://:{password}@{self.place}?sentinel_password={sentinel_password}"
        eventually(self._is_replicated, 20.0, "the replica and the sentinel")

    def values(self) -> dict[str, str]:
        """All that the primary holds, by key."""
        with self.primary.client(self._password) as client:
            return {key: value_of(client, key) for key in client.scan_iter("*")}

    def fail_over(self) -> None:
        """Kills the primary and waits until the replica is the primary."""
        self.primary.stop()
        with self.replica.client(self._password) as client:
            eventually(lambda: client.info("replication")["role"] == "master", 30.0, "a new primary")

    def stop(self) -> None:
        """Kills all."""
        for server in (self.sentinel, self.replica, self.primary):
            server.stop()

    def _is_replicated(self) -> bool:
        with self.replica.client(self._password) as replica, self.sentinel.client(self._sentinel_password) as sentinel:
            linked = replica.info("replication")["master_link_status"] == "up"
            return linked and int(sentinel.sentinel_master(SERVICE)["num-slaves"]) == 1


def value_of(client: redis.Redis, key: str) -> str:
    """A value of any type, as text."""
    readers = {
        "string": client.get,
        "hash": client.hgetall,
        "zset": lambda name: client.zrange(name, 0, -1),
        "stream": client.xrange,
    }
    return str(readers[client.type(key)](key))


class RedisCluster:
    """Two nodes; each has half of the slots."""

    def __init__(self, directory: Path) -> None:
        lines = ["cluster-enabled yes", "appendonly no"]
        self.nodes = [
            Server(directory, f"node-{port}", port, [*lines, f"cluster-config-file nodes-{port}.conf"])
            for port in _ports_of_nodes(2)
        ]
        half = _SLOTS // 2
        for node, slots in zip(self.nodes, (range(half), range(half, _SLOTS)), strict=True):
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTS", *slots)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", str(self.nodes[0].port))
        eventually(lambda: all(self._is_whole(node) for node in self.nodes), 20.0, "the Redis Cluster")
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def keys_of_nodes(self) -> list[set[str]]:
        """The keys of each node."""
        return [set(self._keys_of(node)) for node in self.nodes]

    @contextlib.contextmanager
    def moving(self, key: str) -> Iterator[None]:
        """The slot of a key is moving to the other node; in the end its first node has it as before."""
        with contextlib.ExitStack() as closing:
            clients = [closing.enter_context(node.client()) for node in self.nodes]
            slot = int(clients[0].execute_command("CLUSTER", "KEYSLOT", key))
            ids = [str(client.execute_command("CLUSTER", "MYID")) for client in clients]
            at = 0 if slot < _SLOTS // 2 else 1
            clients[1 - at].execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[at])
            clients[at].execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1 - at])
            try:
                yield
            finally:
                for client in clients:
                    client.execute_command("CLUSTER", "SETSLOT", slot, "STABLE")

    def stop(self) -> None:
        """Kills all."""
        for node in self.nodes:
            node.stop()

    def _keys_of(self, node: Server) -> Iterator[str]:
        with node.client() as client:
            yield from client.scan_iter("*")

    def _is_whole(self, node: Server) -> bool:
        with node.client() as client:
            info = client.execute_command("CLUSTER", "INFO")
            state = info if isinstance(info, dict) else dict(line.split(":") for line in str(info).split())
            return state["cluster_state"] == "ok" and state["cluster_known_nodes"] == "2"
