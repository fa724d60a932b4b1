"""A real Prometheus for tests, with the rules of deploy/prometheus and minutes that are seconds."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from support.alertmanager import is_ready, tool
from support.waiting import eventually

RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "rules.yaml"
_START_S = 30.0


class RunningPrometheus:
    """One Prometheus on a port of this machine; it scrapes, and evaluates the rules, each second."""

    def __init__(self, directory: Path, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._file = directory / "prometheus.yaml"
        rules, told = directory / "rules.yaml", RULES.read_text()
        rules.write_text(re.sub(r"(?m)^(\s+for: \d+)m$", r"\1s", told))
        self._port, self._rules = port, rules
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, scrape_configs: list[dict[str, Any]]) -> None:
        """Starts it, after promtool has accepted its configuration, and waits until it answers."""
        self._configure(scrape_configs)
        directory = self._file.parent
        command = [
            tool("prometheus"),
            f"--config.file={self._file}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with (directory / "prometheus.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
        eventually(lambda: is_ready(self._url), _START_S, "Prometheus to answer")

    def reload(self, scrape_configs: list[dict[str, Any]]) -> None:
        """Gives it other targets while it runs."""
        self._configure(scrape_configs)
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _configure(self, scrape_configs: list[dict[str, Any]]) -> None:
        every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        whole = {"global": every, "rule_files": [str(self._rules)], "scrape_configs": scrape_configs}
        self._file.write_text(yaml.safe_dump(whole))
        checked = subprocess.run(
            [tool("promtool"), "check", "config", str(self._file)], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stdout + checked.stderr

    def stop(self) -> None:
        """Ends it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10.0)

    def query(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The labels and the value of each series that an expression has now."""
        asked = urllib.parse.urlencode({"query": expr})
        with urllib.request.urlopen(f"{self._url}/api/v1/query?{asked}", timeout=5.0) as answer:
            return [(one["metric"], float(one["value"][1])) for one in json.load(answer)["data"]["result"]]

    def firing(self, name: str) -> list[dict[str, str]]:
        """The labels of the alerts of this name that fire now."""
        with urllib.request.urlopen(f"{self._url}/api/v1/alerts", timeout=5.0) as answer:
            found = json.load(answer)["data"]["alerts"]
        return [one["labels"] for one in found if (one["labels"]["alertname"], one["state"]) == (name, "firing")]


@contextmanager
def a_prometheus(directory: Path, port: int, scrape_configs: list[dict[str, Any]]) -> Iterator[RunningPrometheus]:
    """A Prometheus while the block runs."""
    running = RunningPrometheus(directory, port)
    try:
        running.start(scrape_configs)
        yield running
    finally:
        running.stop()
