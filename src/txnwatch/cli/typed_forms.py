"""The forms in which a person names a partition, a record, an incident or anything else: one table; and near names.

A name that exists as it is typed comes before every form. What a form is taken for must exist, too: so a text may have
several readings, and the first one that exists counts.

Pure: no I/O, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.values import INT32, INT64


class TypedKind(StrEnum):
    """What a text can name; the values are the words for it."""

    INCIDENT = "incident"
    RECORD = "record"
    PARTITION = "partition"
    EACH_PARTITION = "partition of an unnamed topic"
    EACH_OFFSET = "offset of an unnamed partition"
    TOPIC = "topic"
    GROUP = "consumer group"
    ID = "transactional id"
    PRODUCER = "producer id"


class TypedForm(NamedTuple):
    """One row: a kind, its pattern, and an example for people."""

    kind: TypedKind
    pattern: re.Pattern[str]
    example: str


_TOPIC = r"(?:topic[\s:=]+)?(?P<topic>[\w.-]{1,249}?)"
_BETWEEN = r"(?:-|/|:|#|,?\s*\[|,?\s+)\s*"
_NUMBER = r"(?:partition[\s:=#-]*)?(?P<partition>\d{1,10})\]?"
_OFFSET = r"(?:at\s+)?(?:offset[\s:=#@]*)?(?P<offset>\d{1,19})"
_AND = r"(?:@|/|:|#|,?\s+)\s*"


def _form(kind: TypedKind, pattern: str, example: str) -> TypedForm:
    return TypedForm(kind, re.compile(pattern, re.IGNORECASE | re.ASCII), example)


FORMS: Final = (
    _form(
        TypedKind.INCIDENT,
        r"(?:\S*/)?(?:incident[\s:=#/]*)?(?P<incident>[0-9a-f]{32})(?:-\d{1,7})?",
        "5a105e8b9d40e1329780d62ea2265d8a",
    ),
    _form(TypedKind.EACH_PARTITION, r"partition[\s:=#-]*(?P<partition>\d{1,10})", "partition 0"),
    _form(TypedKind.EACH_OFFSET, r"(?:offset[\s:=#]*|@)(?P<offset>\d{1,19})", "offset 42"),
    _form(TypedKind.RECORD, _TOPIC + _BETWEEN + _NUMBER + _AND + _OFFSET, "orders/0/42"),
    _form(TypedKind.PARTITION, _TOPIC + _BETWEEN + _NUMBER, "orders:0"),
    _form(TypedKind.TOPIC, r"topic[\s:=]+(?P<name>\S{1,249})", "topic orders"),
    _form(
        TypedKind.GROUP,
        r"(?:(?:consumer|share)[\s.-]?)?group(?:[\s.-]?id)?[\s:=]+(?P<name>\S.{0,999})",
        "group billing",
    ),
    _form(TypedKind.ID, r"(?:transactional|txn)[\s._-]?id[\s:=]+(?P<name>\S.{0,3999})", "transactional.id=checkout-7"),
    _form(TypedKind.PRODUCER, r"(?:producer[\s._-]?id|pid)[\s:=]+(?P<name>\d{1,19})", "producer id 1000"),
)


class TypedReading(NamedTuple):
    """What a text can be taken for; the fields that its form has."""

    kind: TypedKind
    topic: str = ""
    partition: int = 0
    offset: int = 0
    incident: str = ""
    name: str = ""


def readings(text: str) -> Iterator[TypedReading]:
    """All readings of a text, in the order of the table."""
    for kind, pattern, _ in FORMS:
        match = pattern.fullmatch(text.strip())
        if match is None:
            continue
        given = match.groupdict()
        partition, offset = int(given.get("partition") or 0), int(given.get("offset") or 0)
        if partition <= INT32 and offset <= INT64:
            incident = (given.get("incident") or "").lower()
            yield TypedReading(kind, given.get("topic") or "", partition, offset, incident, given.get("name") or "")


# The nearest names.

MOST_NEAR: Final = 3
MOST_COMPARED: Final = 10_000
_LONGEST: Final = 249  # a longer text was pasted, and not mistyped; of a longer name only the beginning is compared
_ALIKE: Final = str.maketrans({"o": "0", "l": "1", "i": "1", "_": "-", ".": "-", " ": "-", "/": "-", ":": "-"})


def same_but_for_case(text: str, names: Iterable[str]) -> list[str]:
    """The names that differ from a text only in the case of letters."""
    folded = text.casefold()
    return sorted({name for name in names if name.casefold() == folded})


def nearest(text: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that are nearest to a text, each with what it is; a few, and none that is only a little like it."""
    if len(text) > _LONGEST:
        return []
    key, scored = _key(text), []
    most = max(1, min(3, len(key) // 3))
    for name, what in list(names.items())[:MOST_COMPARED]:
        score = _score(key, _key(name[: 2 * _LONGEST]), most)
        if score is not None:
            scored.append((score, name, what))
    return [(name, what) for _, name, what in sorted(scored)[:MOST_NEAR]]


def _key(name: str) -> str:
    """The name without what people mix up: the case, 0 and O, 1 and l, and the signs between its parts."""
    return name.casefold().translate(_ALIKE)


def _score(typed: str, name: str, most: int) -> int | None:
    """How many signs differ; a name that begins with the text, or has it, is behind these. None if it is not near."""
    if abs(len(typed) - len(name)) <= most and (differ := distance(typed, name, most)) <= most:
        return differ
    if len(typed) > most and typed in name:
        return most + (1 if name.startswith(typed) else 2)
    return None


def distance(text: str, other: str, most: int) -> int:
    """The edit distance with swapped neighbours; `most` + 1 if it is larger. Only places that near are compared."""
    far = most + 1
    before: dict[int, int] = {}
    last = {column: column for column in range(min(len(other), most) + 1)}
    for row, sign in enumerate(text, 1):
        line = {0: row} if row <= most else {}
        for column in range(max(1, row - most), min(len(other), row + most) + 1):
            against = other[column - 1]
            cost = min(last.get(column, far), line.get(column - 1, far)) + 1
            cost = min(cost, last.get(column - 1, far) + (sign != against))
            if row > 1 and column > 1 and sign == other[column - 2] and text[row - 2] == against:
                cost = min(cost, before.get(column - 2, far) + 1)
            line[column] = cost
        if min(line.values(), default=far) > most:
            return far
        before, last = last, line
    return min(last.get(len(other), far), far)
