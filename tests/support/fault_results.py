"""What each fault came to, in one JSON file; a run replaces the rows it has run and leaves the others."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Result:
    """One scenario on one version.

    Attributes:
        date, machine: when and where it was measured.
        outcome_doubt: why the expected outcome was unknown in the first event.
        is_outcome_known: whether the expected outcome of a hang was known in its last event, None if nothing hangs.
        seconds: from the fault in effect to the event on its topic, None for silence.
        barriers: from the look that found it to the one that proved it, in micro-batches.
        false_verdicts: everything else that was reported; must be empty.
        others: what the other tools reported at that moment.
    """

    row: str
    name: str
    version: str
    fault: str
    truth: str
    verdict: str | None
    reason: str | None
    expected_outcome: str | None
    outcome_doubt: str | None
    is_outcome_known: bool | None
    is_named: bool
    seconds: float | None
    barriers: int | None
    resolution: str | None
    false_verdicts: list[str]
    others: dict[str, Any]
    date: str
    machine: str


class Results:
    """The file."""

    def __init__(self, path: Path, rows: dict[str, Any]) -> None:
        self._path = path
        self._rows = rows

    @classmethod
    def at(cls, path: Path) -> Results:
        """What is in the file, nothing if it is not there."""
        return cls(path, json.loads(path.read_text()) if path.exists() else {})

    def keep(self, result: Result) -> None:
        """Replaces one row and writes the file."""
        self._rows[f"{result.row}/{result.name}/{result.version}"] = asdict(result)
        self._path.write_text(json.dumps(self._rows, indent=1, sort_keys=True) + "\n")
