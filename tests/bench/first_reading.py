"""The first reading of a `__transaction_state` of a million ids: the two passes against the exact fold alone.

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

from support.large_log import a_large_log, end_of_large_log
from txnwatch.streaming.past_fold import PastFold, Room
from txnwatch.streaming.transaction_fold import TransactionFold

IDS, TEN_TIMES, LIVE = 1_000_000, 10_000_000, 10_000
WAYS = ("plain walk", "two passes", "exact fold")


class PlainWalk:
    """Adds up the lengths of batches: the least that a Python loop over them costs."""

    def feed(self, buffer: bytes) -> None:
        at, size = 0, len(buffer)
        while at + 61 <= size:
            at += 12 + int.from_bytes(buffer[at + 8 : at + 12], "big")

    def facts(self, *, is_first: bool) -> list[object]:
        del is_first
        return []


def run(directory: Path) -> None:
    """Prints each way's CPU seconds as a ratio to the plain walk, and its peak memory above the plain walk's."""
    del directory
    _print(IDS, {way: _measured(way, IDS) for way in WAYS})
    _print(TEN_TIMES, {way: _measured(way, TEN_TIMES) for way in WAYS[:2]})


def _print(ids: int, measured: dict[str, dict[str, float]]) -> None:
    plain = measured["plain walk"]
    print(f"{ids:,} ids, {LIVE:,} of them live, {plain['bytes'] / 1e6:.0f} MB, one partition of the log")
    for way, found in measured.items():
        ratio, more = found["seconds"] / plain["seconds"], found["peak_mb"] - plain["peak_mb"]
        told = f"{found['seconds']:7.2f} s CPU {ratio:7.1f} x the plain walk"
        print(f"  {way:12} {told}   peak {found['peak_mb']:5.0f} MB ({more:+.0f})   {found['facts']:,} facts")


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
        "two passes": lambda: PastFold(0, 0, end, news_from=end, room=Room()),
        "exact fold": lambda: TransactionFold(0, 0, end, news_from=end),
    }[way]()
    seconds, size = 0.0, 0
    for chunk in a_large_log(ids, live_every=ids // LIVE):
        size += len(chunk)
        begin = time.process_time()
        fold.feed(chunk)
        seconds += time.process_time() - begin
    begin = time.process_time()
    facts = sum(1 for _ in fold.facts(is_first=True))
    seconds += time.process_time() - begin
    return {"seconds": seconds, "peak_mb": _peak_mb(), "bytes": size, "facts": facts}


def _peak_mb() -> float:
    """Of this process since it began; what getrusage tells includes its parent's before the exec."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak) / 1024


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
