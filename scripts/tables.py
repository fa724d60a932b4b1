"""The tables of the pages, in Markdown. One renderer makes all of them: a column has a title and the key of its cells.

`make docs` writes each block into its place in a page, between `<!-- make docs: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# A key, an index or an attribute of a row, a text with its values in braces, or what is computed from the row.
Key = str | int | Callable[[Any], object]
_NUMBER = re.compile(r"-|[+-]?\d[\d.,]*( ?[A-Za-zµ/%]+)?")
_BLOCK = re.compile(r"^<!-- make docs: (.+?) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def table(columns: Mapping[str, Key], rows: Iterable[Any]) -> str:
    """A table with a line for each row. A column whose cells are all numbers is aligned to the right.

    Raises:
        ValueError: a column has no value in any row, so its title and the text about it are wrong.
    """
    found = [[value_of(row, key) for key in columns.values()] for row in rows]
    for title, values in zip(columns, zip(*found, strict=True), strict=True):
        if all(value is None for value in values):
            raise ValueError(f"column {title!r}: expected a value in at least one row")
    lines = [[_cell(value) for value in values] for values in found]
    rule = ["---:" if all(map(_NUMBER.fullmatch, cells)) else "---" for cells in zip(*lines, strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in ([*columns], rule, *lines))


def tables(columns: Mapping[str, Key], groups: Mapping[str, Sequence[Any]]) -> str:
    """A table for each group of rows, below its heading."""
    return "\n\n".join(f"## {heading}\n\n{table(columns, rows)}" for heading, rows in groups.items())


def grouped(rows: Iterable[Any], key: Key) -> dict[Any, list[Any]]:
    """The rows by a value of theirs; both in their order."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(value_of(row, key), []).append(row)
    return found


def filled(page: str, blocks: Mapping[str, Callable[[], str]]) -> str:
    """A page with each of its blocks made anew."""
    return _BLOCK.sub(lambda found: f"<!-- make docs: {found[1]} -->\n\n{blocks[found[1]]()}\n\n<!-- end -->", page)


def names_of(page: str) -> list[str]:
    """The names of the blocks of a page."""
    return _BLOCK.findall(page)


def value_of(row: Any, key: Key) -> object:  # noqa: ANN401 - a mapping, a tuple or an object
    """The value of a column for a row."""
    if callable(key):
        return key(row)
    if isinstance(key, str) and "{" in key:
        return key.format_map(row)
    return row[key] if isinstance(key, int) or isinstance(row, Mapping) else getattr(row, key)


def code(text: object) -> str:
    """A text as code."""
    return f"`` {text} ``" if "`" in str(text) else f"`{text}`"


def code_of(key: Key) -> Key:
    """A column whose values are code."""
    return lambda row: code(value_of(row, key))


def link_pages(text: str) -> str:
    """A description from the code, with each name of a page as a link."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1.md](\1.md)", text)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return str(value).replace("|", "\\|").replace("\n", " ")
