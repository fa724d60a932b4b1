"""The kept inputs of each target: files with one input in base64 on each line.

A kept input reached code that no other one reached (corpus/), or made a decoder fail before it was mended
(corpus/failed/). `make test` tries all.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpus"
LARGEST = 4096


def kept(name: str) -> list[bytes]:
    """The kept inputs of a target; none for a new one."""
    return [*_read(DIRECTORY / "failed" / f"{name}.txt"), *_read(DIRECTORY / f"{name}.txt")]


def keep(name: str, inputs: Iterable[bytes], failed: Iterable[bytes]) -> None:
    """Replaces the kept inputs of a target, and adds those that failed; inputs that are too large are left out."""
    _write(DIRECTORY / f"{name}.txt", inputs)
    of_failed = DIRECTORY / "failed" / f"{name}.txt"
    both = [*_read(of_failed), *failed]
    if both:
        _write(of_failed, both)


def unpack(name: str, first: Iterable[bytes], into: Path) -> None:
    """Writes the kept and the first inputs of a target as files, as libFuzzer reads them."""
    into.mkdir(parents=True)
    for number, one in enumerate([*first, *kept(name)]):
        (into / f"kept-{number:04d}").write_bytes(one)


def _read(file: Path) -> list[bytes]:
    return [base64.b64decode(line) for line in file.read_text().splitlines()] if file.exists() else []


def _write(file: Path, inputs: Iterable[bytes]) -> None:
    """The smallest first."""
    small = sorted({one for one in inputs if len(one) <= LARGEST}, key=lambda one: (len(one), one))
    file.parent.mkdir(exist_ok=True, parents=True)
    file.write_text("".join(f"{base64.b64encode(one).decode()}\n" for one in small))
