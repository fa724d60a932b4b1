"""The first reading of a `__transaction_state` of many ids: the two passes against the exact fold alone.

No broker: the bytes are made chunk by chunk, and only their reading is timed. Each way runs in a process of its own, so
that its peak memory is its own; "plain walk" steps over batch headers and does nothing else, and its memory is what
making the bytes takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from bench.results import Point, Row
from support.large_log import a_large_log, end_of_large_log
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, TransactionFold

IDS, LIVE = (100_000, 1_000_000, 10_000_000), 10_000


class PlainWalk:
    """Adds up the lengths of batches: the least that a Python loop over them costs."""

    def feed(self, buffer: bytes) -> None:
        at, size = 0, len(buffer)
        while at + 61 <= size:
            at += 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")

    def facts(self, *, is_first: bool) -> list[object]:
        del is_first
        return []


def run(directory: Path, rows: list[Row]) -> None:
    """Each way's CPU seconds as a ratio to the plain walk, and its peak memory above the plain walk's."""
    del directory
    plain = {ids: _measured("plain walk", ids) for ids in IDS}
    rows.append(
        Row("first_reading", "plain walk", "transactional ids", points=[_point(ids, plain[ids]) for ids in IDS])
    )
    for way, sizes in (("two passes", IDS), ("exact fold", IDS[:2])):
        points = [_point(ids, _measured(way, ids), plain[ids]) for ids in sizes]
        rows.append(Row("first_reading", way, "transactional ids", "the plain walk", points))


def _point(ids: int, found: dict[str, float], plain: dict[str, float] | None = None) -> Point:
    ratio = found["cpu_s"] / plain["cpu_s"] if plain is not None else None
    figures = {"MB": found["bytes"] / 1e6, "peak MB": found["peak_mb"], "facts": found["facts"]}
    return Point(ids, found["wall_s"], found["cpu_s"], ratio, figures)


def _measured(way: str, ids: int) -> dict[str, float]:
    asked = [sys.executable, "-m", "bench.first_reading", way, str(ids)]
    done = subprocess.run(asked, capture_output=True, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(way: str, ids: int) -> dict[str, float]:
    """One way, in this process."""
    end = end_of_large_log(ids)
    fold: PlainWalk | TransactionFold = {
        "plain walk": PlainWalk,
        "two passes": lambda: FirstReadFold(log_numbered(0), 0, end, backlog_end=end, room=HeldBytes()),
        "exact fold": lambda: TransactionFold(log_numbered(0), 0, end, backlog_end=end),
    }[way]()
    wall_s, cpu_s, size = 0.0, 0.0, 0
    for chunk in a_large_log(ids, live_every=ids // LIVE):
        size += len(chunk)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        fold.feed(chunk)
        wall_s += time.perf_counter() - begin
        cpu_s += time.process_time() - cpu_begin
    begin, cpu_begin = time.perf_counter(), time.process_time()
    facts = sum(1 for _ in fold.facts(is_first=True))
    wall_s += time.perf_counter() - begin
    cpu_s += time.process_time() - cpu_begin
    return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": _peak_mb(), "bytes": size, "facts": facts}


def _peak_mb() -> float:
    """The peak of this process since it began. The value of getrusage includes its parent's before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak) / 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
