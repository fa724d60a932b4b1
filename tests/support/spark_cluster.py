"""A standalone Spark cluster: a master and workers, each with directories of its own.

The secret of all processes is in the file spark-defaults.conf, as docs/hardening.md recommends.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

import psutil
import pyspark

from txnwatch_demo.embedded.real_servers import ServerProcess, free_ports

SECRET = "kanarienvogel"
# What a JVM of Spark needs on Java 17; Spark gives it to those that it starts itself.
_PACKAGES = ("java.lang", "java.lang.invoke", "java.net", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")
OPENED = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES)
_HOME = Path(pyspark.__file__).parent
_SECURITY = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": SECRET,
    "spark.network.crypto.enabled": "true",
}


class SparkCluster:
    """One master and some workers with one core each; a context manager."""

    def __init__(self, directory: Path, workers: int, *, host: str = "127.0.0.1", is_encrypted: bool = True) -> None:
        self._host = host
        self._directory = directory
        self._settings = {**_SECURITY, "spark.network.crypto.enabled": str(is_encrypted).lower()}
        self._port = free_ports(1)[0]
        self._count = workers
        self._servers: list[ServerProcess] = []

    @property
    def master(self) -> str:
        """The address of the master."""
        return f"spark://{self._host}:{self._port}"

    def __enter__(self) -> Self:
        self._conf.mkdir(parents=True)
        defaults = self._conf / "spark-defaults.conf"
        defaults.touch(mode=0o600)
        defaults.write_text("".join(f"{key} {value}\n" for key, value in self._settings.items()))
        self._start("master", "master.Master", "Starting Spark master", "--port", str(self._port))
        for number in range(self._count):
            self._start(f"worker-{number}", "worker.Worker", "registered with master", "--cores", "1", "--memory", "1g")
        return self

    def __exit__(self, *_: object) -> None:
        for server in reversed(self._servers):
            server.kill()

    @property
    def _conf(self) -> Path:
        return self._directory / "conf"

    def directory(self, server: str) -> Path:
        """All files of `master`, or of a worker and its executors, for example `worker-0`."""
        return self._directory / server

    def worker(self, worker: int) -> int:
        """The process id of a worker; its executors are its children."""
        return self._servers[1 + worker].pid

    def executor(self, worker: int) -> psutil.Process:
        """The executor that a worker runs."""
        parent = psutil.Process(self.worker(worker))
        children = parent.children(recursive=True)
        (found,) = [child for child in children if "CoarseGrainedExecutorBackend" in arguments(child)]
        return found

    def application_id(self) -> str | None:
        """The id of the first application that has registered; None if there is none yet."""
        found = re.search(r"Registered app \S+ with ID (\S+)", (self._directory / "master" / "log").read_text())
        return found[1] if found is not None else None

    def pages(self, server: str) -> str:
        """The address of the web server of `master`, or of a worker."""
        log = (self.directory(server) / "log").read_text()
        found = re.search(r"Successfully started service '(?:Master|Worker)UI' on port (\d+)", log)
        assert found is not None
        return f"http://{self._host}:{found[1]}"

    def scratch(self, worker: int) -> Path:
        """The directory for temporary files of a worker's executors."""
        return self.directory(f"worker-{worker}") / "local"

    def _start(self, name: str, main: str, ready: str, *arguments: str) -> None:
        home = self.directory(name)
        for part in ("local", "work"):
            (home / part).mkdir(parents=True)
        environ = {
            **os.environ,
            "SPARK_HOME": str(_HOME),
            "SPARK_CONF_DIR": str(self._conf),
            "SPARK_LOCAL_DIRS": str(home / "local"),
            "SPARK_WORKER_DIR": str(home / "work"),
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": self._host,
        }
        of_worker = (self.master,) if main.startswith("worker") else ()
        command = [
            *(str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"),
            *("--host", self._host, "--webui-port", "0", *arguments, *of_worker),
        ]
        log = home / "log"
        server = ServerProcess(name, command, log, environ)
        self._servers.append(server)
        server.start(lambda: ready.lower() in log.read_text(errors="replace").lower(), timeout_s=120.0)


def arguments(process: psutil.Process) -> str:
    """The arguments of a process; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
