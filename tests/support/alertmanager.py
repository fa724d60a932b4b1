"""A real Alertmanager for tests, and where the tools are that `scripts/alertmanager.sh` installs."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.missing_tools import skip_or_fail
from support.waiting import eventually

_OTHER_NAMES = {"alertmanager": "prometheus-alertmanager"}
_START_S = 30.0


def tool(name: str) -> str:
    """The path of a tool; skips the test if it is not installed, or fails it where it has to be."""
    found = shutil.which(_OTHER_NAMES.get(name, name)) or shutil.which(name)
    reason = f"{name} is not installed: scripts/alertmanager.sh installs it"
    return found if found is not None else skip_or_fail(reason, variable="TXNWATCH_TEST_ALERTMANAGER")


def is_ready(url: str) -> bool:
    """Whether an Alertmanager or a Prometheus answers."""
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5.0):
            return True
    except OSError:
        return False


class RunningAlertmanager:
    """One Alertmanager on a port of this machine, without peers.

    Attributes:
        url: where it is reached.
    """

    def __init__(self, directory: Path, port: int, config: dict[str, Any]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._directory = directory
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._file = directory / "alertmanager.json"
        self._file.write_text(json.dumps(config))  # JSON is YAML

    def start(self) -> None:
        """Starts it with an empty storage, and waits until it answers."""
        storage = self._directory / "storage"
        shutil.rmtree(storage, ignore_errors=True)
        command = [
            tool("alertmanager"),
            f"--config.file={self._file}",
            f"--storage.path={storage}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--cluster.listen-address=",
        ]
        with (self._directory / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory)
        eventually(lambda: is_ready(self.url), _START_S, "Alertmanager to answer")

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10.0)
            self._process = None

    def alerts(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The alerts that fire now, by name and incident."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=5.0) as answer:
            found = json.load(answer)
        return {(one["labels"]["alertname"], one["labels"]["incident"]): one for one in found}


@contextmanager
def an_alertmanager(directory: Path, port: int, config: dict[str, Any]) -> Iterator[RunningAlertmanager]:
    """An Alertmanager while the block runs."""
    running = RunningAlertmanager(directory, port, config)
    try:
        running.start()
        yield running
    finally:
        running.stop()
