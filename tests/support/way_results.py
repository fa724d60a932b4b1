"""Which commands worked with which way in, in one JSON file; a run replaces what it has run and leaves the rest."""

from __future__ import annotations

import json
from pathlib import Path


def keep(path: Path | None, way: str, command: str, result: str) -> None:
    """Writes one result; without a path it is not kept."""
    if path is None:
        return
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows.setdefault(way, {})[command] = result
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
