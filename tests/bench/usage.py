"""CPU and wall time of a process and all it has started, during a part of a benchmark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bench.idle import cpu_seconds


@dataclass
class Usage:
    """Seconds; complete when the part has ended."""

    cpu_s: float = 0.0
    took_s: float = 0.0

    @property
    def cores(self) -> float:
        """How many cores were in use."""
        return self.cpu_s / self.took_s


@contextmanager
def usage_of(pid: int) -> Iterator[Usage]:
    """The usage of a process while the block runs."""
    usage, before, since = Usage(), sum(cpu_seconds(pid).values()), time.monotonic()
    yield usage
    usage.took_s = time.monotonic() - since
    usage.cpu_s = sum(cpu_seconds(pid).values()) - before
