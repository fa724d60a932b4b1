"""The page of how long a stop takes, from docs/stop-times.json: the results of the last `make stop-times`."""

from __future__ import annotations

import json
from pathlib import Path

from page_tables import times_page

_ABOUT = """\
The table has the time from SIGTERM to the end of the process, by what txnwatch does at that moment. Each row has a
test, which fails above 3 s. The test also checks that the exit code is 0, and that no JVM runs 10 s later.
`make stop-times` runs the tests (`tests/e2e/test_stopping*.py` and `tests/e2e/test_abort_processes.py`) and writes this
page. [Stop](stopping.md#stop) describes what a stop does."""


def stop_times_page(root: Path, generated: str) -> str:
    """docs/stop-times.md."""
    rows = json.loads((root / "docs" / "stop-times.json").read_text())
    slowest = sorted(rows.items(), key=lambda row: -row[1]["s"])
    times = {situation: f"{row['s']:.2f} s" for situation, row in slowest}
    return times_page("Times of a stop", generated, _ABOUT, "situation", times, rows.values())
