"""Rows of results in JSON files, by name, from which pages are made; a run replaces the rows it has run.

A run that keeps nothing checks that the page has a row for what it has run: so no page misses a new or renamed row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from bench.results import machine

_DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def keep_row(path: Path | None, page: str, name: str, row: Mapping[str, Any]) -> None:
    """Writes a row with its date and machine; without a path, checks that the page has it."""
    if path is None:
        assert name in known_rows(page), f"no row `{name}` in docs/{page}.json; CONTRIBUTING.md has its command"
        return
    rows = json.loads(path.read_text()) if path.exists() else {}
    rows[name] = {**row, "date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    path.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


@cache
def known_rows(page: str) -> frozenset[str]:
    """The names of the rows that a page has."""
    return frozenset(json.loads((_DOCS / f"{page}.json").read_text()))
