"""`txnwatch owners`: whom the table of owners names for a name, and by which pattern. It asks no broker."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, add_owners_flag, kafka_text, never
from txnwatch.cli.output import CLEAN, DETAIL, CommandAnswer, Name, write
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.state.model.ownership import Certainty, FoundBy, IdMaker, Subject


@dataclass(frozen=True, slots=True)
class NameRow:
    """What one name is as one kind of name, and what the table has for it.

    Attributes:
        kind: transactional_id, application, topic or group.
        pattern: the pattern that fits; None if none does.
        note: what the form of a transactional id shows, and whether an application counts.
    """

    name: Name
    kind: str
    owner: str | None
    contact: Annotated[str | None, DETAIL]
    url: Annotated[str | None, DETAIL]
    pattern: str | None
    note: str | None


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "owners",
        help="show whom the table of owners names for a name, and why",
        description="Looks up each name in the table of owners: as a transactional id, and as an application, a topic "
        "and a group if a pattern fits. It shows that pattern, and what the form of a transactional id says. "
        "It asks no broker, so it does not know which groups exist: then more forms are a guess.",
    )
    parser.add_argument("names", nargs="+", type=kafka_text, metavar="NAME", help="a transactional id, topic or group")
    add_connection_flags(parser, never)
    add_owners_flag(parser)
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Looks the names up; exit code 0, also if nobody owns them."""
    table: OwnerTable = parsed.owners
    rows = [row for name in parsed.names for row in rows_of(name, table)]
    without = [name for name in parsed.names if not any(row.name == name and row.owner is not None for row in rows)]
    answer = CommandAnswer("owners", "", NameRow, rows, summary=summary(len(parsed.names), len(without), table))
    write(answer, parsed.format, is_wide=parsed.wide)
    return CLEAN


def rows_of(name: str, table: OwnerTable) -> Iterator[NameRow]:
    """A name as a transactional id, and as every other kind that a pattern fits."""
    application = taken_apart(Subject(name))
    yield _row(name, FoundBy.TRANSACTIONAL_ID, name, table, application.text if application is not None else None)
    others: Iterable[tuple[FoundBy, str, str | None]] = (
        *_of_application(application),
        (FoundBy.APPLICATION, name, None),
        (FoundBy.TOPIC, name, None),
        (FoundBy.GROUP, name, None),
    )
    for kind, searched, note in others:
        if table.find(kind, searched) is not None:
            yield _row(name, kind, searched, table, note)


def _of_application(application: IdMaker | None) -> Iterator[tuple[FoundBy, str, str]]:
    """The application in a transactional id."""
    if application is not None:
        is_certain = application.certainty is Certainty.CERTAIN
        counts = "it is certain, so it counts" if is_certain else "it is a guess, so it does not count"
        yield FoundBy.APPLICATION, application.name, f"application {application.name}: {counts}"


def _row(name: str, kind: FoundBy, searched: str, table: OwnerTable, note: str | None) -> NameRow:
    match = table.find(kind, searched)
    team = match.team if match is not None else None
    return NameRow(
        name=name,
        kind=kind,
        owner=team.team if team is not None else None,
        contact=team.contact if team is not None else None,
        url=team.url if team is not None else None,
        pattern=match.pattern if match is not None else None,
        note=note,
    )


def summary(names: int, without: int, table: OwnerTable) -> str:
    """The last line of the text output."""
    if not table.teams:
        return "the table of owners is empty: set owners_file"
    return f"{names - without} of {names} names have an owner"
