"""Which commands worked with which way in, and whether a secret was shown, in one JSON file."""

from __future__ import annotations

from pathlib import Path

from support.result_rows import keep_row


class WayResults:
    """The results of one way in; its former ones are removed first.

    Without a path nothing is kept, but the page must have the way.
    """

    def __init__(self, path: Path | None, way: str) -> None:
        self._path = path
        self._way = way
        self._found: dict[str, str] = {}
        keep_row(path, "ways-in", way, self._found)

    def keep(self, column: str, result: str = "works") -> None:
        """Writes the result of one command, or of the search for secrets."""
        self._found[column] = result
        keep_row(self._path, "ways-in", self._way, self._found)
