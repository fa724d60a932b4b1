"""What the page says: what has happened, whom to call, and how long it takes. Pure: no I/O, no clock.

What is said about one incident, and the next step, is in state/telling/statements.py.

A headline is a list of parts. A part is a text or, as a number, the time in epoch milliseconds since which something
lasts: the reader counts it, so that it grows without a message. The first part is the important one.

An event of the ledger has the owner by the table of this process. A link comes from that table alone, and the table has
only http and https addresses.

Law: text that a client has chosen (a transactional id, a topic, a group) passes `name`, which cuts the middle of a long
text and shows characters that cannot be printed as escapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from txnwatch.page.truth import Facts, PageState, PageTruth
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.ownership import NO_OWNERS, IdMaker, OwnerLookup, OwningTeam, Subject
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.model.verdicts import rank, undetected
from txnwatch.state.telling.commands import Origin
from txnwatch.state.telling.hurt import NO_GROUP_STANDS, NO_GROUPS_READ
from txnwatch.state.telling.statements import LOOK_AGAIN, VERDICT_WORDS
from txnwatch.state.text import counted, cut, duration_text, printable

Part = str | int
LONGEST_NAME: Final = 160
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-")
_LONGEST_IN_ADDRESS: Final = 200


def name(text: str, longest: int = LONGEST_NAME) -> str:
    """Foreign text for a list: cut in the middle if it is long, and printable."""
    return printable(cut(text, longest))


def id_for_address(transactional_id: str | None) -> str | None:
    """The id if it can be a part of a path; None if the address has to have the producer id.

    A browser removes `.` and `..` from a path, and a long id does not fit into the first line of a request.
    """
    if transactional_id is None or len(transactional_id) > _LONGEST_IN_ADDRESS or transactional_id in {"", ".", ".."}:
        return None
    return transactional_id if _PLAIN.issuperset(transactional_id) else None


def number(count: int) -> str:
    """A count with separators."""
    return f"{count:,}"


def tag(event: IncidentEvent) -> str:
    """The verdict as it is shown."""
    return event.verdict.replace("_", " ").upper()


def holder(event: IncidentEvent) -> str:
    """The transactional id, or the producer id if it has none."""
    return name(event.transactional_id) if event.transactional_id is not None else f"producer {event.producer_id}"


def places(event: IncidentEvent) -> list[str]:
    """The partitions that the incident holds back."""
    return [f"{name(event.topic)}-{event.partition}"] if event.topic is not None else list(event.pending_partitions)


def groups(event: IncidentEvent, state: GroupState) -> list[str]:
    """The affected consumer groups in a state."""
    return [name(group.group_id) for group in event.consumer_groups if group.state is state]


def waiting(event: IncidentEvent) -> list[str]:
    """The consumer groups that wait for committed offsets that are pending in the transaction."""
    return [name(group.group_id) for group in event.waiting_groups]


def headline(
    truth: PageTruth,
    facts: Facts,
    open_incidents: Sequence[IncidentEvent],
    unproven: Sequence[str],
    undecided: Sequence[str] = (),
    reason: Sequence[Part] = (),
    held: Callable[[IncidentEvent], Sequence[str]] = places,
) -> list[Part]:
    """The one sentence of the overview.

    `reason` is why nothing is known, as a sentence. `held` gives the partitions that an incident holds back.
    """
    match truth.state:
        case PageState.CLEAR:
            return ["All clear.", " Every transaction that holds a reader back ends by itself."]
        case PageState.INCIDENT:
            return _standing(open_incidents, held)
        case PageState.PARTIAL:
            return _partial(facts, unproven, undecided)
        case PageState.LIMITED:
            assert facts.access is not None
            missing = ", ".join(undetected(facts.access))
            return ["No hang.", f" In the view {facts.access}, {missing} are not detected."]
        case _:
            return [*_unknown(truth, facts), *reason]


# By the name of the condition that is not met.
_UNKNOWN: Final = {
    "the source is read": "No watcher of this cluster tells what it sees. A hang would not be seen.",
    "a barrier was evaluated": "The watcher has not evaluated anything yet. A hang would not be seen.",
    "the view shows hangs": "The coordinators' log is not read, and the coordinators are not asked: no hang is proven.",
    "the watch is ready": "The watcher is still reading the coordinators' log for the first time.",
    "the coordinators' log is read": "The coordinators' log is not read, so no hang is proven.",
}


def _unknown(truth: PageTruth, facts: Facts) -> list[Part]:
    if truth.why == "it was evaluated lately":
        return [
            "Unknown.",
            " The last evaluated barrier is ",
            facts.judged_ms or 0,
            " old. A new hang would not be seen.",
        ]
    return ["Unknown.", f" {_UNKNOWN[truth.why or '']}"]


def _partial(facts: Facts, unproven: Sequence[str], undecided: Sequence[str]) -> list[Part]:
    if facts.undecided != 0:
        count = counted(facts.undecided or 0, "open transaction")
        names = f" {'; '.join(undecided)}." if undecided else ""
        return ["Unproven.", f" Whether {count} will ever end is not known{':' if names else '.'}{names}"]
    if facts.unproven != 0:
        names = f" {', '.join(unproven)}." if unproven else ""
        count = counted(facts.unproven or 0, "partition")
        return [f"Nothing is known about {count}{':' if names else '.'}", f"{names} The others are clear."]
    if facts.undelivered is None:
        return ["No incident is open,", " but it is not known whether the events topic has every event."]
    waiting = counted(facts.undelivered, "event")
    return ["No incident is open,", f" but the events topic lacks {waiting}: consumers of it are not told."]


def told_first(
    open_incidents: Sequence[IncidentEvent], held: Callable[[IncidentEvent], Sequence[str]]
) -> IncidentEvent:
    """The incident that the headline is about: the worst one that holds a partition; if none does, the worst one."""
    return next(filter(held, open_incidents), open_incidents[0])


def _standing(open_incidents: Sequence[IncidentEvent], held: Callable[[IncidentEvent], Sequence[str]]) -> list[Part]:
    """The worst incident that holds a partition, and the number of partitions that stand."""
    worst = told_first(open_incidents, held)
    where = held(worst)
    if not where:
        return [
            f"{counted(len(open_incidents), 'incident')}.",
            f" {holder(worst)}: {VERDICT_WORDS[worst.verdict].brief}, for at least ",
            worst.open_since_ms,
            ".",
        ]
    standing = {place for event in open_incidents for place in held(event)}
    more = f" and {number(len(where) - 1)} more" if len(where) > 1 else ""
    return [
        f"{counted(len(standing), 'partition')} {'stands' if len(standing) == 1 else 'stand'} still.",
        f" {where[0]}{more} for at least ",
        worst.open_since_ms,
        f" behind {holder(worst)}: {VERDICT_WORDS[worst.verdict].brief}.",
    ]


def worst_first(events: Iterable[IncidentEvent]) -> list[IncidentEvent]:
    """Incidents in the order of the page: by the rank of their verdicts, then the oldest."""
    return sorted(events, key=lambda event: (rank(event.verdict), event.open_since_ms, event.incident_id))


def evaluated(judged_ms: TimestampMs | None, now_ms: TimestampMs) -> str:
    """How long ago a barrier was evaluated, for the page as text."""
    return f"evaluated {duration_text(now_ms - judged_ms)} ago" if judged_ms is not None else "never evaluated"


def as_text(parts: Sequence[Part], now_ms: TimestampMs) -> str:
    """A headline as text."""
    return "".join(part if isinstance(part, str) else duration_text(now_ms - part) for part in parts)


# What is not there, and what else is said in a browser as in the text: the browser gets these sentences.


class NotThere(NamedTuple):
    """What is not there, and why it may be so."""

    title: str
    text: str = ""


NO_INCIDENT: Final = NotThere(
    "No incident with this id is known here.",
    "An incident is forgotten a day after its end. Its events are still in the events topic, as long as the topic "
    "keeps them.",
)
NO_CLIENT: Final = NotThere(
    "Nothing is known under this id.",
    "It does not exist, or has nothing open for 2 s or longer, or has no place in the list of the oldest. No incident "
    "of it is open or has ended within a day.",
)
NO_NAME: Final = NotThere(
    "Nothing that is known here has this in its name.",
    "It was looked for among the watched topics, the open transactions, the incidents of a day, their groups and their "
    "owners.",
)
NO_PARTITION: Final = NotThere("This is not a partition.", "An address of a partition is /partition/TOPIC/NUMBER.")
# By the file of the browser that gets them at its end: the name of the constant, and the sentences.
SENTENCES: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "views.js": (
        "export const SAID",
        {"again": LOOK_AGAIN, "stands": NO_GROUP_STANDS, "groups": NO_GROUPS_READ},
    ),
    "details.js": (
        "const MISSING",
        {  # by the title of the view
            "Incident": NO_INCIDENT,
            "Producer": NO_CLIENT,
            "Transactional id": NO_CLIENT,
            "Found": NO_NAME,
            "Partition": NO_PARTITION,
            "no Partition": NO_PARTITION,
            "no Incident": NotThere(
                "This is not the id of an incident.", "Such an id has 32 characters: digits, and letters from a to f."
            ),
            "no Producer": NotThere("This is not a producer id.", "A producer id is a number."),
            "no address": NotThere(
                "The page has no such address.", "The incidents and the partitions are on the overview."
            ),
        },
    ),
}


# Whom to call, as values of the JSON: the owner of a transaction and of a group, and what its id says.

_GROUPS: Final = 32
_LONGEST: Final = 1_000


def owners_of(origin: Origin | None) -> OwnerLookup:
    """The table of this process."""
    return origin.owners if origin is not None else NO_OWNERS


_AROUND_MS: Final = 600_000


def links_at(origin: Origin | None, team: str, since_ms: int, until_ms: int) -> list[list[str]]:
    """The links of a team: its chat, its phone, and its dashboard at a time with ten minutes around it.

    The end is a whole number of ten minutes, so that a row of an open incident does not change with each second.
    """
    end_ms = TimestampMs((until_ms // _AROUND_MS + 1) * _AROUND_MS)
    return [list(link) for link in owners_of(origin).links(team).at(TimestampMs(max(0, since_ms - _AROUND_MS)), end_ms)]


def owner_row(owner: OwningTeam | None, links: Sequence[Sequence[str]] = ()) -> dict[str, Any] | None:
    """An owner; None if there is none."""
    if owner is None:
        return None
    return {
        "team": owner.team,
        "name": name(owner.name),
        "contact": name(owner.contact, _LONGEST) if owner.contact is not None else None,
        "url": owner.url,
        "found_by": owner.found_by.replace("_", " "),
        "links": list(links),
    }


def about_event(origin: Origin | None, event: IncidentEvent, now_ms: TimestampMs) -> dict[str, Any]:
    """The owner of an incident, what its id says, and the owners of its groups."""
    until_ms = now_ms if event.is_open else event.time_ms
    return {
        **_owner_fields(origin, event.owner, event.application, event.open_since_ms, until_ms),
        "group_owners": _group_owners(origin, event),
    }


def _application_text(application: IdMaker | None) -> str | None:
    return name(application.text, _LONGEST) if application is not None else None


def _group_owners(origin: Origin | None, event: IncidentEvent) -> list[list[str]]:
    """Pairs of a group and its owner, as both are shown; not a mapping, because a group may be named __proto__."""
    affected = [group.group_id for group in event.consumer_groups[:_GROUPS]]
    waiting = [group.group_id for group in event.waiting_groups[:_GROUPS]]
    owners = ((group_id, owner_of_group(origin, group_id)) for group_id in dict.fromkeys((*affected, *waiting)))
    return [[name(group_id), owner] for group_id, owner in owners if owner is not None]


def _owner_line(owner: OwningTeam) -> str:
    """An owner on one line."""
    return name(owner.name if owner.contact is None else f"{owner.name} {owner.contact}")


def owner_of_group(origin: Origin | None, group_id: str) -> str | None:
    """The owner of a group on one line; None if there is none."""
    owner = owners_of(origin).of_group(group_id)
    return _owner_line(owner) if owner is not None else None


def about_client(
    origin: Origin | None,
    transactions: Iterable[OpenTransaction],
    incidents: Iterable[IncidentEvent],
    now_ms: TimestampMs,
) -> dict[str, Any]:
    """The owner of a transactional id and what it says: by its incident, else by what is open under it."""
    event = next(iter(incidents), None)
    if event is not None:
        return _owner_fields(origin, event.owner, event.application, event.open_since_ms, now_ms)
    open_now = list(transactions)
    topics = frozenset(span.partition.topic for transaction in open_now for span in transaction.spans)
    named = next(
        (transaction.transactional_id for transaction in open_now if transaction.transactional_id is not None), None
    )
    owner, application = owners_of(origin).of(Subject(named, next(iter(sorted(topics)), None), topics))
    since_ms = min((transaction.since_ms for transaction in open_now), default=now_ms)
    return _owner_fields(origin, owner, application, since_ms, now_ms)


def _owner_fields(
    origin: Origin | None, owner: OwningTeam | None, application: IdMaker | None, since_ms: int, until_ms: int
) -> dict[str, Any]:
    links = links_at(origin, owner.team, since_ms, until_ms) if owner is not None else ()
    return {
        "owner": owner_row(owner, links),
        "no_owner": _no_owner(origin, owner),
        "application": _application_text(application),
    }


def _no_owner(origin: Origin | None, owner: OwningTeam | None) -> str | None:
    """Why nobody is named; None if somebody is."""
    if owner is not None:
        return None
    if owners_of(origin) is NO_OWNERS:
        return "No owner is known: this watch has no table of owners (owners_file)."
    return "The table of owners has no entry for it."


def names_of_owners(incidents: Iterable[IncidentEvent], most: int) -> str:
    """The names of the owners of incidents, for one line; empty if there are none."""
    names = list(dict.fromkeys(name(event.owner.name) for event in incidents if event.owner is not None))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
