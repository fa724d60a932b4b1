"""What each disturbance came to, in one JSON file; a run replaces the rows it has run and leaves the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DisturbanceResult:
    """One disturbance.

    Attributes:
        said: the kinds of warnings in the log.
        date, machine: when and where it was measured.
        up, unproven, waiting: the worst values of these metrics meanwhile.
        query_starts: how often the query was started again meanwhile.
        throttled_s: for how long brokers throttled the watch, until it proved everything again.
        batch_before_s, batch_s: the mean duration of a micro-batch before the disturbance and meanwhile.
        clock_offset_s: the largest difference of a broker's clock that the metrics showed meanwhile.
        found_s: from the hang to its event.
        right_after_s: from the end of the disturbance until the hang was published and the watch proved everything.
        found_afterwards_s: from a hang after that to its event.
    """

    name: str
    fault: str
    shown: str
    version: str
    date: str
    machine: str
    lasts_s: float
    said: list[str]
    up: float
    unproven: float
    waiting: float
    query_starts: float
    throttled_s: float
    batch_before_s: float
    batch_s: float
    clock_offset_s: float
    found_s: float
    is_found_meanwhile: bool
    right_after_s: float
    found_afterwards_s: float
    false_verdicts: list[str]


class DisturbanceResults:
    """The file: a list in the order of the table."""

    def __init__(self, path: Path, order: Sequence[str]) -> None:
        self._path, self._order = path, list(order)
        rows: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
        self._rows = {row["name"]: row for row in rows if row["name"] in self._order}

    def keep(self, result: DisturbanceResult) -> None:
        """Replaces one row and writes the file."""
        self._rows[result.name] = asdict(result)
        rows = [self._rows[name] for name in self._order if name in self._rows]
        self._path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
