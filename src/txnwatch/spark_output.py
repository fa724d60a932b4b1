"""Redirects the output of Spark (the JVM and its workers) from the terminal to a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """Redirects the output of this process and its children to a file; a JVM started here keeps the file."""
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
