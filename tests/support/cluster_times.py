"""How long steps on a Spark cluster take, kept in one JSON file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.result_rows import keep_row


class ClusterTimes:
    """Without a path nothing is kept, but each step must have its row in the page."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    @contextmanager
    def of(self, step: str) -> Iterator[None]:
        """Keeps the time of the block if it ends without an error."""
        begun = time.monotonic()
        yield
        keep_row(self._path, "cluster-times", step, {"s": round(time.monotonic() - begun, 1)})
