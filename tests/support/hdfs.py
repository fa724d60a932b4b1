"""A real HDFS from Hadoop's jars: one name node and one data node in a process of their own."""

from __future__ import annotations

import getpass
import json
import urllib.request
from pathlib import Path
from typing import Self

from txnwatch.streaming.job.jvm import java
from txnwatch_demo.embedded.jars import jars
from txnwatch_demo.embedded.real_servers import ServerProcess, free_ports

VERSION = "3.5.0"  # that of the client that PySpark has
_MODULES = (("org.apache.hadoop", "hadoop-client-minicluster", VERSION),)
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
# The classes of the mini cluster name Mockito, and the client of PySpark does not have it.
_OF_TESTS = (
    *_MODULES,
    ("org.mockito", "mockito-core", "4.11.0"),
    ("junit", "junit", "4.13.2"),
    ("org.junit.jupiter", "junit-jupiter-api", "5.8.2"),
)


class EmbeddedHdfs:
    """An HDFS on the loopback interface; a context manager."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, self._web_port = free_ports(2)
        self._server: ServerProcess | None = None

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        classpath = f"{jars(f'hadoop-minicluster-{VERSION}', _OF_TESTS)}/*"
        config = self._directory / "written.xml"
        command = [
            *(java(), "-Xmx384m", "-XX:+UseSerialGC", f"-Dtest.build.data={self._directory}", "-cp", classpath, _MAIN),
            *("-format", "-datanodes", "1", "-nnport", str(self._port), "-writeConfig", str(config)),
            *("-httpport", str(self._web_port)),
        ]
        self._server = ServerProcess("HDFS", command, self._directory / "hdfs.log")
        self._server.start(config.exists, timeout_s=240.0)
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.kill()

    def uri(self, path: str) -> str:
        """The address of a path."""
        return f"hdfs://127.0.0.1:{self._port}/{path}"

    def names(self, path: str) -> set[str]:
        """The names in a directory."""
        statuses = json.loads(self._ask("GET", path, "LISTSTATUS"))["FileStatuses"]["FileStatus"]
        return {str(status["pathSuffix"]) for status in statuses}

    def read(self, path: str) -> bytes:
        """The content of a file."""
        return self._ask("GET", path, "OPEN")

    def write(self, path: str, content: bytes) -> None:
        """Replaces the content of a file."""
        where = json.loads(self._ask("PUT", path, "CREATE&overwrite=true&noredirect=true"))["Location"]
        request = urllib.request.Request(where, content, method="PUT")
        with urllib.request.urlopen(request, timeout=30.0):
            pass

    def _ask(self, method: str, path: str, operation: str) -> bytes:
        url = f"http://127.0.0.1:{self._web_port}/webhdfs/v1/{path}?user.name={getpass.getuser()}&op={operation}"
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30.0) as answer:
            content: bytes = answer.read()
        return content
