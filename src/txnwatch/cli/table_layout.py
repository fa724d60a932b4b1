"""Lays out rows as lines of text that fit the terminal; without a terminal every row is one line.

Apart: output.py, which has 500 lines, writes what the answer of a command has.

A name that is much longer than others does not widen the table: on a terminal its middle is left out, and elsewhere
only its own row is longer. If the whole table is too wide, the details are below the row. If the main columns are too
wide as well, the last ones are also below it, but at least half of them stay in the row. If these are too wide, every
row becomes a block with one line for each field. A long value is broken between words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

_BETWEEN, _INDENT = "  ", "    "
_LEAST_VALUE = 20
_WIDEST = 64
_LEAST_IN_ROW = 2
NONE = "-"


class Column(NamedTuple):
    """A column; a detail leaves the row if the table is too wide."""

    title: str
    is_detail: bool


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """The lines of a table, headings first; `width` None for no limit."""
    widths = [max(map(cell_len, cells)) for cells in zip([column.title for column in columns], *rows, strict=True)]
    if width is None:
        widths = [min(column_width, _WIDEST) for column_width in widths]
    everything = list(range(len(columns)))
    main = [index for index in everything if not columns[index].is_detail]
    least = max(_LEAST_IN_ROW, (len(main) + 1) // 2)
    while width is not None and len(main) > least and _total(widths, main) > width:
        main.pop()
    if width is None or not rows or _total(widths, everything) <= width:
        yield from _aligned(columns, rows, widths, everything)
    elif _total(widths, main) > width:
        yield from _blocks(columns, rows, width)
    else:
        headings, *lines = _aligned(columns, rows, widths, main)
        yield headings
        for line, row in zip(lines, rows, strict=True):
            yield line
            details = [index for index in everything if index not in main and row[index] not in {NONE, ""}]
            yield from _filled([f"{columns[index].title} {row[index]}" for index in details], width)


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[index] for index in shown) + len(_BETWEEN) * (len(shown) - 1)


def _aligned(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], shown: Sequence[int]
) -> Iterator[str]:
    for row in ([column.title for column in columns], *rows):
        padded = (row[index] + " " * (widths[index] - cell_len(row[index])) for index in shown)
        yield _BETWEEN.join(padded).rstrip()


def _filled(items: Sequence[str], width: int) -> Iterator[str]:
    """As many items in a line as fit; an item that is longer than a line is broken."""
    line = _INDENT
    for item in items:
        following = item if line == _INDENT else f"{_BETWEEN}{item}"
        if line != _INDENT and cell_len(line + following) > width:
            yield line
            line, following = _INDENT, item
        line += following
        if cell_len(line) > width:
            *full, line = [f"{_INDENT}{part}" for part in _broken(item, width - len(_INDENT))]
            yield from full
    if line != _INDENT:
        yield line


def _broken(text: str, width: int) -> list[str]:
    """The text as lines; a word is broken only if it is longer than a line."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= width:
            lines[-1] = joined
        else:
            lines = [*filter(None, lines), *chop_cells(word, width)]
    return lines


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    longest = max(len(column.title) for column in columns)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for column, value in zip(columns, row, strict=True):
            parts = _broken(value, max(_LEAST_VALUE, width - longest - len(_BETWEEN)))
            yield f"{column.title:<{longest}}{_BETWEEN}{parts[0]}".rstrip()
            yield from (f"{'':<{longest}}{_BETWEEN}{part}" for part in parts[1:])
