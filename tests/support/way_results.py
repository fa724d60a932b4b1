"""Which commands worked with which way in, in one JSON file; a run replaces what it has run and leaves the rest.

A row also has its date and machine, and whether a secret was shown.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from bench.results import machine


class WayResults:
    """The results of one way in; its former ones are removed first. Without a path nothing is kept."""

    def __init__(self, path: Path | None, way: str) -> None:
        self._path = path
        self._way = way
        self._found = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
        self._write()

    def keep(self, column: str, result: str = "works") -> None:
        """Writes the result of one command, or of the search for secrets."""
        self._found[column] = result
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        rows = json.loads(self._path.read_text()) if self._path.exists() else {}
        rows[self._way] = self._found
        self._path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
