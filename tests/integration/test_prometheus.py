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

from support.facts import BucketRun
from support.prometheus import a_prometheus
from support.waiting import eventually
from txnwatch.config import RunSettings
from txnwatch.metrics.collector import Metrics
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.watch.coverage import MissingEvidence
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
def a_watcher(metrics: Metrics | None = None) -> Iterator[int]:
    """What `run` serves to Prometheus, and its port."""
    settings = RunSettings(bootstrap_server="none:1", http_port=0)
    with served(settings, metrics or Metrics(wall_clock_ms), mock.Mock()) as server:
        assert server is not None
        yield int(server.url.rpartition(":")[2])


class Speaker:
    """The metrics of a watcher that evaluates barriers; its clock stands still."""

    def __init__(self) -> None:
        self.bucket = BucketRun()
        self.metrics = Metrics(lambda: self.bucket.now_ms)
        self.metrics.lease_group = "txnwatch-speaker-1-2"
        self.batch(speaks=False)

    def batch(self, *, speaks: bool) -> None:
        self.bucket.batch()
        ledger = mock.Mock(speaks=speaks, open_incidents=[], counts={}, outboxes=[])
        self.metrics.on_batch(1, self.bucket.everything, ledger, is_ready=True, evidence=MissingEvidence())


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


def test_it_is_alerted_that_nobody_speaks_and_that_two_do(tmp_path: Path) -> None:
    """The two watchers are targets of two jobs, as those of two releases of the chart."""
    one, other = Speaker(), Speaker()
    labels = {"cluster": "payments-eu", "group": "txnwatch-speaker-1-2"}
    silent = {"alertname": "TxnwatchNobodySpeaks", "severity": "critical", **labels}
    several = {"alertname": "TxnwatchSeveralSpeak", "severity": "warning", **labels}
    with a_watcher(one.metrics) as first, a_watcher(other.metrics) as second:
        (eu, us) = documented(eu=first, us=second)[0]["static_configs"]
        jobs = [
            {"job_name": f"txnwatch-{number}", "static_configs": [{**target, "labels": eu["labels"]}]}
            for number, target in enumerate((eu, us))
        ]
        with a_prometheus(tmp_path, *free_ports(1), jobs) as prometheus:
            for told, expected in (
                ((False, False), ([silent], [])),
                ((True, False), ([], [])),
                ((True, True), ([], [several])),
            ):
                one.batch(speaks=told[0])
                other.batch(speaks=told[1])

                def firing() -> tuple[list[dict[str, str]], ...]:
                    return tuple(map(prometheus.firing, ("TxnwatchNobodySpeaks", "TxnwatchSeveralSpeak")))

                eventually(lambda: firing() == expected, ALERT_S, f"{told} to be told as {expected}")  # noqa: B023
