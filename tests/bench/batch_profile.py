"""Where the CPU time of one micro-batch goes if 10,000 producers change in it: the share of each part.

The same batches as in tests/bench/buckets.py, with Arrow on both sides of the operator as in Spark. CPU seconds are
without the profiler. The shares are from cProfile, which makes parts with many small Python calls look larger.
"""

from __future__ import annotations

import pstats
import time
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.buckets import BUCKETS, batch_of
from bench.results import Point, Row
from support.state_variables import Handle
from txnwatch.state.detection.bucket import evaluate, process
from txnwatch.state.detection.loaded_producers import LoadedProducers
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import KeptBucket, load
from txnwatch.streaming.job.operator import BucketProcessor
from txnwatch.streaming.source.rows import pack_facts, packed_batch, unpack_facts

CHANGING, BATCHES, SETTLING = 10_000, 10, 4


def run(directory: Path, rows: list[Row]) -> None:
    """One size, without and with the profiler."""
    del directory
    wall_s, cpu_s = _seconds(None)
    profile = Profile(time.process_time)
    _seconds(profile)
    row = Row("profile", "share of each part", "producers that change")
    row.points.append(Point(CHANGING, wall_s, cpu_s, figures=_shares(profile)))
    rows.append(row)


def _seconds(profile: Profile | None) -> tuple[float, float]:
    """Wall and CPU seconds of a batch, the mean of those after the first few."""
    handles = [Handle() for _ in range(BUCKETS)]
    processors = [BucketProcessor(DetectionPolicy()) for _ in range(BUCKETS)]
    for processor, handle in zip(processors, handles, strict=True):
        processor.init(handle)
    wall_s = cpu_s = 0.0
    for number in range(1, BATCHES + 1):
        facts = batch_of(number, 0, CHANGING, "")
        is_settled = number > SETTLING
        if profile is not None and is_settled:
            profile.enable()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        _batch(processors, facts)
        wall_s += (time.perf_counter() - begin) * is_settled
        cpu_s += (time.process_time() - cpu_begin) * is_settled
        if profile is not None:
            profile.disable()
    return wall_s / (BATCHES - SETTLING), cpu_s / (BATCHES - SETTLING)


def _batch(processors: list[BucketProcessor], facts: list[Fact]) -> None:
    """One micro-batch: the source's task, then each bucket."""
    for bucket, blob in _from_arrow(packed_batch(facts, range(BUCKETS))):
        found = processors[bucket].handleInputRows((bucket,), iter([(bucket, blob)]), None)
        _to_arrow([finding[0] for finding in found])


def _from_arrow(batch: pa.RecordBatch) -> list[tuple[int, bytes]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _to_arrow(findings: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(findings, pa.binary())], names=["finding"])


def _shares(profile: Profile) -> dict[str, float]:
    """Percent of the whole of each part; a part that contains another one is counted without it."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]

    def spent(function: Callable[..., Any]) -> float:
        """Seconds in a function and all that it calls: `process` contains the evaluation, and reads the state."""
        code = function.__code__
        return float(stats[code.co_filename, code.co_firstlineno, code.co_name][3])

    changes, read = spent(LoadedProducers.store_changes), spent(KeptBucket.get)
    parts = {
        "pack facts": spent(pack_facts),
        "Arrow": spent(packed_batch) - spent(pack_facts) + spent(_to_arrow) + spent(_from_arrow),
        "decode facts": spent(unpack_facts),
        "read state": spent(load) + read,
        "apply": spent(process) - spent(evaluate) - changes - read,
        "evaluate": spent(evaluate),
        "store state": changes + spent(KeptBucket.write),
    }
    whole = spent(_batch)
    parts["the rest"] = whole - sum(parts.values())
    return {f"% {name}": 100 * part / whole for name, part in parts.items()}
