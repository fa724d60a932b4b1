"""What a watch of an idle cluster costs: CPU of each kind of process, and memory.

One broker, the default trigger, nothing written, one watch after the other with ten times as many partitions. CPU is
counted from /proc over a minute, two minutes after the first verdict was possible. Memory is the proportional set size
(PSS): shared pages are counted once.
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
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

PARTITIONS = (16, 160, 1_600)
WARM_UP_S, MEASURED_S = 120.0, 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def run(directory: Path, rows: list[Row]) -> None:
    """Cores and megabytes, in all and by kind of process."""
    row = Row("idle", "nothing is written", "partitions", f"{PARTITIONS[0]} partitions")
    with EmbeddedKafka(directory / "kafka") as kafka:
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for count in PARTITIONS:
            topic = f"idle-{count}"
            admin.create_topics([NewTopic(topic, count, 1)])[topic].result(60.0)
            row.points.append(_idle(kafka.bootstrap_servers, topic, count, directory, row.points))
    rows.append(row)


def _idle(bootstrap: str, topic: str, count: int, directory: Path, before: list[Point]) -> Point:
    begin = time.monotonic()
    with RunningWatch(bootstrap, directory / f"checkpoint-{count}", "--topics", topic) as watch:
        watch.until_ready()
        ready_s = time.monotonic() - begin
        time.sleep(WARM_UP_S)
        counted, since = cpu_seconds(watch.pid), time.monotonic()
        time.sleep(MEASURED_S)
        took = time.monotonic() - since
        cores = {name: (spent - counted[name]) / took for name, spent in cpu_seconds(watch.pid).items()}
        memory = pss_bytes(watch.pid)
    total = sum(cores.values())
    figures = {
        "ready s": ready_s,
        "cores": total,
        "PSS MB": sum(memory.values()) / 1e6,
        **{f"cores of {name}": of for name, of in sorted(cores.items())},
        **{f"PSS MB of {name}": size / 1e6 for name, size in sorted(memory.items())},
    }
    smallest = before[0].figures["cores"] if before else total
    return Point(count, took, total * took, total / smallest, figures)


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


def children_cpu_s() -> float:
    """CPU seconds of the processes that this one has started and that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


def pss_bytes(pid: int) -> Counter[str]:
    """Proportional set size of a process and all it has started, by kind of process."""
    found: Counter[str] = Counter()
    for one, name in descendants(pid).items():
        found[name] += pss_of(one)
    return found


def pss_of(pid: int) -> int:
    """Proportional set size of one process, in bytes; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
