"""The alert rules in a real Prometheus, which scrapes what a watcher serves as the documentation says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from support.prometheus import a_prometheus
from support.waiting import eventually
from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.web.server import served
from txnwatch_demo.embedded.real_servers import free_ports

pytestmark = pytest.mark.integration
METRICS = Path(__file__).parents[2] / "docs" / "metrics.md"
ALERT_S = 20.0


def documented(**ports: int) -> list[dict[str, Any]]:
    """The scrape configuration for several clusters in docs/metrics.md; each host is a port of this machine."""
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", METRICS.read_text(), re.DOTALL)
    for name, port in ports.items():
        block = block.replace(f"watch.{name}.example:9464", f"127.0.0.1:{port}")
    found: list[dict[str, Any]] = yaml.safe_load(block)["scrape_configs"]
    return found


@contextmanager
def a_watcher() -> Iterator[int]:
    """What `run` serves to Prometheus, and its port."""
    settings = RunSettings(bootstrap_server="none:1", http_port=0)
    with served(settings, Metrics(wall_clock_ms), mock.Mock()) as server:
        assert server is not None
        yield int(server.url.rpartition(":")[2])


def test_a_dead_watcher_is_alerted_and_the_living_one_is_not(tmp_path: Path) -> None:
    with a_watcher() as living, ExitStack() as until_it_dies:
        dead = until_it_dies.enter_context(a_watcher())
        both = documented(eu=dead, us=living)
        with a_prometheus(tmp_path, *free_ports(1), both) as prometheus:
            eventually(lambda: len(prometheus.query("txnwatch_up")) == 2, ALERT_S, "both watchers")
            eventually(lambda: not prometheus.firing("TxnwatchAbsent"), ALERT_S, "no alert")
            until_it_dies.close()
            eventually(lambda: prometheus.firing("TxnwatchAbsent"), ALERT_S, "the alert")
            absent = {
                "alertname": "TxnwatchAbsent",
                "severity": "critical",
                "cluster": "payments-eu",
                "job": "txnwatch",
                "instance": f"127.0.0.1:{dead}",
            }
            assert prometheus.firing("TxnwatchAbsent") == [absent]
            both[0]["static_configs"].pop(0)
            prometheus.reload(both)
            eventually(lambda: len(prometheus.query("up")) == 1, ALERT_S, "its target to be gone")
            assert prometheus.firing("TxnwatchAbsent") == [absent], "a day long, by its last series"
