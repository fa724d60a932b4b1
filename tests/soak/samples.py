"""What txnwatch holds, sampled while the soak runs: memory, disk and open descriptors."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

from support.metrics import Scrape
from support.process_memory import descendants

EVERY_S = 10.0
_KIB = 1024


@dataclass(frozen=True)
class Sample:
    """One moment, in seconds since the start; the sums are in bytes, by part."""

    at_s: float
    pss: dict[str, int]
    disk: dict[str, int]
    descriptors: dict[str, int]
    unproven: float | None


@dataclass
class Sampler:
    """Samples until it is closed, in a thread of its own."""

    pid: int
    directories: Mapping[str, Path]
    scrape: Callable[[], Scrape]
    samples: list[Sample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start_s = time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self.samples.append(self._take())

    def _take(self) -> Sample:
        pss: dict[str, int] = {}
        descriptors: dict[str, int] = {}
        for pid, name in descendants(self.pid).items():
            part = "driver" if pid == self.pid else "JVM" if name == "java" else "workers"
            with contextlib.suppress(OSError):  # it has ended
                pss[part] = pss.get(part, 0) + pss_of(pid)
                descriptors[part] = descriptors.get(part, 0) + sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        disk = {name: bytes_below(path) for name, path in self.directories.items()}
        unproven: float | None = None
        with contextlib.suppress(OSError, HTTPException):
            scrape = self.scrape()
            unproven = sum(scrape.value("unproven_partitions", log=log) or 0.0 for log in ("data", "coordinator"))
        return Sample(round(time.monotonic() - self._start_s, 1), pss, disk, descriptors, unproven)


def pss_of(pid: int) -> int:
    """The proportional set size of a process: a page that several processes share counts once."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * _KIB for line in lines if line.startswith("Pss:"))  # none: it has just ended


def bytes_below(directory: Path) -> int:
    """The blocks on disk of all files below a directory."""
    found = 0
    for home, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # it was removed
                found += os.lstat(Path(home) / name).st_blocks * 512
    return found
