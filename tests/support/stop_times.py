"""How long a stop takes in each situation: checked, and kept in one JSON file."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from support.process_memory import descendants
from support.result_rows import keep_row
from support.waiting import eventually
from support.watch import RunningWatch

LIMIT_S = 3.0


class StopTimes:
    """Without a path nothing is kept, but each situation must have its row in the page."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def stop(self, watch: RunningWatch, situation: str) -> None:
        """Sends SIGTERM; checks that it takes at most three seconds, that the exit is clean and that no JVM is left."""
        left = descendants(watch.pid).keys() - {watch.pid}
        begun = time.monotonic()
        code = watch.stop()
        took_s = watch.ended_s - begun
        assert code == 0, watch.lines[-5:]
        assert "stopped after" in watch.lines[-1]
        assert took_s < LIMIT_S, (situation, took_s, watch.lines[-5:])
        eventually(lambda: not any(map(_is_running, left)), 10.0, lambda: f"{left} to end")
        keep_row(self._path, "stop-times", situation, {"s": round(took_s, 2)})


def _is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
