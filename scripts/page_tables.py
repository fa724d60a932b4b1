"""What the pages with results share: a line of a table, and where the results are from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def table_line(cells: list[str]) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def escaped(text: str) -> str:
    """A text that does not end the cell of a table that it is in."""
    return text.replace("|", "\\|")


def places(rows: Iterable[Mapping[str, Any]]) -> str:
    """When and where results were measured, each date and machine once."""
    return "; ".join(sorted({f"{row['date']}, {row['machine']}" for row in rows}))


def times_page(
    title: str, generated: str, about: str, what: str, rows: Mapping[str, str], sources: Iterable[Mapping[str, Any]]
) -> str:
    """A page with one table of times by `what`; `sources` say when and where they were measured."""
    return "\n".join(
        [
            f"# {title}",
            "",
            generated,
            about,
            "",
            f"{places(sources)}.",
            "",
            table_line([what, "time"]),
            "|---|---:|",
            *(table_line([name, took]) for name, took in rows.items()),
            "",
        ]
    )
