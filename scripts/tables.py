"""The tables of the pages, in Markdown: the rows come from code or from results, the columns are in the page.

A block of a page begins with `<!-- make docs: NAME` and ends with `<!-- end -->`. The comment has the text above the
table, the titles of the columns and below them what the cells show; these lines are made for each row. A line that
begins with the path of a value is made once, of that value: `soak | hangs | {hangs.made} |`. A block whose comment has
no more than its name has its whole text from the code.

`{seconds}` is a value of the row by its type, `{seconds:.1f}` in a format, `{name!c}` as code, and `{names!n}` is the
number of names. A name may be a path: `{hangs.made}`, `{1.means}`. A cell is a dash if a value in it is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

Key = str | int | Callable[[Any], object]  # a text with names in braces, the path of a value, or what makes the value
# The text of a block, its rows, or the values of its text, with the rows if they are not one row themselves.
Content = str | Sequence[Any] | Mapping[str, Any]
_NUMBER = re.compile(r"-|[+-]?\d[\d.,]*( ?[A-Za-zµ/%]+)?")
_BLOCK = re.compile(
    r"^<!-- make docs: (?P<name>[^\n]+?)(?P<form>\n.*?\n-->| -->)\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)


def filled(page: str, blocks: Mapping[str, Callable[[], Content]]) -> str:
    """A page with each of its blocks made anew."""

    def made(found: re.Match[str]) -> str:
        name, form = found["name"], found["form"]
        content = blocks[name]()
        text = content if isinstance(content, str) else formed(form.removesuffix("\n-->"), content)
        return f"<!-- make docs: {name}{form}\n\n{text}\n\n<!-- end -->"

    return _BLOCK.sub(made, page)


def names_of(page: str) -> list[str]:
    """The names of the blocks of a page."""
    return [found["name"] for found in _BLOCK.finditer(page)]


def formed(form: str, content: Content) -> str:
    """The text of a block."""
    values = content if isinstance(content, Mapping) else {"rows": content}
    parts = []
    for part in form.strip("\n").split("\n\n"):
        if part.startswith("  | "):
            (_, *titles), *lines = [[cell.strip() for cell in line.split("|")[:-1]] for line in part.splitlines()]
            found = [
                [_text(row, cell) for cell in cells]
                for place, *cells in lines
                for row in ([_at(values, place)] if place else values.get("rows", [values]))
            ]
            parts.append(_laid_out(titles, found))
        else:
            parts.append(str(_text(values, part)))
    return "\n\n".join(parts)


def table(columns: Mapping[str, Key], rows: Iterable[Any]) -> str:
    """A table whose columns depend on the code or the results."""
    return _laid_out([*columns], [[value_of(row, key) for key in columns.values()] for row in rows])


def grouped(rows: Iterable[Any], key: Key) -> dict[Any, list[Any]]:
    """The rows by a value of theirs; both in their order."""
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(value_of(row, key), []).append(row)
    return found


def value_of(row: Any, key: Key) -> Any:  # noqa: ANN401 - a mapping, a tuple or an object
    """The value of a cell."""
    if callable(key):
        return key(row)
    return _text(row, key) if isinstance(key, str) and "{" in key else _at(row, str(key))


def code(text: object) -> str:
    """A text as code."""
    return f"`` {text} ``" if "`" in str(text) else f"`{text}`"


def link_pages(text: str) -> str:
    """A description from the code, with each name of a page as a link."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1.md](\1.md)", text)


def _laid_out(titles: Sequence[str], found: Sequence[Sequence[object]]) -> str:
    """A line for each row. A column whose cells are all numbers is aligned to the right.

    Raises:
        ValueError: a column has no value in any row, so its title and the text about it are wrong.
    """
    for title, values in zip(titles, zip(*found, strict=True), strict=True):
        if all(value is None for value in values):
            raise ValueError(f"column {title!r}: expected a value in at least one row")
    lines = [[_plain(value).replace("|", "\\|").replace("\n", " ") for value in values] for values in found]
    rule = ["---:" if all(map(_NUMBER.fullmatch, cells)) else "---" for cells in zip(*lines, strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, rule, *lines))


def _text(row: Any, text: str) -> str | None:  # noqa: ANN401 - a mapping, a tuple or an object
    parts = []
    for before, path, form, kind in Formatter().parse(text):
        parts.append(before)
        if path is not None:
            value = _at(row, path)
            if value is None or (kind == "c" and not value):
                return None
            if kind == "n":
                value = len(value)
            elif kind == "c":
                value = ", ".join(map(code, value if isinstance(value, list | tuple) else [value]))
            parts.append(format(value, form) if form else _plain(value))
    return "".join(parts)


def _at(row: Any, path: str) -> Any:  # noqa: ANN401 - what a row has
    """The value at a path of keys, indexes or attributes; None if a value on the way is. A key may have dots."""
    if row is None or not path:
        return row
    if isinstance(row, Mapping):
        key = max((one for one in row if f"{path}.".startswith(f"{one}.")), key=len, default=path)
        return _at(row[key], path[len(key) + 1 :])
    part, _, rest = path.partition(".")
    return _at(row[int(part)] if part.isdigit() else getattr(row, part), rest)


def _plain(value: object) -> str:
    """A value by its type."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_plain(count)} {name}" for name, count in value.items())
    return str(value)
