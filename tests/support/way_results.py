"""Which commands worked with which way in, in one JSON file; a run replaces what it has run and leaves the rest."""

from __future__ import annotations

import json
from pathlib import Path


class WayResults:
    """The results of one way in; its former ones are removed first. Without a path nothing is kept."""

    def __init__(self, path: Path | None, way: str) -> None:
        self._path = path
        self._way = way
        self._found: dict[str, str] = {}
        self._write()

    def keep(self, command: str, result: str = "works") -> None:
        """Writes the result of one command."""
        self._found[command] = result
        self._write()

    def _write(self) -> None:
        if self._path is None:
            return
        rows = json.loads(self._path.read_text()) if self._path.exists() else {}
        rows[self._way] = self._found
        self._path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
