"""How long a stop takes in each situation: checked, and kept in one JSON file.

A run replaces the rows it has run and leaves the others.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from bench.results import machine
from support.process_memory import descendants
from support.waiting import eventually
from support.watch import RunningWatch

LIMIT_S = 3.0


class StopTimes:
    """Without a path nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def stop(self, watch: RunningWatch, situation: str) -> None:
        """Sends SIGTERM; checks that it takes at most three seconds, that the exit is clean and that no JVM is left."""
        left = descendants(watch.pid).keys() - {watch.pid}
        begun = time.monotonic()
        code = watch.stop()
        took_s = time.monotonic() - begun
        assert code == 0, watch.lines[-5:]
        assert "stopped after" in watch.lines[-1]
        assert took_s < LIMIT_S, (situation, took_s, watch.lines[-5:])
        eventually(lambda: not any(map(_is_running, left)), 10.0, lambda: f"{left} to end")
        self._keep(situation, took_s)

    def _keep(self, situation: str, took_s: float) -> None:
        if self._path is None:
            return
        rows = json.loads(self._path.read_text()) if self._path.exists() else {}
        rows[situation] = {"s": round(took_s, 2), "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
        self._path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


def _is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
