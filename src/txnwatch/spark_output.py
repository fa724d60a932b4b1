"""Spark's own noise, out of the terminal: what the JVM and its workers print goes to a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Sends what this process and those it starts print to a file; the JVM keeps it for life."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    with log.open("ab") as file:
        for descriptor, _ in kept:
            os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        for descriptor, saved in kept:
            os.dup2(saved, descriptor)
            os.close(saved)
