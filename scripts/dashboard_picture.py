"""Draws docs/dashboard.png: the queries of the dashboard, answered by a real Prometheus that scraped a real run.

Run it with `PYTHONPATH=tests`. Needs `prometheus` on the PATH and `pip install matplotlib`; takes about five minutes.
`txnwatch run` watches a real Kafka with healthy applications. One transaction is stuck in Prepare* and completes under
another coordinator. One hangs and is ended by hand. A second one still hangs when the picture is drawn. The picture is
not a screenshot of Grafana: panels and queries are those of the dashboard, the values are those of the run, and
matplotlib draws them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib as mpl
from confluent_kafka.admin import AdminClient, NewTopic
from matplotlib import pyplot as plt

from support.broker_faults import in_sync
from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.raw_producer import RawProducer
from txnwatch.cluster_connection import options_of
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.transaction_log import coordinator_partition
from txnwatch_demo.embedded.applications import exactly_once_copier, transactional_writer
from txnwatch_demo.embedded.kafka import EmbeddedKafka
from txnwatch_demo.embedded.process import free_ports
from txnwatch_demo.late_write import set_verification

ROOT = Path(__file__).resolve().parent.parent
STEP_S = 2
INVOICES = TopicPartition("invoices", 0)
COLUMNS, UNIT, COLUMN = 24, 0.31, 0.62
INK, FAINT, PAPER, CARD = "#d8d9da", "#8e9199", "#111217", "#181b1f"
COLOURS = ["#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#37872d", "#fade2a"]
FIXED = {
    "hanging": "#f2495c",
    "stuck_prepare": "#ff9830",
    "late": "#f2cc0c",
    "unowned": "#f2495c",
    "refuted": "#f2cc0c",
}


class Play:
    """The recorded run: servers, applications, txnwatch, Prometheus, and the faults."""

    def __init__(self, home: Path, stack: contextlib.ExitStack) -> None:
        self.home, self.stack = home, stack
        properties = {"transaction.state.log.replication.factor": "3", "offsets.topic.replication.factor": "3"}
        self.kafka = stack.enter_context(EmbeddedKafka(home / "kafka", brokers=3, properties=properties)).start(print)
        self.bootstrap = self.kafka.bootstrap_servers
        options = options_of(self.bootstrap, None)
        self.cluster = Cluster(options.bootstrap, options.security)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        topics = [NewTopic(name, 3, replica_assignment=[[1, 2], [2, 1], [2, 1]]) for name in ("payments", "ledger")]
        needs_both = {"min.insync.replicas": "2"}
        topics.append(NewTopic(INVOICES.topic, 1, replica_assignment=[[2, 3]], config=needs_both))
        for created in self.admin.create_topics(topics).values():
            created.result(30.0)
        set_verification(self.bootstrap, [1, 2, 3], enabled=False)
        self.metrics_port, self.prometheus_port = free_ports(2)

    def watch(self) -> None:
        """Starts the applications, txnwatch and Prometheus; waits until txnwatch is ready."""
        applications = [
            transactional_writer(self.bootstrap, "checkout-1", "payments", seed=1, pause_s=0.05),
            transactional_writer(self.bootstrap, "checkout-2", "payments", seed=2, abort_every=3, pause_s=0.1),
            exactly_once_copier(self.bootstrap, "ledger-copy", "payments", "ledger", pause_s=0.2),
        ]
        for application in applications:
            self.stack.callback(application.start().stop)
        run = [sys.executable, "-m", "txnwatch", "run", "--bootstrap-server", self.bootstrap]
        self._start(*run, "--checkpoint", str(self.home / "checkpoint"), "--metrics-port", str(self.metrics_port))
        config = self.home / "prometheus.yaml"
        config.write_text(
            f"global: {{scrape_interval: {STEP_S}s}}\n"
            "scrape_configs:\n"
            "  - job_name: txnwatch\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{self.metrics_port}']}}]\n"
        )
        self._start(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self.home / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
        )
        self.until("txnwatch_ready == 1", 180.0)

    def _start(self, *command: str) -> None:
        log = (self.home / f"{Path(command[0]).name}.log").open("ab")
        self.stack.callback(log.close)
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603 - our own arguments
        self.stack.callback(process.wait)
        self.stack.callback(process.terminate)

    def ask(self, path: str, **parameters: str | float) -> list[dict[str, Any]]:
        """The result of one query to Prometheus."""
        query = urllib.parse.urlencode(parameters)
        url = f"http://127.0.0.1:{self.prometheus_port}/api/v1/{path}?{query}"
        with urllib.request.urlopen(url, timeout=30.0) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def until(self, expression: str, patience_s: float) -> None:
        """Waits until an expression has a result."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.ask("query", query=expression):
                    return
            time.sleep(1.0)
        raise SystemExit(f"expected a result within {patience_s:.0f} s, found none: {expression}")

    def _coordinated_by(self, node: int) -> str:
        log = self.cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
        names = (f"invoicing-{number}" for number in range(1000))
        return next(name for name in names if log[coordinator_partition(name, len(log))].leader == node)

    def play(self) -> float:
        """Makes all faults; returns the start time of the run."""
        begun = time.time()
        time.sleep(45.0)
        print("stuck in Prepare*: a replica is down; then its coordinator restarts")
        stuck = RawProducer(self.cluster, self._coordinated_by(1)).init()
        stuck.add(INVOICES)
        stuck.produce(INVOICES)
        self.kafka.broker(3).kill()
        while in_sync(self.cluster, INVOICES) != {2}:
            time.sleep(0.1)
        stuck.end(commit=True)
        self.until('txnwatch_open_incidents{verdict="stuck_prepare"} > 0', 90.0)
        self.kafka.broker(1).kill()
        self.kafka.start_broker(1)
        self.kafka.start_broker(3)
        self.until("sum(txnwatch_transaction_failover_completion_seconds_count) > 0", 90.0)
        time.sleep(25.0)
        for name, partition, rest_s in (("checkout-7", 0, 40.0), ("checkout-8", 2, 35.0)):
            print("a hanging transaction of", name)
            victim = TopicPartition("payments", partition)
            hung = late_write_after_abort(self.cluster, name, victim)
            self.until('txnwatch_open_incidents{verdict="hanging"} > 0', 60.0)
            time.sleep(rest_s)
            if partition == 0:
                abort_by_hand(self.cluster, victim, hung.producer_id)
                time.sleep(25.0)
        return begun


def draw(play: Play, begun: float, target: Path) -> None:
    """Draws each panel at its position in the dashboard."""
    mpl.rcParams.update({"svg.fonttype": "none", "font.family": "sans-serif", "font.size": 7, "text.color": INK})
    mpl.rcParams.update(
        {"axes.edgecolor": CARD, "xtick.color": FAINT, "ytick.color": FAINT, "svg.hashsalt": "txnwatch"}
    )
    panels = json.loads((ROOT / "deploy" / "grafana" / "txnwatch.json").read_text())["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) + 1
    figure = plt.figure(figsize=(COLUMNS * COLUMN, rows * UNIT), facecolor=PAPER)
    ended = time.time()
    for panel in panels:
        at = panel["gridPos"]
        left, width = at["x"] / COLUMNS, at["w"] / COLUMNS
        bottom, height = 1 - (at["y"] + at["h"]) / rows, at["h"] / rows
        if panel["type"] == "row":
            figure.text(left + 0.008, bottom + height / 3, panel["title"], fontsize=9, fontweight="bold")
            continue
        card = figure.add_axes((left + 0.003, bottom + 0.0025, width - 0.006, height - 0.005), facecolor=CARD)
        card.set_xticks([])
        card.set_yticks([])
        figure.text(left + 0.01, bottom + height - 0.4 / rows, panel["title"], fontsize=7.5, va="top")
        if panel["type"] == "stat":
            _stat(card, play, panel, ended)
        else:
            inner = (left + 0.03, bottom + 2.0 / rows, width - 0.045, height - 3.4 / rows)
            _series(figure.add_axes(inner, facecolor=CARD), play, panel, begun, ended)
    note = "real figures of a real run; drawn by scripts/dashboard_picture.py, not a screenshot of Grafana"
    figure.text(0.992, 0.3 / rows, note, ha="right", color=FAINT, fontsize=7)
    figure.savefig(target, facecolor=PAPER, dpi=80)


def _expression(text: str) -> str:
    return text.replace("$job", ".*").replace("$instance", ".*").replace("$__rate_interval", "20s")


def _stat(card: Any, play: Play, panel: dict[str, Any], at: float) -> None:  # noqa: ANN401 - matplotlib's axes
    found = play.ask("query", query=_expression(panel["targets"][0]["expr"]), time=at)
    value = float(found[0]["value"][1]) if found else 0.0
    defaults = panel["fieldConfig"]["defaults"]
    steps = [step for step in defaults["thresholds"]["steps"] if step["value"] is None or value >= step["value"]]
    card.set_facecolor({"green": "#2f7d32", "red": "#b3323f", "orange": "#c46a16"}[steps[-1]["color"]])
    names = defaults["mappings"][0]["options"] if "mappings" in defaults else {}
    text = names.get(f"{value:.0f}", {}).get("text", f"{value:.0f}")
    card.text(0.5, 0.42, text, fontsize=20, fontweight="bold", ha="center", va="center", color="white")


def _series(axes: Any, play: Play, panel: dict[str, Any], begun: float, ended: float) -> None:  # noqa: ANN401
    number = 0
    for target in panel["targets"]:
        expression = _expression(target["expr"])
        for series in play.ask("query_range", query=expression, start=begun, end=ended, step=STEP_S):
            points = {float(at): float(value) for at, value in series["values"]}
            times = [begun + step * STEP_S for step in range(int((ended - begun) / STEP_S) + 1)]
            values = [points.get(min(points, key=lambda known, at=at: abs(known - at)), math.nan) for at in times]
            known = [abs(min(points, key=lambda one, at=at: abs(one - at)) - at) <= STEP_S for at in times]
            values = [value if is_known else math.nan for value, is_known in zip(values, known, strict=True)]
            label = target["legendFormat"]
            for name, text in series["metric"].items():
                label = label.replace("{{" + name + "}}", text)
            line = [round(value, 4) for value in values]
            colour = FIXED.get(label, COLOURS[number % len(COLOURS)])
            axes.plot([at - begun for at in times], line, lw=1.1, color=colour, label=label)
            number += 1
    axes.set_xlim(0, ended - begun)
    minutes = range(0, int(ended - begun) + 1, 60)
    axes.set_xticks(list(minutes), [f"{second // 60}:00" for second in minutes])
    low, high = axes.get_ylim()
    axes.set_ylim(
        (0 if panel["fieldConfig"]["defaults"].get("min") == 0 else low), max(high, 1.0 if high < 0.1 else high)
    )
    unit = {"s": " s", "ops": "/s"}.get(panel["fieldConfig"]["defaults"]["unit"], "")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(4))
    axes.tick_params(length=0, labelsize=6)
    axes.grid(visible=True, color="#2a2d33", lw=0.5)
    if number:
        legend = axes.legend(
            loc="upper left",
            bbox_to_anchor=(-0.05, -0.13),
            ncol=3 if panel["gridPos"]["w"] > 6 else 2,
            fontsize=5,
            frameon=False,
            handlelength=1,
        )
        for text in legend.get_texts():
            text.set_color(INK)


def main() -> None:
    """Records a run and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, nargs="+", default=[ROOT / "docs" / "dashboard.png"])
    target = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="txnwatch-picture-") as home, contextlib.ExitStack() as stack:
        play = Play(Path(home), stack)
        play.watch()
        begun = play.play()
        for file in target:
            draw(play, begun, file)
    for file in target:
        print(f"{file}: {file.stat().st_size // 1024} kB")


if __name__ == "__main__":
    main()
