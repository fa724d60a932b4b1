"""A soak: healthy applications under constant disturbances. `make soak`, or `make soak ARGS="--minutes 10"`.

Three brokers with three replicas. A few dozen transactional clients write, copy and commit. Brokers restart one after
the other, coordinators move, clients die with a transaction open and are timed out, transactional ids and producer ids
expire, retention deletes data, and Redis is killed and comes back, sometimes empty. A run fails if

- a verdict is false: true are only `hanging` for the hangs that the soak makes, and `stuck_prepare` and `late` if the
  coordinators' log, which another consumer reads, shows a transaction for so long in that state (if the controller
  takes half a minute to restart, no partition gets a new leader, and markers really wait for so long);
- a hang is not found within a minute, or an incident is still open at the end;
- Redis does not agree with the events topic within a minute after it came back;
- memory, disk or open descriptors grow by more than the bounds of `result.py`.

SIGTERM ends a run early; its result then has the minutes until that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.results import machine
from soak import hangs as soaked_hangs
from soak.backlog import backlog
from soak.brokers import BROKER, LOG_PARTITIONS
from soak.coordinator_log import CoordinatorLog
from soak.hangs import Hangs
from soak.plot import plot
from soak.redis_outages import RedisOutages, latest_of
from soak.result import BOUNDS, counts_of, false_verdicts, growth_of, write
from soak.samples import Sampler
from soak.trouble import PARTITIONS, PAUSE_S, SOURCE, Trouble
from support.event_tail import EventTail
from support.fleet import fleet_of
from support.metrics import Scrape
from support.servers import connect
from support.topics import create_topic
from support.watch import RunningWatch
from txnwatch.streaming.job.jvm import can_prepare
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

EVENTS, TARGET = "soak.events", "soak.target"
COPIERS = 3
IDLE_RETENTION_MS = 120_000
DOCS = Path(__file__).resolve().parents[2] / "docs"
_SHORT_LOG = {"retention.ms": "600000", "segment.ms": "60000"}
_READY_S = 300.0  # a broker, while other work uses the machine
_WARM_UP_S = 10.0
_SETTLE_S = 25.0  # a client that died last is timed out, and the coordinator's scan comes every 10 s
_COUNTERS = ("query_starts_total", "batches_total", "decode_failures_total")


def soak(minutes: float, writers: int) -> dict[str, Any]:
    """Runs it and returns what came of it; `problems` is empty if all is right."""
    with (
        tempfile.TemporaryDirectory(prefix="txnwatch-soak-") as directory,
        EmbeddedKafka(Path(directory) / "kafka", brokers=3, properties=BROKER) as kafka,
        EmbeddedRedis(Path(directory) / "redis") as redis,
    ):
        home = Path(directory)
        kafka.ready_s = _READY_S
        scratch = home / "scratch"
        scratch.mkdir()
        os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
        kafka.start(print)
        redis.start(print)
        with contextlib.closing(connect(kafka, timeout_s=3.0)) as cluster:
            for topic in (SOURCE, TARGET):
                create_topic(cluster, topic, PARTITIONS, config=_SHORT_LOG)
            create_topic(cluster, soaked_hangs.TOPIC, PARTITIONS)
            create_topic(cluster, EVENTS, config={"cleanup.policy": "compact"})
            flags = ("--events-topic", EVENTS, "--redis-url", redis.url, "--http-port", "0")
            watch = RunningWatch(kafka.bootstrap_servers, home / "checkpoint", *flags)
            at = watch.command.index("txnwatch")
            watch.command[at : at + 1] = ["support.short_retention", str(IDLE_RETENTION_MS)]
            with (
                contextlib.closing(EventTail(kafka.bootstrap_servers, EVENTS)) as tail,
                contextlib.closing(CoordinatorLog(kafka.bootstrap_servers, LOG_PARTITIONS)) as log,
                contextlib.ExitStack() as running,
            ):
                with backlog(cluster):
                    running.enter_context(watch).until_ready()
                cluster_id = str(cluster.refresh().cluster_id)
                trouble = Trouble(kafka, cluster, Hangs(kafka, cluster, tail), RedisOutages(redis, cluster_id, tail))
                directories = {"checkpoint": home / "checkpoint", "scratch": scratch}
                sampler = Sampler(watch.pid, directories, lambda: Scrape.at(watch.metrics_url))
                with contextlib.closing(sampler):
                    return _run(trouble, log, watch, sampler, minutes, writers)


def _run(
    trouble: Trouble, log: CoordinatorLog, watch: RunningWatch, sampler: Sampler, minutes: float, writers: int
) -> dict[str, Any]:
    fleet = fleet_of(trouble.kafka.bootstrap_servers, SOURCE, TARGET, writers=writers, copiers=COPIERS)
    began = datetime.now(UTC)
    with fleet.kept_up():
        time.sleep(_WARM_UP_S)
        minutes = _disturb(trouble, watch, minutes)
        trouble.end()
        trouble.hangs.finish()
        time.sleep(_SETTLE_S)
        sampler.close()
        scrape = Scrape.at(watch.metrics_url) if watch.is_running else None
        result = _result(trouble, log, watch, sampler, minutes)
    result |= {
        "date": f"{began:%Y-%m-%d}",
        "machine": machine(),
        "kafka": trouble.kafka.version,
        "minutes": minutes,
        "applications": len(fleet.makers),
        "steps": fleet.steps,
        "application_restarts": fleet.restarts,
        "metrics": {name: scrape.value(name) for name in _COUNTERS} if scrape is not None else {},
    }
    write(DOCS / "soak.json", result, sampler.samples)
    plot(DOCS / "soak.svg", [asdict(sample) for sample in sampler.samples])
    return result


def _disturb(trouble: Trouble, watch: RunningWatch, minutes: float) -> float:
    """Disturbs for so long, or until SIGTERM; returns the minutes."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    begin = told = time.monotonic()
    end = begin + minutes * 60
    while time.monotonic() < end and watch.is_running and not stop.is_set():
        pause = time.monotonic() + PAUSE_S
        trouble.next()
        while time.monotonic() < pause:
            trouble.hangs.keep_up()
            trouble.redis.keep_up()
            time.sleep(0.5)
        if time.monotonic() > told + 60:
            told = time.monotonic()
            events = counts_of([one.event for one in trouble.hangs.tail.published])
            print(f"minute {(told - begin) / 60:.0f}: {dict(trouble.done)}, {events}", flush=True)
    return (time.monotonic() - begin) / 60


def _result(
    trouble: Trouble, log: CoordinatorLog, watch: RunningWatch, sampler: Sampler, minutes: float
) -> dict[str, Any]:
    tail = trouble.hangs.tail
    events = [one.event for one in tail.published]
    hangs, redis = trouble.hangs, trouble.redis
    wrong = false_verdicts(events, hangs.made, log)
    growth = growth_of(sampler.samples, minutes * 60)
    seconds = hangs.seconds()
    problems = [f"a false verdict: {text}" for text in wrong]
    problems += [f"not found within a minute: {hang}" for hang in hangs.missed()]
    problems += [f"still open at the end: {event.subject}" for event in latest_of(tail).values() if event.is_open]
    problems += redis.problems()
    problems += [] if redis.agrees() else ["Redis does not agree with the events topic at the end"]
    problems += [f"{name} grew: {found}" for name, found in growth.items() if not found.is_flat]
    problems += [] if watch.is_running else [f"txnwatch ended: {watch.lines[-3:]}"]
    return {
        "problems": problems,
        "false_verdicts": wrong,
        "trouble": dict(trouble.done),
        "events": counts_of(events),
        "hangs": {
            "made": len(hangs.made),
            "missed": len(hangs.missed()),
            "median_s": statistics.median(seconds) if seconds else None,
            "slowest_s": seconds[-1] if seconds else None,
            "outcomes": hangs.outcomes(),
        },
        "redis": {
            "outages": redis.count,
            "flushed": redis.flushed,
            "median_s": statistics.median(redis.right_after_s) if redis.right_after_s else None,
            "slowest_s": max(redis.right_after_s, default=None),
        },
        "growth": {name: vars(found) for name, found in growth.items()},
        "bounds": BOUNDS,
        "warnings": dict(Counter(line.split("Z  ", 1)[-1][:60] for line in watch.lines if "warning" in line)),
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make soak ARGS=", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--writers", type=int, default=24)
    arguments = parser.parse_args()
    if can_prepare():  # else a second JVM makes the archive beside the watch, and its memory is measured, too
        subprocess.run([sys.executable, "-P", "-m", "txnwatch", "prepare"], check=True)
    result = soak(arguments.minutes, arguments.writers)
    for name in ("minutes", "applications", "steps", "trouble", "events", "hangs", "redis", "growth", "warnings"):
        print(f"{name}: {result[name]}")
    print("problems:", *(result["problems"] or ["none"]), sep="\n  ")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
