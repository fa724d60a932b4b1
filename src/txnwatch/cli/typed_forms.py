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
        found = pattern.fullmatch(text.strip())
        if found is None:
            continue
        given = found.groupdict()
        partition, offset = int(given.get("partition") or 0), int(given.get("offset") or 0)
        if partition <= INT32 and offset <= INT64:
            incident = (given.get("incident") or "").lower()
            yield TypedReading(kind, given.get("topic") or "", partition, offset, incident, given.get("name") or "")


# The nearest names.

MOST_NEAR: Final = 3
MOST_COMPARED: Final = 100_000
_ALIKE: Final = str.maketrans({"o": "0", "l": "1", "i": "1", "_": "-", ".": "-", " ": "-", "/": "-", ":": "-"})


def same_but_for_case(text: str, names: Iterable[str]) -> list[str]:
    """The names that differ from a text only in the case of letters."""
    folded = text.casefold()
    return sorted({name for name in names if name.casefold() == folded})


def nearest(text: str, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names that are nearest to a text, each with what it is; a few, and none that is only a little like it."""
    key, scored = _key(text), []
    most = max(1, min(3, len(key) // 3))
    for name, what in list(names.items())[:MOST_COMPARED]:
        score = _score(key, _key(name), most)
        if score is not None:
            scored.append((score, name, what))
    return [(name, what) for _, name, what in sorted(scored)[:MOST_NEAR]]


def _key(name: str) -> str:
    """The name without what people mix up: the case, 0 and O, 1 and l, and the signs between its parts."""
    return name.casefold().translate(_ALIKE)


def _score(typed: str, name: str, most: int) -> int | None:
    """How many signs differ; a name that begins with the text, or has it, is behind these. None if it is not near."""
    if abs(len(typed) - len(name)) <= most and (differ := _distance(typed, name, most)) <= most:
        return differ
    if len(typed) > most and typed in name:
        return most + (1 if name.startswith(typed) else 2)
    return None


def _distance(one: str, other: str, most: int) -> int:
    """The edit distance with swapped neighbours; any number above `most` if it is larger."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, sign in enumerate(one, 1):
        line = [row]
        for column, against in enumerate(other, 1):
            cost = min(last[column] + 1, line[-1] + 1, last[column - 1] + (sign != against))
            if row > 1 and column > 1 and sign == other[column - 2] and one[row - 2] == against:
                cost = min(cost, before[column - 2] + 1)
            line.append(cost)
        if min(line) > most:
            return most + 1
        before, last = last, line
    return last[-1]
