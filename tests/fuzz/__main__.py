"""Fuzzes all decoders for an hour. `make fuzz`, or `make fuzz ARGS="--minutes 5 event"`.

Each target has the same share of the time, in a process of its own, two at a time. A target fails if an input raises an
error of another type than those it declares, is wrong by an assertion, takes more than ten seconds, or needs more than
2 GB. Inputs that reach new code are kept. A failing input is kept too: `make test` fails until the decoder is mended.
Writes docs/fuzz.json; a run of some targets replaces their rows.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.results import machine
from fuzz.corpus import LARGEST, keep, kept, unpack
from fuzz.target import Target
from fuzz.targets import TARGETS

DOCS = Path(__file__).resolve().parents[2] / "docs"
AT_A_TIME = 2
_LIMITS = [f"-max_len={LARGEST}", "-rss_limit_mb=2048", "-timeout=10"]
_RUNS, _COVERAGE = re.compile(r"Done (\d+) runs"), re.compile(r"cov: (\d+)")
_FAILED = re.compile(r"=== Uncaught Python exception: ===\n(.+)")


@dataclass(frozen=True)
class Result:
    """What fuzzing one target gave.

    Attributes:
        name, reads: as in the target.
        typed: the errors that it may raise.
        seconds: how long inputs were tried.
        runs: how many inputs were tried.
        coverage: how many branches of txnwatch and of kafka-python's decoder were reached.
        kept: how many inputs are in its corpus now.
        failure: the error of the input that ended the run; None if there is none.
        date, machine: when and where.
    """

    name: str
    reads: str
    typed: tuple[str, ...]
    seconds: float
    runs: int
    coverage: int
    kept: int
    failure: str | None
    date: str
    machine: str


def fuzzed(target: Target, seconds: float) -> Result:
    """Fuzzes one target, then keeps a small corpus with the same coverage."""
    with tempfile.TemporaryDirectory(prefix=f"txnwatch-fuzz-{target.name}-") as directory:
        work, failing, merged = (Path(directory) / name for name in ("corpus", "failing", "merged"))
        unpack(target.name, target.first, work)
        failing.mkdir()
        merged.mkdir()
        output = _atheris(target, [str(work), f"-max_total_time={seconds:.0f}", f"-artifact_prefix={failing}/"])
        _atheris(target, ["-merge=1", str(merged), str(work)])
        found = [file.read_bytes() for file in failing.iterdir()]
        inputs = [file.read_bytes() for file in merged.iterdir()] or kept(target.name)
        keep(target.name, inputs, found)
        runs, coverage = _RUNS.findall(output), _COVERAGE.findall(output)
        error = _FAILED.search(output)
        return Result(
            name=target.name,
            reads=target.reads,
            typed=tuple(one.__name__ for one in target.typed),
            seconds=round(seconds),
            runs=int(runs[-1]) if runs else 0,
            coverage=int(coverage[-1]) if coverage else 0,
            kept=len(kept(target.name)),
            failure=None if not found and runs else (error.group(1) if error else output[-500:]),
            date=datetime.now(UTC).date().isoformat(),
            machine=machine(),
        )


def _atheris(target: Target, arguments: list[str]) -> str:
    command = [sys.executable, "-m", "fuzz.one", target.name, *_LIMITS, *arguments]
    return subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    ).stdout


def main() -> int:
    """Returns 1 if a target failed."""
    parser = argparse.ArgumentParser(prog="make fuzz", description="Fuzzes the decoders.")
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--minutes", type=float, default=60.0, help="for all targets together")
    parsed = parser.parse_args()
    chosen = [TARGETS[name] for name in parsed.targets or TARGETS]
    seconds = parsed.minutes * 60 * AT_A_TIME / len(chosen)
    results: list[Result] = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for result in pool.map(lambda target: fuzzed(target, seconds), chosen):
            results.append(result)
            state = result.failure or "no failure"
            print(f"{result.name}: {result.runs:,} inputs, {result.coverage} branches, {result.kept} kept: {state}")
    _write(results)
    return int(any(result.failure for result in results))


def _write(results: list[Result]) -> None:
    file = DOCS / "fuzz.json"
    before = json.loads(file.read_text())["targets"] if file.exists() else []
    rows = {row["name"]: row for row in (*before, *map(asdict, results))}
    found = {"atheris": version("atheris"), "targets": [rows[name] for name in TARGETS if name in rows]}
    file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
