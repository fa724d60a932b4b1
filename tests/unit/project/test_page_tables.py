"""The renderer of all tables of the pages."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "scripts")
    return importlib.import_module("tables")


def test_a_column_is_a_path_a_text_or_computed(tables: ModuleType) -> None:
    assert tables.table({"name": "key", "twice": lambda row: row["key"] * 2}, [{"key": "a"}]) == (
        "| name | twice |\n| --- | --- |\n| a | aa |"
    )
    assert tables.table({"time": "{s:.1f} s"}, [{"s": 0.25}]) == "| time |\n| ---: |\n| 0.2 s |"
    assert tables.table({"name": 1}, [("a", "b")]) == "| name |\n| --- |\n| b |"
    assert tables.table({"name": "key"}, [SimpleNamespace(key="a")]) == "| name |\n| --- |\n| a |"
    assert tables.table({"name": "1.key"}, [("a", SimpleNamespace(key="b"))]) == "| name |\n| --- |\n| b |"


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("{names!c}", "`a`, `b`"),
        ("{name!c}", "`a`"),
        ("{names!n} names", "2 names"),
        ("{of}", "3 x, 1,000 y"),
        ("{a. b.c} of {many}", "1 of 1,000"),
        ("{none} of {many}", "-"),
        ("{none}", "-"),
        ("{none.deeper!c}", "-"),
        ("{nobody!c}", "-"),
    ],
)
def test_a_text_shows_the_values_of_its_row(tables: ModuleType, text: str, cell: str) -> None:
    row = {"name": "a", "names": ["a", "b"], "of": {"x": 3, "y": 1000}, "a. b": {"c": 1}, "many": 1000}
    row |= {"none": None, "nobody": []}
    other = dict.fromkeys(row, 1) | {"names": ["a"], "name": "a", "nobody": ["a"]}
    other |= {"a. b": {"c": 1}, "none": {"deeper": "a"}}
    assert tables.table({"a": text}, [row, other]).splitlines()[2] == f"| {cell} |"


@pytest.mark.parametrize("text", ["{gone}", "{name} {of.gone}"])
def test_a_name_that_the_row_does_not_have_is_an_error(tables: ModuleType, text: str) -> None:
    with pytest.raises(KeyError, match="gone"):
        tables.formed(f"  | a |\n  | {text} |", [{"name": "a", "of": {"x": 3}}])


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (12345, "12,345"),
        (1234.5, "1,234"),
        (0.12345, "0.123"),
        (True, "yes"),
        (False, "no"),
        ("a|b", "a\\|b"),
        ("a\nb", "a b"),
    ],
)
def test_a_value_is_shown_by_its_type(tables: ModuleType, value: object, cell: str) -> None:
    assert tables.table({"a": 0}, [(value,)]).splitlines()[2] == f"| {cell} |"


@pytest.mark.parametrize(
    ("values", "rule"),
    [(("1", 2, None), "---:"), (("1.5 s", "+3%", "2 MB"), "---:"), (("1", "2 of 3 runs"), "---"), (("a",), "---")],
)
def test_a_column_of_numbers_is_aligned_to_the_right(tables: ModuleType, values: tuple[object, ...], rule: str) -> None:
    assert tables.table({"a": 0}, [(value,) for value in values]).splitlines()[1] == f"| {rule} |"


def test_a_column_without_any_value_is_an_error(tables: ModuleType) -> None:
    assert tables.table({"a": 0, "b": 1}, [(1, None), (None, 2)]).splitlines()[2:] == ["| 1 | - |", "| - | 2 |"]
    with pytest.raises(ValueError, match="column 'b'"):
        tables.table({"a": 0, "b": 1}, [(1, None)])


def test_blocks_are_made_anew_and_the_text_between_them_stays(tables: ModuleType) -> None:
    page = "Text `<!-- make docs: a -->`.\n\n<!-- make docs: a -->\n\nold\n\n<!-- end -->\n\nMore.\n"
    assert tables.names_of(page) == ["a"]
    made = tables.filled(page, {"a": lambda: r"new \1"})
    assert made == page.replace("old", r"new \1")
    assert tables.filled(made, {"a": lambda: r"new \1"}) == made
    with pytest.raises(KeyError):
        tables.filled(page, {})


FORM = """
{measured}.

{rows!n} faults.

  |  | seconds | fault |
  | {name!c} | {s:.1f} s | {fault} |"""


def test_the_columns_of_a_block_are_in_the_page(tables: ModuleType) -> None:
    page = f"<!-- make docs: a{FORM}\n-->\n\nold\n\n<!-- end -->\n"
    assert tables.names_of(page) == ["a"]
    rows = [{"name": "x", "s": 1.0, "fault": "a|b"}, {"name": "y", "s": None, "fault": "c"}]
    made = tables.filled(page, {"a": lambda: {"measured": "today", "rows": rows}})
    table = "|  | seconds | fault |\n| --- | ---: | --- |\n| `x` | 1.0 s | a\\|b |\n| `y` | - | c |"
    assert made == page.replace("old", f"today.\n\n2 faults.\n\n{table}")
    assert tables.filled(page, {"a": lambda: "nothing yet"}) == page.replace("old", "nothing yet")
    with pytest.raises(ValueError, match="column 'seconds'"):
        tables.filled(page, {"a": lambda: {"measured": "today", "rows": rows[1:]}})


def test_lines_of_a_block_without_rows_are_made_once(tables: ModuleType) -> None:
    form = "  |  | result |\n  | first | {a.b} s |\n  | second | {c} |"
    assert tables.formed(form, {"a": {"b": 1}, "c": 2}).splitlines()[2:] == ["| first | 1 s |", "| second | 2 |"]
    assert tables.formed(form, [{"a": {"b": 1}, "c": 2}]) == tables.formed(form, {"a": {"b": 1}, "c": 2})


def test_a_line_with_the_path_of_a_value_is_made_once_of_that_value(tables: ModuleType) -> None:
    form = "  | what | result |\n  a. b | first | {c} s |\n  d | second | {0} |"
    values = {"a. b": {"c": 1}, "d": (2,), "rows": [1, 2, 3]}
    assert tables.formed(form, values).splitlines()[2:] == ["| first | 1 s |", "| second | 2 |"]
