"""The one serializer: its version follows the shape of a type, and data of another version is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from enum import StrEnum
from typing import NamedTuple, NewType, get_args

import pytest

from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.facts import Fact
from txnwatch.state.model.findings import Finding
from txnwatch.state.model.serializer import Serializer, version_of
from txnwatch.state.model.values import ModelValue, Variant

Id = NewType("Id", int)


class Color(StrEnum):
    RED = "red"


class MoreColor(StrEnum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    name: str
    number: int


class One(ModelValue, frozen=True):
    number: int
    places: dict[Place, int]


class OneMore(ModelValue, frozen=True):
    number: int
    places: dict[Place, int]
    more: bool = False


class Renamed(ModelValue, frozen=True):
    count: int
    places: dict[Place, int]


class InAnotherOrder(ModelValue, frozen=True):
    places: dict[Place, int]
    number: int


class Colored(ModelValue, frozen=True):
    color: Color


class MoreColored(ModelValue, frozen=True):
    color: MoreColor


class Left(Variant, frozen=True):
    number: int


class Right(Variant, frozen=True):
    number: int


CHANGES = {
    "a field more": (One, OneMore),
    "another name": (One, Renamed),
    "another order": (One, InAnotherOrder),
    "a value of an enum more": (Colored, MoreColored),
    "a type of a union more": (Left, Left | Right),
    "another type of a field": (dict[str, int], dict[str, str]),
    "None, too": (int, int | None),
}


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_a_type_changes_the_version(before: object, after: object) -> None:
    assert version_of(before) != version_of(after)
    assert version_of(list[int], before) != version_of(list[int], after), "also inside other data"


def test_a_new_type_of_a_number_changes_no_version() -> None:
    assert version_of(int) == version_of(Id)


def test_the_version_is_the_same_in_every_process() -> None:
    code = "from txnwatch.streaming.job.bucket_step import FINDINGS; print(FINDINGS.version)"
    found = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_data_of_another_version_is_refused_and_both_are_named() -> None:
    before, after = Serializer[One](One), Serializer[OneMore](OneMore)
    value = One(1, {Place("a", 2): 3})
    assert before.decode(before.encode(value)) == value
    with pytest.raises(CheckpointError, match=f"has version {before.version}, this txnwatch reads .* {after.version}"):
        after.decode(before.encode(value))


def test_data_without_a_version_is_damaged_and_of_no_other_version() -> None:
    serializer = Serializer[One](One)
    with pytest.raises(CheckpointError, match="has version 0123abcd, this txnwatch reads"):
        serializer.decode(b"0123abcd")
    for damaged in (b"", b"damaged", b"damaged!", b"\xff" * 20):
        with pytest.raises(CheckpointError, match=r"the stored state is damaged: .* restore the whole checkpoint"):
            serializer.decode(damaged)


def test_a_change_of_a_part_changes_the_version_of_what_contains_it() -> None:
    assert Serializer[bytes](bytes, [One]).version != Serializer[bytes](bytes, [OneMore]).version


@pytest.mark.parametrize("union", [Fact, Finding], ids=["facts", "findings"])
def test_every_type_of_a_union_names_itself(union: object) -> None:
    assert all(issubclass(of, Variant) for of in get_args(union))
