"""Tables in Markdown."""

from __future__ import annotations


def table_line(cells: list[str]) -> str:
    """One line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"
