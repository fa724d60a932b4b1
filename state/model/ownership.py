"""Whom to call about a transaction, and what has made its transactional id: values of an event, and the port for them.

A client chooses its transactional id, so it can carry the prefix of another team. These values decide who is called,
never what is done: no rule of an abort reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from txnwatch.state.model.values import TimestampMs

FLINK: Final = "Flink"
WITHOUT_OWNER: Final = "none"  # the label of an incident without an owner; no team has this name


class FoundBy(StrEnum):
    """Which name has led to the owner."""

    TRANSACTIONAL_ID = "transactional_id"
    APPLICATION = "application"
    TOPIC = "topic"
    GROUP = "group"


class Certainty(StrEnum):
    """Whether the form of an id, with what else is known, settles what has made it; else it is a guess."""

    CERTAIN = "certain"
    POSSIBLE = "possible"


class Advice(StrEnum):
    """What an operator has to know before a transaction is ended, beside its verdict."""

    RESUME_FLINK_JOB = "resume_flink_job"


FLINK_COMMITS: Final = (
    "Flink commits it when the job is resumed from its checkpoint or savepoint, and an abort or a fence loses its "
    "data. Ask the owner of the job first."
)
ADVICE_MEANS: Final = {
    Advice.RESUME_FLINK_JOB: f"This can be a pre-committed transaction of a Flink checkpoint. {FLINK_COMMITS}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwningTeam:
    """A team of the table of owners; `ref` is its name in another tool."""

    team: str
    name: str
    contact: str | None = None
    url: str | None = None
    ref: str | None = None
    found_by: FoundBy

    @property
    def whom_to_call(self) -> str:
        """The name and the contact."""
        return f"{self.name} ({self.contact})" if self.contact is not None else self.name


class TeamLinks(NamedTuple):
    """Where a team is reached and what it looks at, from the operator's own table: no event has them.

    Attributes:
        chat: an http or https address.
        phone: an address that begins with `tel:`.
        dashboard: an http or https address in which `{from}` and `{to}` stand for times in epoch milliseconds.
    """

    chat: str | None = None
    phone: str | None = None
    dashboard: str | None = None

    def at(self, from_ms: TimestampMs, to_ms: TimestampMs) -> list[tuple[str, str]]:
        """The links with their texts; the dashboard shows this time."""
        times = {"{from}": str(from_ms), "{to}": str(to_ms)}
        shown = self.dashboard
        for name, time in times.items():
            shown = shown.replace(name, time) if shown is not None else None
        links = {"chat": self.chat, "call": self.phone, "dashboard": shown}
        return [(text, address) for text, address in links.items() if address is not None]


NO_LINKS: Final = TeamLinks()


@dataclass(frozen=True, slots=True, kw_only=True)
class IdPart:
    """One part of a transactional id."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdMaker:
    """What has made a transactional id.

    Attributes:
        name: what names the application; never a number behind other text, and never a uuid.
        rule: the form of the id, and why it is certain.
        also: the other frameworks that make ids of this form.
    """

    framework: str
    name: str
    parts: tuple[IdPart, ...] = ()
    rule: str
    certainty: Certainty
    also: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As a sentence; a guess is said to be one."""
        parts = ", ".join(f"{part.name} {part.value}" for part in self.parts)
        if self.certainty is Certainty.CERTAIN:
            return f"{self.framework}: {parts}"
        others = f" (or like {', '.join(self.also)})" if self.also else ""
        return f"looks like {self.framework}{others}: {parts}; this is a guess"


class Named(NamedTuple):
    """What is known about a transactional id; None for what is not."""

    owner: OwningTeam | None = None
    application: IdMaker | None = None


class Subject(NamedTuple):
    """What an owner is found by.

    Attributes:
        topic: the topic of the partition that the transaction holds; None if it is about no single partition.
        topics: the topics of all known participants.
        groups: the consumer groups that the event names. Another group is no evidence: who reads the event knows none.
    """

    transactional_id: str | None
    topic: str | None = None
    topics: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


class OwnerLookup(Protocol):
    """Finds owners by the table of this process."""

    @property
    def teams(self) -> Sequence[str]:
        """The teams of the table."""

    def of(self, subject: Subject) -> Named:
        """The owner of a transaction, and what has made its id."""

    def owner(self, subject: Subject) -> OwningTeam | None:
        """The owner alone."""

    def of_group(self, group_id: str) -> OwningTeam | None:
        """The owner of a consumer group."""

    def links(self, team: str) -> TeamLinks:
        """The links of a team; none if the table does not have it."""


class _NoOwners:
    """Knows nobody."""

    teams: Sequence[str] = ()

    def of(self, subject: Subject) -> Named:  # noqa: ARG002 - see OwnerLookup
        return Named()

    def owner(self, subject: Subject) -> OwningTeam | None:  # noqa: ARG002
        return None

    def of_group(self, group_id: str) -> OwningTeam | None:  # noqa: ARG002
        return None

    def links(self, team: str) -> TeamLinks:  # noqa: ARG002
        return NO_LINKS


NO_OWNERS: Final[OwnerLookup] = _NoOwners()
