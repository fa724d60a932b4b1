"""The stateful operator alone, without Spark: CPU of one micro-batch, by how much is open and how much changes.

All sixteen buckets of one micro-batch after the other, in one process, with dicts for Spark's state variables. What is
open is an Ongoing transaction that has data on one of sixteen partitions; what changes has ended a transaction and
begun the next. Packing is what the source's task pays for the same facts. Apart from that, Spark's own share is missing
here: tests/bench/operators.py has it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.results import Point, Row
from support.state_variables import Handle
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    OpenDescribed,
    ProducerSeen,
    TransactionSeen,
)
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor
from txnwatch.streaming.source.rows import pack_facts

BUCKETS, BATCHES, SETTLING, TRIGGER_MS = 16, 30, 4, 500
START_MS = 1_700_000_000_000
PARTITIONS = [TopicPartition("orders", number) for number in range(16)]
OPEN_FROM, CHANGING_FROM = 50_000_000, 70_000_000
OPEN, CHANGING = (1_000, 10_000, 100_000), (100, 1_000, 10_000)


def open_facts(number: int, now_ms: int) -> tuple[Fact, ...]:
    """A transaction that began and goes on."""
    producer_id, partition = OPEN_FROM + number, PARTITIONS[number % 16]
    held, offset = frozenset({partition}), number // 16
    view = CoordinatorView(
        f"open-{number}", number % 4, number, TransactionState.ONGOING, 0, 900_000, now_ms, now_ms, now_ms, held
    )
    seen = ProducerSeen(
        partition, "id", producer_id, offset, offset + 1, offset, 0, None, None, offset, 0, 0, offset, now_ms, now_ms
    )
    return TransactionSeen(producer_id, view), seen


def changing_facts(batch: int, number: int, now_ms: int, partitions: int = 1) -> tuple[Fact, ...]:
    """A transaction that ended on some partitions, and the next that began on them."""
    producer_id = CHANGING_FROM + number
    places = [PARTITIONS[(number + step) % 16] for step in range(partitions)]
    held, start = frozenset(places), batch * 1_000_000
    marker = Marker(start + 5, 0, commit=True, coordinator_epoch=0, timestamp_ms=now_ms)
    view = CoordinatorView(
        f"id-{number}", number % 4, 10**9 + batch, TransactionState.ONGOING, 0, 60_000, now_ms, now_ms, now_ms, held
    )
    seen = (
        ProducerSeen(
            partition,
            "id",
            producer_id,
            start,
            start + 1_000,
            start,
            0,
            marker,
            marker,
            start + 9,
            0,
            0,
            start + 9,
            now_ms,
            now_ms,
        )
        for partition in places
    )
    return TransactionSeen(producer_id, view, held), *seen


def census_facts(of: str, is_open: int, now_ms: int) -> Iterator[Fact]:
    """A census of three partitions that nobody has anything open on, or of all that are scanned."""
    if of == "three others":
        others = [TopicPartition("other", number) for number in range(3)]
        yield CensusTaken({partition: CensusListing("id", 10, 10, is_scanned=False) for partition in others})
    elif of:
        yield CensusTaken({partition: CensusListing("id", 10**9, 0, is_scanned=True) for partition in PARTITIONS})
        for number in range(is_open):
            yield OpenDescribed(PARTITIONS[number % 16], OPEN_FROM + number, 0, number // 16, START_MS, now_ms)


def batch_of(batch: int, is_open: int, changing: int, census: str, partitions: int = 1) -> list[Fact]:
    """The facts of one micro-batch; the first begins all that is open."""
    now_ms = START_MS + batch * TRIGGER_MS
    facts: list[Fact] = [Barrier(batch, now_ms, now_ms)]
    if batch == 1:
        for number in range(is_open):
            facts.extend(open_facts(number, now_ms))
        return facts
    for step in range(changing):
        facts.extend(changing_facts(batch, (batch * changing + step) % (2 * changing), now_ms, partitions))
    facts.extend(census_facts(census, is_open, now_ms))
    return facts


class Measured(NamedTuple):
    """CPU seconds of a batch, median and largest, of packing it, and its counts; the first few left out.

    Attributes:
        wall_s: the median time of a batch.
        calls: calls of state variables in a batch.
        rows, row_bytes: what a batch sends to the driver.
    """

    wall_s: float
    working_s: float
    largest_s: float
    packing_s: float
    calls: float
    rows: float
    row_bytes: float

    def point(self, size: int, beside: Measured) -> Point:
        figures = {"CPU s, largest": self.largest_s, "CPU s to pack": self.packing_s, "state calls": self.calls}
        return Point(size, self.wall_s, self.working_s, self.working_s / beside.working_s, figures)


def measure(is_open: int, changing: int = 0, census: str = "", partitions: int = 1) -> Measured:
    """Some batches over all buckets."""
    handles = [Handle() for _ in range(BUCKETS)]
    processors = [BucketProcessor(DetectionPolicy()) for _ in range(BUCKETS)]
    for processor, handle in zip(processors, handles, strict=True):
        processor.init(handle)
    packing, walls, working, calls = [], [], [], []
    emitted: list[list[int]] = []
    for batch in range(1, BATCHES + 1):
        facts = batch_of(batch, is_open, changing, census, partitions)
        begun = time.process_time()
        rows = list(pack_facts(facts, BUCKETS))
        packed, wall_begun = time.process_time(), time.perf_counter()
        findings = [
            finding for row in rows for finding in processors[row[0]].handleInputRows((row[0],), iter([row]), None)
        ]
        packing.append(packed - begun)
        working.append(time.process_time() - packed)
        walls.append(time.perf_counter() - wall_begun)
        calls.append(sum(handle.take_calls() for handle in handles))
        emitted.append([len(finding[0]) for finding in findings])
    kept = slice(SETTLING, None)
    return Measured(
        statistics.median(walls[kept]),
        statistics.median(working[kept]),
        max(working[kept]),
        statistics.median(packing[kept]),
        statistics.mean(calls[kept]),
        statistics.mean(len(sizes) for sizes in emitted[kept]),
        statistics.mean(sum(sizes) for sizes in emitted[kept]),
    )


def run(directory: Path, rows: list[Row]) -> None:
    """By how much is open, and by how much changes."""
    del directory
    none = measure(0)
    for name, census in (
        ("nothing changes", ""),
        ("a census of three other partitions in each batch", "three others"),
        ("a census of all partitions in each batch", "all"),
    ):
        points = [measure(size, census=census).point(size, none) for size in OPEN]
        rows.append(Row("buckets", name, "open transactions", "none open", points))
    for is_open in (0, 10_000):
        at_rest = measure(is_open)
        points = [measure(is_open, size).point(size, at_rest) for size in CHANGING]
        rows.append(Row("buckets", f"{is_open:,} others open", "producers that change", "none changing", points))
    # `at_rest` is that of the ten thousand; docs/capacity.md is computed from this row.
    points = [measure(is_open, size, partitions=3).point(size, at_rest) for size in CHANGING]
    name = f"{is_open:,} others open, three partitions each"
    rows.append(Row("buckets", name, "producers that change", "none changing", points))
