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


def test_a_column_is_a_key_a_text_an_index_an_attribute_or_computed(tables: ModuleType) -> None:
    assert tables.table({"name": "key", "twice": lambda row: row["key"] * 2}, [{"key": "a"}]) == (
        "| name | twice |\n| --- | --- |\n| a | aa |"
    )
    assert tables.table({"time": "{s:.1f} s"}, [{"s": 0.25}]) == "| time |\n| ---: |\n| 0.2 s |"
    assert tables.table({"name": 1}, [("a", "b")]) == "| name |\n| --- |\n| b |"
    assert tables.table({"name": "key"}, [SimpleNamespace(key="a")]) == "| name |\n| --- |\n| a |"


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
