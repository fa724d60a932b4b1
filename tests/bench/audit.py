"""What `txnwatch audit` costs: by partitions, against a census of them all, and by the size of the coordinators' log.

By partitions: one broker, nothing open. The command: the same broker, and a large coordinators' log. By the log: of ids
that were used once, from bytes in memory, so without the network; every record is read, and all checks are evaluated.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from bench.census import grow, whole_census
from bench.million import write_ids
from bench.results import Point, Row
from support.audited import facts
from support.large_log import a_large_log, end_of_large_log
from support.raw_producer import RawProducer
from support.sent_requests import sent_requests
from txnwatch.state.audit.auditing import audit
from txnwatch.state.model.values import FIRST_OFFSET, Offset
from txnwatch.streaming.audit.coordinator_history import IdHistoryFold, ids_of
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch.streaming.source.census_schedule import take_census
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SIZES, ROUNDS = (1_000, 10_000), 3
IDS = (10_000, 100_000, 700_000)  # the last are 98 MB
_LOG_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class _Cost:
    wall_s: float
    cpu_s: float
    requests: int
    moved: int


def run(directory: Path, rows: list[Row]) -> None:
    """One broker that grows; then logs."""
    by_partitions = Row("audit", "an audit", "partitions", "a census")
    with EmbeddedKafka(directory / "kafka", heap="2g") as kafka:
        kafka.start()
        with closing(_connect(kafka)) as cluster:
            RawProducer(cluster, "somebody").init()
        made = 0
        for size in SIZES:
            made = grow(kafka, made, size)
            with closing(_connect(kafka)) as cluster:
                whole_census(cluster, made)  # returns once every partition has a leader
            by_partitions.points.append(_measure(kafka, made))
        with closing(_connect(kafka)) as cluster:
            write_ids(kafka.bootstrap_servers, cluster, 0, IDS[-1])
        with_log = Row("audit", "the command", "ids in the log")
        with_log.points.append(_of_command(kafka))
    by_log = Row("audit", "its log", "ids in the log")
    by_log.points += map(_of_log, IDS)
    rows += [by_partitions, with_log, by_log]


def _connect(kafka: EmbeddedKafka) -> Cluster:
    return Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security(), timeout_s=30.0)


def _measure(kafka: EmbeddedKafka, partitions: int) -> Point:
    def of_audit(cluster: Cluster) -> None:
        audit(gather(cluster, _LOG_BYTES))

    def of_census(cluster: Cluster) -> None:
        list(take_census(cluster, whole_census(cluster, partitions)))

    ours, census = _cost(kafka, of_audit), _cost(kafka, of_census)
    figures = {"requests": ours.requests, "bytes": ours.moved, "census requests": census.requests}
    figures |= {"census bytes": census.moved, "census s": census.wall_s}
    return Point(partitions, ours.wall_s, ours.cpu_s, ours.wall_s / census.wall_s, figures)


def _cost(kafka: EmbeddedKafka, measured: Callable[[Cluster], None]) -> _Cost:
    found = []
    for _ in range(ROUNDS):
        with sent_requests() as sent, closing(_connect(kafka)) as cluster:
            begin, cpu_begin = time.perf_counter(), time.process_time()
            measured(cluster)
            wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
            found.append(_Cost(wall_s, cpu_s, len(sent), cluster.traffic.sent + cluster.traffic.received))
    return sorted(found, key=lambda one: one.wall_s)[ROUNDS // 2]


def _of_command(kafka: EmbeddedKafka) -> Point:
    """The whole process, as a person starts it."""
    command = [sys.executable, "-m", "txnwatch", "audit", "--bootstrap-server", kafka.bootstrap_servers]
    found = []
    for _ in range(ROUNDS):
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--format", "json"], stdout=subprocess.DEVNULL, check=True)
        wall_s, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = sum(after[:2]) - sum(before[:2])
        found.append((wall_s, cpu_s))
    wall_s, cpu_s = sorted(found)[ROUNDS // 2]
    return Point(IDS[-1], wall_s, cpu_s)


def _of_log(ids: int) -> Point:
    chunks = list(a_large_log(ids))
    gc.disable()  # as the command does
    begin, cpu_begin = time.perf_counter(), time.process_time()
    fold = IdHistoryFold(0, FIRST_OFFSET, Offset(end_of_large_log(ids)))
    for chunk in chunks:
        fold.feed(chunk)
    audit(replace(facts(), ids=ids_of(fold, 1)))
    wall_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    gc.enable()
    return Point(ids, wall_s, cpu_s, None, {"bytes": sum(map(len, chunks))})
