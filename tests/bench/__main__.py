"""`make bench`, or `make bench ARGS="scan latency"` for some of them; writes docs/benchmarks.json and the plots."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from bench import (
    audit,
    batch_profile,
    buckets,
    budget,
    census,
    changing,
    executors,
    first_reading,
    idle,
    latency,
    many_hangs,
    million,
    operators,
    partitions,
    planning,
    quota,
    scan,
    steady,
    transaction_parts,
    transactions,
    workers,
)
from bench.results import Results, machine

BENCHMARKS = {
    "scan": scan.run,
    "audit": audit.run,
    "buckets": buckets.run,
    "budget": budget.run,
    "profile": batch_profile.run,
    "operators": operators.run,
    "executors": executors.run,
    "workers": workers.run,
    "latency": latency.run,
    "changing": changing.run,
    "census": census.run,
    "many_hangs": many_hangs.run,
    "idle": idle.run,
    "quota": quota.run,
    "first_reading": first_reading.run,
    "million": million.run,
    "partitions": partitions.run,
    "limit": partitions.run_limited,
    "planning": planning.run,
    "steady": steady.run,
    "transaction_parts": transaction_parts.run,
    "transactions": transactions.run,
}
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all without a name")
    names = parser.parse_args().names or list(BENCHMARKS)
    results = Results(RESULTS)
    print(f"# {machine()}")
    with tempfile.TemporaryDirectory(prefix="txnwatch-bench-") as directory:
        for name in names:
            print(f"\n## {name}", flush=True)
            with results.of(name) as rows:
                BENCHMARKS[name](Path(directory) / name, rows)


if __name__ == "__main__":
    main()
