"""The table of owners: which team is called for a transactional id, an application, a topic or a group; and its file.

A pattern is a literal name, or a prefix with a star behind it. A literal comes before a prefix, and the longest prefix
wins. A transaction is looked up by its transactional id, then by its application if that is certain, then by the topic
of its partition; the first that is found counts. A look-up is pure: no I/O, no clock.

The table is read from the `[[owner]]` entries of a TOML file: the one that `owners_file` names, or the settings file
itself. An error has the file, the entry, the key, what is expected and what was found.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from txnwatch.config import RunSettings
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.setting_sources import OWNER_ENTRIES, toml_of
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ownership import (
    NO_LINKS,
    WITHOUT_OWNER,
    Certainty,
    FoundBy,
    IdMaker,
    Named,
    OwningTeam,
    Subject,
    TeamLinks,
)
from txnwatch.state.text import GIVEN_NAME, is_host_name

STAR: Final = "*"


class TeamEntry(NamedTuple):
    """One entry of the table, without its patterns."""

    team: str
    name: str
    contact: str | None = None
    url: str | None = None
    ref: str | None = None
    links: TeamLinks = NO_LINKS

    def found_by(self, what: FoundBy) -> OwningTeam:
        """The owner that this entry is for a name."""
        values = {name: value for name, value in self._asdict().items() if name != "links"}
        return OwningTeam(**values, found_by=what)


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
    _links: Mapping[str, TeamLinks] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        patterns = {what: Patterns(self.patterns.get(what, {})) for what in FoundBy}
        object.__setattr__(self, "_found", patterns)
        links = {owner.team: owner.links for teams in self.patterns.values() for owner in teams.values()}
        object.__setattr__(self, "_links", links)

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
        return Named(self._first(subject, lambda: application), application)

    def owner(self, subject: Subject) -> OwningTeam | None:
        """The owner alone: an id is taken apart only if that can lead to one."""
        return self._first(subject, lambda: taken_apart(subject) if self.patterns.get(FoundBy.APPLICATION) else None)

    def _first(self, subject: Subject, application: Callable[[], IdMaker | None]) -> OwningTeam | None:
        def names() -> Iterator[tuple[FoundBy, str | None]]:
            yield FoundBy.TRANSACTIONAL_ID, subject.transactional_id
            maker = application()
            is_certain = maker is not None and maker.certainty is Certainty.CERTAIN
            yield FoundBy.APPLICATION, maker.name if maker is not None and is_certain else None
            yield FoundBy.TOPIC, subject.topic

        owners = (self._owner(what, name) for what, name in names() if name is not None)
        return next(filter(None, owners), None)

    def of_group(self, group_id: str) -> OwningTeam | None:
        """The owner of a consumer group."""
        return self._owner(FoundBy.GROUP, group_id)

    def links(self, team: str) -> TeamLinks:
        """The links of a team; none if no pattern leads to it."""
        return self._links.get(team, NO_LINKS)

    def _owner(self, what: FoundBy, name: str) -> OwningTeam | None:
        match = self.find(what, name)
        return match.team.found_by(what) if match is not None else None


# The file.

MOST_OWNERS: Final = 1_000
MOST_PATTERNS: Final = 10_000
_KINDS: Final = {
    "transactional_ids": FoundBy.TRANSACTIONAL_ID,
    "applications": FoundBy.APPLICATION,
    "topics": FoundBy.TOPIC,
    "groups": FoundBy.GROUP,
}
TEAM_RULE: Final = "small letters, digits and hyphens, at most 63, the first no hyphen"


def _address(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_web = parts.scheme in {"http", "https"} and is_host_name(parts.hostname or "") and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or not value.isprintable() or " " in value:
        raise ValueError("expected an address that begins with https:// or http://")
    return value


def _template(value: str) -> str:
    """An address with the places of two times; they are numbers, so nothing of them is escaped."""
    others = re.sub(r"\{(?:from|to)\}", "", _address(value))
    if "{" in others or "{from}" not in value or "{" in urlsplit(value).netloc:
        raise ValueError("expected an address with {from} and {to} for the times behind its host, and no other {")
    return value


def _phone(value: str) -> str:
    if _PHONE.fullmatch(value) is None:
        raise ValueError("expected a phone number: digits, a + before them, and spaces or -./() between them")
    return f"tel:{re.sub('[^+0-9]', '', value)}"


def _pattern(value: str) -> str:
    if STAR in value[:-1]:
        raise ValueError("expected a name, or the beginning of a name and one star at the end")
    return value


def _team(value: str) -> str:
    if value == WITHOUT_OWNER:
        raise ValueError(f"expected another name: {WITHOUT_OWNER} is the label of what has no owner")
    return value


_PHONE: Final = re.compile(r"\+?[0-9(][0-9 ()./-]{1,38}[0-9]")
_Shown = Annotated[str, Field(min_length=1, max_length=200)]
_Patterns = tuple[Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_pattern)], ...]


class _Entry(BaseModel):
    """One `[[owner]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    team: Annotated[str, Field(pattern=f"^{GIVEN_NAME.pattern}$"), AfterValidator(_team)]
    name: _Shown | None = None
    contact: _Shown | None = None
    url: Annotated[str, Field(max_length=1_000), AfterValidator(_address)] | None = None
    ref: _Shown | None = None
    chat: Annotated[str, Field(max_length=1_000), AfterValidator(_address)] | None = None
    phone: Annotated[str, Field(max_length=40), AfterValidator(_phone)] | None = None
    dashboard: Annotated[str, Field(max_length=1_000), AfterValidator(_template)] | None = None
    transactional_ids: _Patterns = ()
    applications: _Patterns = ()
    topics: _Patterns = ()
    groups: _Patterns = ()


def read_owners(path: Path | None) -> OwnerTable:
    """The table in a file; an empty one without a file.

    Raises:
        ConfigError: the file cannot be read, or an entry is invalid.
    """
    if path is None:
        return OwnerTable()
    where = f"owners_file {path}"
    return owners_of(toml_of(path, where, "expected a file that can be read, found: "), where)


def owners_of(raw: Mapping[str, Any], where: str) -> OwnerTable:
    """The table in the content of a file; `where` names the file in errors.

    Raises:
        ConfigError: an entry is invalid.
    """
    unknown = sorted(raw.keys() - RunSettings.model_fields.keys() - {OWNER_ENTRIES})
    if unknown:
        raise ConfigError(f"{where}: expected [[{OWNER_ENTRIES}]] entries, found the key {unknown[0]!r}")
    entries = raw.get(OWNER_ENTRIES, [])
    if not isinstance(entries, list):
        raise ConfigError(f"{where}: expected [[{OWNER_ENTRIES}]] entries, found one value under {OWNER_ENTRIES!r}")
    if len(entries) > MOST_OWNERS:
        raise ConfigError(f"{where}: expected at most {MOST_OWNERS} entries, found {len(entries)}")
    teams: dict[FoundBy, dict[str, TeamEntry]] = {what: {} for what in FoundBy}
    places: dict[object, str] = {}
    for place, entry in _read(entries, where):
        links = TeamLinks(entry.chat, entry.phone, entry.dashboard)
        team = TeamEntry(entry.team, entry.name or entry.team, entry.contact, entry.url, entry.ref, links)
        _once(places, entry.team, place, f"{where}: {place}: team {entry.team!r}")
        for key, what in _KINDS.items():
            for pattern in getattr(entry, key):
                _once(places, (what, pattern), place, f"{where}: {place}: {key} {pattern!r}")
                teams[what][pattern] = team
    count = sum(map(len, teams.values()))
    if count > MOST_PATTERNS:
        raise ConfigError(f"{where}: expected at most {MOST_PATTERNS} patterns, found {count}")
    return OwnerTable(teams)


def _once(places: dict[object, str], key: object, place: str, what: str) -> None:
    if key in places:
        raise ConfigError(f"{what}: expected it in one entry, found it in {places[key]} as well")
    places[key] = place


def _read(entries: list[Any], where: str) -> Iterator[tuple[str, _Entry]]:
    """The entries, each with its place."""
    for number, raw in enumerate(entries, 1):
        team = raw.get("team") if isinstance(raw, dict) else None
        place = f"entry {number} ({team!r})" if isinstance(team, str) else f"entry {number}"
        try:
            yield place, _Entry.model_validate(_with_tuples(raw))
        except ValidationError as exc:
            raise ConfigError("; ".join(f"{where}: {place}: {_problem(error)}" for error in exc.errors())) from None


def _with_tuples(raw: object) -> object:
    """The lists of TOML as tuples, which is what a strict model takes."""
    if not isinstance(raw, dict):
        return raw
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}


# Where the message of pydantic is about Python, not about a file.
_EXPECTED: Final = {
    "model_type": "expected a table with keys",
    "tuple_type": "expected a list of texts",
    "string_pattern_mismatch": f"expected {TEAM_RULE}",
    "string_too_short": "expected a text that is not empty",
}


def _problem(error: Any) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    key = ".".join(str(part) for part in error["loc"])
    given = f"found {str(error['input'])[:100]!r}"
    match error["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}; known keys: {', '.join(_Entry.model_fields)}"
        case "missing":
            return f"{key}: expected a value, found none"
        case "model_type":
            return f"{_EXPECTED['model_type']}, {given}"
        case kind:
            message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            message = message.replace("String should have at most", "at most").removeprefix("expected ")
            return f"{key}: {_EXPECTED.get(kind, f'expected {message}')}, {given}"
