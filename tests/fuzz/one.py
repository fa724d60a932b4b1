"""Fuzzes one target in this process: `python -m fuzz.one NAME [libFuzzer's arguments]`."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["txnwatch", "kafka.protocol"]):
    from fuzz.targets import TARGETS
from fuzz.json_values import changed


def mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """The input with one JSON value changed, or changed as libFuzzer does."""
    found = changed(data, seed) if seed % 2 else None
    return found if found is not None and len(found) <= max_size else atheris.Mutate(data, max_size)


def main() -> None:
    """Runs until libFuzzer's arguments end it, or until an input fails."""
    _, name, *arguments = sys.argv
    again = f"{sys.executable} -m fuzz.one {name}"  # with -merge=1 libFuzzer starts itself again through a shell
    target = TARGETS[name]
    mutator = {"custom_mutator": mutated} if target.is_json else {}
    atheris.Setup([again, *arguments], target.try_with, **mutator)
    atheris.Fuzz()


main()
