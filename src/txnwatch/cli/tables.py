"""Lays out rows as lines of text that fit the terminal; without a terminal every row is one line and nothing is cut.

If the whole table is too wide, the main columns stay in the row and the details stand below it. If the main columns are
too wide as well, every row becomes a block with one line for each field.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TextIO

from rich.cells import cell_len, chop_cells

_BETWEEN, _INDENT = "  ", "    "
_LEAST_VALUE = 20
NONE = "-"


class Column(NamedTuple):
    """A column; a detail leaves the row if the table is too wide."""

    title: str
    is_detail: bool


def width_of(stream: TextIO) -> int | None:
    """The width of the terminal in columns; None if the stream is no terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """The lines of a table, headings first; `width` None for no limit."""
    widths = [max(map(cell_len, cells)) for cells in zip([one.title for one in columns], *rows, strict=True)]
    everything = list(range(len(columns)))
    main = [index for index in everything if not columns[index].is_detail]
    if width is None or not rows or _total(widths, everything) <= width:
        yield from _aligned(columns, rows, widths, everything)
    elif _total(widths, main) > width:
        yield from _blocks(columns, rows, width)
    else:
        headings, *lines = _aligned(columns, rows, widths, main)
        yield headings
        for line, row in zip(lines, rows, strict=True):
            yield line
            details = [index for index in everything if columns[index].is_detail and row[index] not in {NONE, ""}]
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
            *full, line = [f"{_INDENT}{part}" for part in chop_cells(line.strip(), width - len(_INDENT))]
            yield from full
    if line != _INDENT:
        yield line


def _blocks(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    longest = max(len(column.title) for column in columns)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for column, value in zip(columns, row, strict=True):
            parts = chop_cells(value, max(_LEAST_VALUE, width - longest - len(_BETWEEN))) or [""]
            yield f"{column.title:<{longest}}{_BETWEEN}{parts[0]}".rstrip()
            yield from (f"{'':<{longest}}{_BETWEEN}{part}" for part in parts[1:])
