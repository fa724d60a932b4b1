"""An incident as a row: what it holds back now, whom it hurts, and what is said about it. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from txnwatch.page.knowledge import Knowledge, Spans
from txnwatch.page.truth import PageState
from txnwatch.page.words import (
    LONGEST_NAME,
    about_event,
    decision,
    groups,
    holder,
    name,
    owner_row,
    places,
    tag,
    waiting,
)
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.telling.commands import Origin, look_at
from txnwatch.state.telling.renderings import look_again, sentences, steps_of
from txnwatch.state.telling.statements import StatementKind, Told, how_it_ended, tell

NAMED: Final = 3
PLACES: Final = 16


def incident_row(known: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """An incident as a row.

    A command that was read from the events topic is never shown. If the page is unknown, the command only reads. Where
    the open lists show the transaction, its partitions and what it hides now are theirs; else they are those of the
    event.
    """
    spans, held = known.spans, held_places(event, known.spans)
    counts = [spans.hidden(at) for at in spans.held_by(event)]
    known_counts = [count for count in counts if count is not None]
    holds_nothing = not counts and spans.data_of(event.producer_id) is not None
    hidden = sum(known_counts) if event.is_open and (known_counts or holds_nothing) else event.hidden_records
    return {
        "id": event.incident_id,
        "verdict": event.verdict,
        "tag": tag(event),
        "severity": event.severity,
        "places": held[:PLACES],
        "more_places": max(0, len(held) - PLACES),
        "topic": event.topic,
        "partition": event.partition,
        "holder": holder(event),
        "producer_id": event.producer_id,
        "transactional_id": id_for_address(event.transactional_id),
        "since_ms": event.open_since_ms,
        "hidden": hidden,
        "stopped": groups(event, GroupState.STOPPED)[:NAMED],
        "more_stopped": max(0, len(groups(event, GroupState.STOPPED)) - NAMED),
        "at_risk": groups(event, GroupState.AT_RISK)[:NAMED],
        "waiting": waiting(event)[:NAMED],
        "more_waiting": max(0, len(waiting(event)) - NAMED),
        **_to_do(known, event),
        **about_event(known.store.origin, event),
    }


def held_places(event: IncidentEvent, spans: Spans) -> list[str]:
    """The partitions that an open incident holds back; of one that is over, those that it held."""
    return [name(str(at)) for at in spans.held_by(event)] if event.is_open else places(event)


_LONGEST_COMMAND: Final = 1_000


def _to_do(known: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """What is said about an incident in a row, the steps among it; `look` is the command that only reads."""
    found = told(known, event)
    return {
        **sentences(found, StatementKind.WHY, StatementKind.SAFE),
        "steps": [one._asdict() for one in steps_of(found)],
        "decision": decision(event) if known.truth.state is not PageState.UNKNOWN else None,
        "look": _look(known.store.commands, event),
    }


def told(known: Knowledge, event: IncidentEvent, longest: int = LONGEST_NAME) -> tuple[Told, ...]:
    """What is said about an incident. If the page is unknown, the only step is another look.

    The step is a look too if its command was read from where others may write, or is too long for a page.
    """
    command, look = event.suggested_command, _look(known.store.commands, event)
    if command is not None and (not known.store.is_of_ledger or len(command) > _LONGEST_COMMAND):
        event = replace(event, suggested_command=look if look is not None and len(look) <= _LONGEST_COMMAND else None)
    found = tell(event, lambda foreign: name(foreign, longest), _still_open(event, known.spans))
    return look_again(found, look) if known.truth.state is PageState.UNKNOWN else found


def _look(origin: Origin | None, event: IncidentEvent) -> str | None:
    """The command that only reads; None if the page does not know how the brokers are reached."""
    return look_at(origin, event) if origin is not None else None


def _still_open(event: IncidentEvent, spans: Spans) -> frozenset[str] | None:
    """The partitions on which the lists show open data of its producer; None if they do not have the producer."""
    data = spans.data_of(event.producer_id)
    return frozenset(map(str, data)) if data is not None else None


_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-")
_LONGEST_IN_ADDRESS: Final = 200


def id_for_address(transactional_id: str | None) -> str | None:
    """The id if it can be a part of a path; None if the address has to have the producer id.

    A browser removes `.` and `..` from a path, and a long id does not fit into the first line of a request.
    """
    if transactional_id is None or len(transactional_id) > _LONGEST_IN_ADDRESS or transactional_id in {"", ".", ".."}:
        return None
    return transactional_id if _PLAIN.issuperset(transactional_id) else None


def recent(known: Knowledge, limit: int) -> dict[str, Any]:
    """The incidents that ended within a day, the last one first."""
    ended = [event for event in known.seen.incidents or () if event.resolution is not None]
    ended.sort(key=lambda event: -event.time_ms)
    return {"rows": [_recent(event) for event in ended[:limit]], "more": max(0, len(ended) - limit)}


def _recent(event: IncidentEvent) -> dict[str, Any]:
    return {
        "id": event.incident_id,
        "verdict": event.verdict,
        "tag": tag(event),
        "places": places(event)[:NAMED],
        "holder": holder(event),
        "since_ms": event.open_since_ms,
        "ended_ms": event.time_ms,
        "how": how_it_ended(event),
        "hidden": event.hidden_records,
        "owner": owner_row(event.owner),
    }
