"""Certificate files of the connection to Redis that are renewed are used without a restart."""

from __future__ import annotations

from pathlib import Path
from shutil import copy
from urllib.parse import urlencode

import pytest
import redis

from support.certificates import Authority
from support.tls_front import TlsFront
from txnwatch.sinks.delivery.redis_client import redis_client
from txnwatch_demo.embedded.real_servers import EmbeddedRedis


def authority_with_client(directory: Path) -> Authority:
    directory.mkdir()
    found = Authority(directory, "ca").create()
    found.issue("client", "DNS:client")
    return found


def test_renewed_certificate_files_are_used_from_the_next_connection_on(
    redis_server: EmbeddedRedis, tmp_path: Path
) -> None:
    first, second = (authority_with_client(tmp_path / name) for name in ("first", "second"))
    trusted, mine = (Path(copy(first.directory / name, tmp_path)) for name in ("ca.pem", "client.pem"))
    query = urlencode({"ssl_ca_certs": trusted, "ssl_certfile": mine, "ssl_keyfile": mine})
    with TlsFront(redis_server.port, first) as front:
        client = redis_client(f"rediss://127.0.0.1:{front.port}/0?{query}")
        assert client.ping()
        front.use(second)
        for _ in range(2):
            with pytest.raises(redis.ConnectionError):
                client.ping()
        for name in ("ca.pem", "client.pem"):
            copy(second.directory / name, tmp_path)
        assert client.ping()
        assert front.connections == 2
        client.close()
