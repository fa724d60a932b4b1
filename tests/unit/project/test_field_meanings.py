"""The meanings of fields in docs/spark-source.md come from the docstrings of their classes."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import Variant


class Described(Variant, frozen=True):
    """A fact.

    Attributes:
        low, high: the bounds; None if a bound
            is not known. None of them is exact.
        marker: the marker.

    This is no entry:
        undescribed: none.
    """

    low: int | None
    high: int | None
    marker: Marker | None
    undescribed: int


@pytest.fixture
def meanings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "scripts")
    return importlib.import_module("field_meanings")


@pytest.mark.parametrize("name", ["low", "high"])
def test_an_entry_may_describe_two_fields_on_two_lines(meanings: ModuleType, name: str) -> None:
    assert meanings.meaning_of(Described, name) == "the bounds; null if a bound is not known. Null of them is exact"


def test_a_field_without_a_meaning_is_an_error(meanings: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"Described\.undescribed"):
        meanings.meaning_of(Described, "undescribed")


def test_a_struct_inside_a_field_is_found_with_its_place(meanings: ModuleType) -> None:
    assert meanings.structs_of({"described": Described}) == {Marker: ["`described.marker`"]}
