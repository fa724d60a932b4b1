"""Rows of results in one JSON file, by name; a run replaces the rows it has run and leaves the others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.results import machine


def keep_row(path: Path | None, name: str, row: Mapping[str, Any]) -> None:
    """Writes a row with its date and machine. Without a path nothing is kept."""
    if path is None:
        return
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[name] = {**row, "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
