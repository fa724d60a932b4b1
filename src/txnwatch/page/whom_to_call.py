"""Whom to call, as values of the page's JSON: the owner of a transaction and of a group, and what its id says.

An event of the ledger has the owner by the table of this process. A link comes from that table alone, and the table has
only http and https addresses. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from txnwatch.page.words import name
from txnwatch.state.incidents.commands import Origin
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import ADVICE_MEANS, NO_OWNERS, IdMaker, OwnerLookup, OwningTeam, Subject
from txnwatch.state.model.values import ProducerId

_GROUPS: Final = 32
_LONGEST: Final = 1_000


def owners_of(origin: Origin | None) -> OwnerLookup:
    """The table of this process."""
    return origin.owners if origin is not None else NO_OWNERS


def owner_row(owner: OwningTeam | None) -> dict[str, Any] | None:
    """An owner; None if there is none."""
    if owner is None:
        return None
    return {
        "team": owner.team,
        "name": name(owner.name),
        "contact": name(owner.contact, _LONGEST) if owner.contact is not None else None,
        "url": owner.url,
        "found_by": owner.found_by.replace("_", " "),
    }


def about_event(origin: Origin | None, event: IncidentEvent) -> dict[str, Any]:
    """The owner of an incident, what its id says, what to know before it is ended, and the owners of its groups."""
    return {
        **_answer(origin, event.owner, event.application),
        "advice": ADVICE_MEANS[event.advice] if event.advice is not None else None,
        "group_owners": _group_owners(origin, event),
    }


def _text(application: IdMaker | None) -> str | None:
    return name(application.text, _LONGEST) if application is not None else None


def _group_owners(origin: Origin | None, event: IncidentEvent) -> list[list[str]]:
    """Pairs of a group and its owner, as both are shown; not a mapping, because a group may be named __proto__."""
    affected = [group.group_id for group in event.consumer_groups[:_GROUPS]]
    waiting = [group.group_id for group in event.waiting_groups[:_GROUPS]]
    found = ((group_id, owner_of_group(origin, group_id)) for group_id in dict.fromkeys((*affected, *waiting)))
    return [[name(group_id), owner] for group_id, owner in found if owner is not None]


def _short(owner: OwningTeam) -> str:
    """An owner on one line."""
    return name(owner.name if owner.contact is None else f"{owner.name} {owner.contact}")


def owner_of_group(origin: Origin | None, group_id: str) -> str | None:
    """The owner of a group on one line; None if there is none."""
    owner = owners_of(origin).of_group(group_id)
    return _short(owner) if owner is not None else None


def about_client(
    origin: Origin | None, transactions: Iterable[OpenTransaction], incidents: Iterable[IncidentEvent]
) -> dict[str, Any]:
    """The owner of a transactional id and what it says: by its incident, else by what is open under it."""
    event = next(iter(incidents), None)
    if event is not None:
        return _answer(origin, event.owner, event.application)
    open_now = list(transactions)
    topics = frozenset(span.partition.topic for one in open_now for span in one.spans)
    named = next((one.transactional_id for one in open_now if one.transactional_id is not None), None)
    owner, application = owners_of(origin).of(Subject(named, next(iter(sorted(topics)), None), topics))
    return _answer(origin, owner, application)


def _answer(origin: Origin | None, owner: OwningTeam | None, application: IdMaker | None) -> dict[str, Any]:
    return {"owner": owner_row(owner), "no_owner": _no_owner(origin, owner), "application": _text(application)}


def _no_owner(origin: Origin | None, owner: OwningTeam | None) -> str | None:
    """Why nobody is named; None if somebody is."""
    if owner is not None:
        return None
    if owners_of(origin) is NO_OWNERS:
        return "No owner is known: this watch has no table of owners (owners_file)."
    return "The table of owners has no entry for it."


def with_holders_owner(
    origin: Origin | None,
    lane: Mapping[str, Any],
    transactions: Mapping[ProducerId, OpenTransaction],
    incidents: Mapping[str, IncidentEvent],
) -> dict[str, Any]:
    """A lane with the name of its holder's owner: that of its incident, which knows more (groups), if there is one."""
    holder = lane["holder"]
    transaction = transactions.get(holder["producer_id"]) if holder is not None else None
    if transaction is None:
        return dict(lane)
    event = incidents.get(holder["incident"] or "")
    if event is not None:
        owner = event.owner
    else:
        topics = frozenset(span.partition.topic for span in transaction.spans)
        owner = owners_of(origin).of(Subject(transaction.transactional_id, lane["topic"], topics)).owner
    return {**lane, "holder": {**holder, "owner": name(owner.name) if owner is not None else None}}


def names_of_owners(incidents: Iterable[IncidentEvent], most: int) -> str:
    """The names of the owners of incidents, for one line; empty if there are none."""
    names = list(dict.fromkeys(name(event.owner.name) for event in incidents if event.owner is not None))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
