"""Which rows of a matrix `make test` has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.matrices import rows_between


def a_test(name: str, *marks: str) -> Any:
    return SimpleNamespace(
        nodeid=f"tests/test_rights.py::{name}", get_closest_marker=lambda mark: mark in marks or None
    )


def between(*items: Any) -> list[str]:
    return [item.nodeid.partition("::")[2] for item in rows_between(items)]


def test_all_rows_but_the_first_and_the_last_are_between() -> None:
    rows = [a_test(f"test_a[{name}]", "matrix") for name in ("one", "two[1]", "three", "four::five")]
    assert between(*rows) == ["test_a[two[1]]", "test_a[three]"]


@pytest.mark.parametrize("count", [1, 2])
def test_a_matrix_of_one_or_two_rows_has_none_between(count: int) -> None:
    assert between(*(a_test(f"test_a[{number}]", "matrix") for number in range(count))) == []


def test_each_matrix_has_its_own_rows_and_other_tests_are_none() -> None:
    rows = [
        a_test(f"test_{name}[{row}]", *marks)
        for row in "xyz"
        for name, *marks in [("a", "matrix"), ("b",), ("c", "matrix")]
    ]
    assert between(*rows) == ["test_a[y]", "test_c[y]"]
