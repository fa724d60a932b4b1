"""`make bench`, or `make bench ARGS="scan latency"` for some of them."""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
from pathlib import Path

from bench import buckets, census, first_reading, idle, latency, many_hangs, operators, partitions, quota, scan

BENCHMARKS = {
    "scan": scan.run,
    "buckets": buckets.run,
    "operators": operators.run,
    "latency": latency.run,
    "census": census.run,
    "many_hangs": many_hangs.run,
    "idle": idle.run,
    "quota": quota.run,
    "first_reading": first_reading.run,
    "partitions": partitions.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all without a name")
    names = parser.parse_args().names or list(BENCHMARKS)
    print(f"# {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory(prefix="txnwatch-bench-") as directory:
        for name in names:
            print(f"\n## {name}", flush=True)
            BENCHMARKS[name](Path(directory) / name)


if __name__ == "__main__":
    main()
