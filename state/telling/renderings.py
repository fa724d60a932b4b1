"""Statements as text and as JSON, and what is left of them for a reader who has just looked, or who must look again.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from txnwatch.state.telling.commands import is_look
from txnwatch.state.telling.statements import LOOK_AGAIN, StatementKind, Told
from txnwatch.state.text import some_names

# What is left.


def once_looked(told: Sequence[Told], command: str | None) -> tuple[Told, ...]:
    """The statements for somebody who has just looked: without that step, and the next one with its command."""
    if not any(one.command is not None and is_look(one.command) for one in told):
        return tuple(told)
    left = [one for one in told if one.command is None]
    first = next((number for number, one in enumerate(left) if one.kind is StatementKind.NEXT), None)
    if first is not None:
        left[first] = replace(left[first], command=command)
    return tuple(left)


def look_again(told: Iterable[Told], look: str | None) -> tuple[Told, ...]:
    """The statements for somebody who sees an old picture: the only step is another look."""
    step = Told(StatementKind.NEXT, LOOK_AGAIN, look)
    return (*(one for one in told if one.kind is not StatementKind.NEXT), step)


def without_commands(told: Iterable[Told]) -> tuple[Told, ...]:
    """The statements where the cluster's address is not known."""
    return tuple(replace(one, command=None) for one in told)


# JSON.


class ToldStep(NamedTuple):
    """One step."""

    text: str
    command: str | None


def sentences(told: Iterable[Told], *kinds: StatementKind) -> dict[str, str]:
    """The statements of some kinds as members; empty for a kind of which nothing is said."""
    found = list(told)
    return {str(kind): " ".join(one.text for one in found if one.kind is kind) for kind in kinds}


def steps_of(told: Iterable[Told]) -> list[ToldStep]:
    """The steps, in their order."""
    return [ToldStep(one.text, one.command) for one in numbered(told) if one.kind is StatementKind.NEXT]


def as_json(told: Sequence[Told]) -> dict[str, Any]:
    """All statements as members, and the list of the steps."""
    kinds = (kind for kind in StatementKind if kind is not StatementKind.NEXT)
    return {**sentences(told, *kinds), "steps": [one._asdict() for one in steps_of(told)]}


def first_command(told: Iterable[Told]) -> str | None:
    """The command of the first step that has one."""
    return next((one.command for one in told if one.command is not None), None)


# Text.

_NAMED: Final = 5
_IN_A_TABLE: Final = frozenset(  # its columns have them
    {StatementKind.HOLDS, StatementKind.SINCE, StatementKind.WHOM, StatementKind.HURT}
)


def numbered(told: Iterable[Told]) -> list[Told]:
    """The statements; of two steps or more, each text begins with its number."""
    found = list(told)
    steps = [number for number, one in enumerate(found) if one.kind is StatementKind.NEXT]
    for number, at in enumerate(steps if len(steps) > 1 else (), 1):
        found[at] = replace(found[at], text=f"{number}. {found[at].text}")
    return found


def lines(told: Iterable[Told]) -> list[str]:
    """The statements as lines; the command of a step is behind it, on a line of its own."""
    return [line for one in numbered(told) for line in (one.text, *_commands([one]))]


def blocks(found: Iterable[tuple[str, Sequence[Told]]]) -> Iterator[str]:
    """What is said about the rows of a table, by their names: rows of which the same is said share the sentences."""
    alike: dict[tuple[str, ...], list[tuple[str, list[Told]]]] = {}
    for name, told in found:
        shown = numbered(one for one in told if one.kind not in _IN_A_TABLE)
        alike.setdefault(tuple(one.text for one in shown), []).append((name, shown))
    for texts, rows in alike.items():
        yield f"{some_names(list(dict.fromkeys(name for name, _ in rows)), _NAMED)}:"
        for at, text in enumerate(texts):
            yield text
            yield from _commands(shown[at] for _, shown in rows)


def _commands(told: Iterable[Told]) -> Iterable[str]:
    return dict.fromkeys(f"next: {one.command}" for one in told if one.command is not None)
