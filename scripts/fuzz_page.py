"""The page of the fuzzer, from docs/fuzz.json: the result of the last `make fuzz`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from page_tables import places

_ABOUT = """\
The decoders of bytes that come from outside are fuzzed: what brokers answer to the requests of the scan and of a fresh
read, what a server sends before a login and during it, what a token endpoint answers, what any client can write to a
topic or to Redis, and what other programs can write to a file that txnwatch reads. Not fuzzed is what libraries decode:
TLS, Kerberos, the protocol of Redis, the answers of a schema registry, keystores (JKS and PKCS12), TOML, and the
MessagePack of the state in the checkpoint, which only txnwatch writes. `make fuzz` runs the fuzzer for an hour, two
decoders at a time, and writes this page. A run of some decoders replaces only their rows, so the figures below can be
from several runs. [Atheris](https://github.com/google/atheris) changes inputs and keeps those that reach new branches
of txnwatch or of the decoder of kafka-python, which txnwatch uses for the answers to some requests. In JSON it changes
single values, so that most inputs stay valid.

A decoder fails if it raises an error of another type than those in the table, if its result is wrong (for example if
the fast decoder of the coordinators' log and the exact one have different results, or an accepted event cannot be
written again), if one input takes more than ten seconds, or if it needs more than 2 GB. Inputs that reached new
branches, and inputs on which a decoder failed, are kept in `tests/fuzz/corpus`. `make test` tries all of them.
"""


def fuzz_page(docs: Path, generated: str) -> str:
    """docs/fuzzing.md."""
    found: dict[str, Any] = json.loads((docs / "fuzz.json").read_text())
    targets = found["targets"]
    runs, minutes = sum(one["runs"] for one in targets), sum(one["seconds"] for one in targets) / 60
    failed = sum(one["failure"] is not None for one in targets)
    return "\n".join(
        [
            "# Fuzzing",
            "",
            generated,
            _ABOUT,
            "## Result",
            "",
            f"{places(targets)}.",
            f"Atheris {found['atheris']}, {minutes:.0f} minutes (the sum over all decoders), {runs:,} inputs:",
            f"{failed} of {len(targets)} decoders failed.",
            "",
            "| Bytes | Typed errors | Seconds | Inputs tried | Branches | Inputs kept | Failure |",
            "|---|---|---:|---:|---:|---:|---|",
            *map(_row, targets),
            "",
        ]
    )


def _row(one: dict[str, Any]) -> str:
    typed = ", ".join(f"`{name}`" for name in one["typed"]) or "none: the decoder returns errors and raises none"
    failure = f"`{one['failure'].splitlines()[0][:80]}`" if one["failure"] else "none"
    cells = [
        one["reads"],
        typed,
        f"{one['seconds']:.0f}",
        f"{one['runs']:,}",
        str(one["coverage"]),
        str(one["kept"]),
        failure,
    ]
    return f"| {' | '.join(cells)} |"
