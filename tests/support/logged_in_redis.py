"""A real Redis where one user may log in, with a password and the documented rights of `run` and `status`."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import redis

from support.redis_servers import Server, value_of
from support.redis_users import documented
from txnwatch_demo.embedded.real_servers import free_ports

_READER, _READER_PASSWORD = "reader", "of-the-test"


class LoggedInRedis:
    """The server; a context manager.

    Attributes:
        port: where it listens.
    """

    def __init__(self, directory: Path, user: str, password: str) -> None:
        (self.port,) = free_ports(1)
        self._user = user
        rights = " ".join(dict.fromkeys([*documented("txnwatch"), *documented("txnwatch-status")]))
        users = [
            "user default off",
            f"user {_READER} on >{_READER_PASSWORD} ~* +@all",
            f"user {user} on >{password} {rights}",
        ]
        self._server = Server(directory, "logged-in", self.port, users)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def refuse(self) -> None:
        """The user may not log in any more, and its connections are ended."""
        self._run("ACL", "SETUSER", self._user, "off")
        self._run("CLIENT", "KILL", "USER", self._user)

    def accept(self) -> None:
        """The user may log in again."""
        self._run("ACL", "SETUSER", self._user, "on")

    def values(self) -> dict[str, str]:
        """All that it holds, by key."""
        with self._client() as client:
            return {key: value_of(client, key) for key in client.scan_iter("*")}

    def _run(self, *command: str) -> None:
        with self._client() as client:
            client.execute_command(*command)

    def _client(self) -> redis.Redis:
        return redis.Redis(port=self.port, username=_READER, password=_READER_PASSWORD, decode_responses=True)
