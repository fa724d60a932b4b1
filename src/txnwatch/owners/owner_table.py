"""The table of owners: which team is called for a transactional id, an application, a topic or a group.

A pattern is a literal name, or a prefix with a star behind it. A literal comes before a prefix, and the longest prefix
wins. A transaction is looked up by its transactional id, then by its application if that is certain, then by the topic
of its partition; the first that is found counts.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txnwatch.owners.id_shapes import taken_apart
from txnwatch.state.model.ownership import Certainty, FoundBy, Named, OwningTeam, Subject

STAR: Final = "*"


class TeamEntry(NamedTuple):
    """One entry of the table, without its patterns."""

    team: str
    name: str
    contact: str | None = None
    url: str | None = None
    ref: str | None = None

    def found_by(self, what: FoundBy) -> OwningTeam:
        """The owner that this entry is for a name."""
        return OwningTeam(**self._asdict(), found_by=what)


class Match(NamedTuple):
    """An entry that a name leads to, and by which pattern."""

    team: TeamEntry
    pattern: str


class Patterns:
    """The patterns for one kind of name.

    Prefixes are sorted, and each knows the longest other prefix that it begins with. The longest prefix of a name is
    the one just before the name in this order, or one that this one begins with.
    """

    def __init__(self, teams: Mapping[str, TeamEntry]) -> None:
        self._literal = {pattern: team for pattern, team in teams.items() if not pattern.endswith(STAR)}
        prefixes = {pattern.removesuffix(STAR): team for pattern, team in teams.items() if pattern.endswith(STAR)}
        self._prefixes = sorted(prefixes)
        self._teams = [prefixes[prefix] for prefix in self._prefixes]
        self._shorter: list[int | None] = []
        for at, prefix in enumerate(self._prefixes):
            self._shorter.append(self._beginning(prefix, at - 1))

    def _beginning(self, name: str, at: int | None) -> int | None:
        """The longest prefix of a name, from the last one that can be."""
        if at is not None and at < 0:
            return None
        while at is not None and not name.startswith(self._prefixes[at]):
            at = self._shorter[at]
        return at

    def find(self, name: str) -> Match | None:
        """The entry for a name."""
        team = self._literal.get(name)
        if team is not None:
            return Match(team, name)
        at = self._beginning(name, bisect_right(self._prefixes, name) - 1)
        return Match(self._teams[at], self._prefixes[at] + STAR) if at is not None else None


@dataclass(frozen=True)
class OwnerTable:
    """The table; `patterns` has, for each kind of name, the team of each pattern."""

    patterns: Mapping[FoundBy, Mapping[str, TeamEntry]] = field(default_factory=dict)
    _found: Mapping[FoundBy, Patterns] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        found = {what: Patterns(self.patterns.get(what, {})) for what in FoundBy}
        object.__setattr__(self, "_found", found)

    @property
    def teams(self) -> Sequence[str]:
        """The teams that have a pattern; the values of a label."""
        return sorted({team.team for teams in self.patterns.values() for team in teams.values()})

    def find(self, what: FoundBy, name: str) -> Match | None:
        """The entry for one name of a kind."""
        return self._found[what].find(name)

    def of(self, subject: Subject) -> Named:
        """The owner of a transaction, and what has made its id."""
        application = taken_apart(subject)
        is_certain = application is not None and application.certainty is Certainty.CERTAIN
        names = {
            FoundBy.TRANSACTIONAL_ID: subject.transactional_id,
            FoundBy.APPLICATION: application.name if application is not None and is_certain else None,
            FoundBy.TOPIC: subject.topic,
        }
        found = (self._owner(what, name) for what, name in names.items() if name is not None)
        return Named(next(filter(None, found), None), application)

    def of_group(self, group_id: str) -> OwningTeam | None:
        """The owner of a consumer group."""
        return self._owner(FoundBy.GROUP, group_id)

    def _owner(self, what: FoundBy, name: str) -> OwningTeam | None:
        match = self.find(what, name)
        return match.team.found_by(what) if match is not None else None
