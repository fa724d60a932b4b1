"""What a watch of an idle cluster costs: CPU of each kind of process, and memory.

One broker, 16 partitions, the default trigger, nothing written. CPU is counted from /proc over a minute, two minutes
after the first verdict was possible. Memory is the proportional set size (PSS): shared pages are counted once.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.results import Point, Row
from support.process_memory import descendants
from support.watch import RunningWatch
from txnwatch.embedded.kafka import EmbeddedKafka

PARTITIONS = 16
WARM_UP_S, MEASURED_S = 120.0, 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def run(directory: Path, rows: list[Row]) -> None:
    """Cores and megabytes, in all and by kind of process."""
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("idle", PARTITIONS, 1)])["idle"].result(30.0)
        begin = time.monotonic()
        with RunningWatch(kafka.bootstrap_servers, directory / "checkpoint") as watch:
            watch.until_ready()
            ready_s = time.monotonic() - begin
            time.sleep(WARM_UP_S)
            before, since = cpu_seconds(watch.pid), time.monotonic()
            time.sleep(MEASURED_S)
            took = time.monotonic() - since
            cores = {name: (spent - before[name]) / took for name, spent in cpu_seconds(watch.pid).items()}
            memory = pss_bytes(watch.pid)
    figures = {
        "ready s": ready_s,
        "cores": sum(cores.values()),
        "PSS MB": sum(memory.values()) / 1e6,
        **{f"cores of {name}": of for name, of in sorted(cores.items())},
        **{f"PSS MB of {name}": size / 1e6 for name, size in sorted(memory.items())},
    }
    point = Point(PARTITIONS, took, sum(cores.values()) * took, figures=figures)
    rows.append(Row("idle", "nothing is written", "partitions", points=[point]))


def cpu_seconds(pid: int) -> Counter[str]:
    """CPU seconds of a process and all it has started, by kind of process."""
    found: Counter[str] = Counter()
    for one, name in descendants(pid).items():
        try:
            fields = Path(f"/proc/{one}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        found[name] += sum(map(int, fields[11:15])) / _TICKS_PER_S  # with those of children that have ended
    return found


def pss_bytes(pid: int) -> Counter[str]:
    """Proportional set size of a process and all it has started, by kind of process."""
    found: Counter[str] = Counter()
    for one, name in descendants(pid).items():
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        found[name] += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return found
