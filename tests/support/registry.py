"""A real schema registry for tests: Apicurio, with its Confluent-compatible API, from Maven Central, cached.

It keeps its schemas in memory: `stop` and `start` is a registry that has lost them, `pause` one that hangs.
"""

from __future__ import annotations

import contextlib
import hashlib
import http
import http.client
import os
import tarfile
import urllib.request
from pathlib import Path
from typing import Self

from filelock import FileLock

from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import cache_directory
from txnwatch_demo.embedded.real_servers import SHORT_LIVED, ServerProcess, free_ports

_VERSION = "3.0.9"
_ARCHIVE = f"apicurio-registry-app-{_VERSION}"
_REPOSITORY = os.environ.get("TXNWATCH_MAVEN_REPOSITORY", "https://repo1.maven.org/maven2/")
_URL = f"{_REPOSITORY.rstrip('/')}/io/apicurio/apicurio-registry-app/{_VERSION}/{_ARCHIVE}-all.tar.gz"
_START_S = 120.0


class SchemaRegistry:
    """One registry on the loopback interface. A context manager."""

    def __init__(self, directory: Path) -> None:
        (self.port,) = free_ports(1)
        home = _home()
        command = [
            *(java(), "-Xmx384m", *SHORT_LIVED),
            *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"),
            *("-jar", str(home / f"{_ARCHIVE}-runner.jar")),
        ]
        self.process = ServerProcess("Apicurio", command, directory / "apicurio.log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stop()

    def start(self) -> None:
        self.process.start(self._answers, timeout_s=_START_S)

    def get(self, path: str) -> bytes:
        """The body of an answer of the REST API."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10.0)
        with contextlib.closing(connection):
            connection.request("GET", f"/apis/ccompat/v7{path}")
            return connection.getresponse().read()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/subjects").startswith(b"[") and self._registers()
        return False

    def _registers(self) -> bool:
        """The first schema of a registry's life takes it seconds; not in the time of the code that is tested."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
            connection.request(
                "POST", "/apis/ccompat/v7/subjects/the-first/versions", '{"schema": "\\"string\\""}', headers
            )
            return connection.getresponse().status == http.HTTPStatus.OK


def _home() -> Path:
    home = cache_directory() / _ARCHIVE
    stamp = home / ".complete"
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(cache_directory() / "registry.lock"):  # another worker may download it
        if not stamp.exists():
            _download(home)
            stamp.touch()
    return home


def _download(home: Path) -> None:
    archive = home / "all.tar.gz"
    urllib.request.urlretrieve(_URL, archive)
    with urllib.request.urlopen(f"{_URL}.sha1", timeout=60.0) as published:
        expected = published.read().decode().strip()
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha1").hexdigest()
    assert found == expected, f"{_URL}: expected SHA-1 {expected}, found {found}"
    with tarfile.open(archive) as packed:
        packed.extractall(home, filter="data")
    archive.unlink()
