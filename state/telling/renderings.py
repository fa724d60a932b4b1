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
    looks = [at for at, said in enumerate(told) if said.command is not None and is_look(said.command)]
    if not looks:
        return tuple(told)
    after = next((at for at, said in enumerate(told) if at > looks[0] and said.kind is StatementKind.NEXT), None)
    left = (replace(said, command=command) if at == after else said for at, said in enumerate(told) if at not in looks)
    return tuple(left)


def look_again(told: Iterable[Told], look: str | None) -> tuple[Told, ...]:
    """The statements for somebody who sees an old picture: the only step is another look."""
    step = Told(StatementKind.NEXT, LOOK_AGAIN, look)
    return (*(statement for statement in told if statement.kind is not StatementKind.NEXT), step)


def without_commands(told: Iterable[Told]) -> tuple[Told, ...]:
    """The statements where the cluster's address is not known."""
    return tuple(replace(statement, command=None) for statement in told)


# JSON.


class ToldStep(NamedTuple):
    """One step."""

    text: str
    command: str | None


def sentences(told: Iterable[Told], *kinds: StatementKind) -> dict[str, str]:
    """The statements of some kinds as members; empty for a kind of which nothing is said."""
    statements = list(told)
    return {str(kind): " ".join(statement.text for statement in statements if statement.kind is kind) for kind in kinds}


def steps_of(told: Iterable[Told]) -> list[ToldStep]:
    """The steps, in their order."""
    return [
        ToldStep(statement.text, statement.command)
        for statement in numbered(told)
        if statement.kind is StatementKind.NEXT
    ]


def as_json(told: Sequence[Told]) -> dict[str, Any]:
    """All statements as members, and the list of the steps."""
    kinds = (kind for kind in StatementKind if kind is not StatementKind.NEXT)
    return {**sentences(told, *kinds), "steps": [step._asdict() for step in steps_of(told)]}


def first_command(told: Iterable[Told]) -> str | None:
    """The command of the first step; None if a person has to do this step without txnwatch."""
    return next((statement.command for statement in told if statement.kind is StatementKind.NEXT), None)


# Text.

_NAMED: Final = 5
_IN_A_TABLE: Final = frozenset(  # its columns have them
    {StatementKind.HOLDS, StatementKind.SINCE, StatementKind.WHOM, StatementKind.HURT}
)


def numbered(told: Iterable[Told]) -> list[Told]:
    """The statements; of two steps or more, each text begins with its number."""
    statements = list(told)
    steps = [number for number, statement in enumerate(statements) if statement.kind is StatementKind.NEXT]
    for number, at in enumerate(steps if len(steps) > 1 else (), 1):
        statements[at] = replace(statements[at], text=f"{number}. {statements[at].text}")
    return statements


def lines(told: Iterable[Told]) -> list[str]:
    """The statements as lines; the command of a step is behind it, on a line of its own."""
    return [line for statement in numbered(told) for line in (statement.text, *_commands([statement]))]


def blocks(findings: Iterable[tuple[str, Sequence[Told]]]) -> Iterator[str]:
    """What is said about the rows of a table, by their names: rows of which the same is said share the sentences."""
    alike: dict[tuple[str, ...], list[tuple[str, list[Told]]]] = {}
    for name, told in findings:
        shown = numbered(statement for statement in told if statement.kind not in _IN_A_TABLE)
        alike.setdefault(tuple(statement.text for statement in shown), []).append((name, shown))
    for texts, rows in alike.items():
        yield f"{some_names(list(dict.fromkeys(name for name, _ in rows)), _NAMED)}:"
        for at, text in enumerate(texts):
            yield text
            yield from _commands(shown[at] for _, shown in rows)


def _commands(told: Iterable[Told]) -> Iterable[str]:
    return dict.fromkeys(f"next: {statement.command}" for statement in told if statement.command is not None)
