"""An incident as a row: what it holds back now, whom it hurts, and what is said about it. Pure: no I/O, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple

from txnwatch.page.knowledge import Knowledge, Spans
from txnwatch.page.truth import PageState
from txnwatch.page.words import (
    LONGEST_NAME,
    about_event,
    groups,
    holder,
    id_for_address,
    name,
    owner_row,
    places,
    tag,
    waiting,
)
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.telling.changes import decision
from txnwatch.state.telling.commands import Origin, look_at
from txnwatch.state.telling.ends import due_of_event
from txnwatch.state.telling.folding import prefix_of
from txnwatch.state.telling.renderings import look_again, sentences, steps_of
from txnwatch.state.telling.statements import StatementKind, Told, how_it_ended, tell

NAMED: Final = 3
PLACES: Final = 16


def incident_row(knowledge: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """An incident as a row.

    A command that was read from the events topic is never shown. If the page is unknown, the command only reads. Where
    the open lists show the transaction, its partitions and what it hides now are theirs; else they are those of the
    event.
    """
    spans, held = knowledge.spans, held_places(event, knowledge.spans)
    hidden = hidden_by(event, spans)
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
        "short": _short(event),
        "producer_id": event.producer_id,
        "transactional_id": id_for_address(event.transactional_id),
        "since_ms": event.open_since_ms,
        "due_ms": due_of_event(event),
        "hidden": hidden.records,
        "hidden_is_least": hidden.is_least,
        "hidden_at_ms": hidden.at_ms,
        "stopped": groups(event, GroupState.STOPPED)[:NAMED],
        "more_stopped": max(0, len(groups(event, GroupState.STOPPED)) - NAMED),
        "at_risk": groups(event, GroupState.AT_RISK)[:NAMED],
        "waiting": waiting(event)[:NAMED],
        "more_waiting": max(0, len(waiting(event)) - NAMED),
        **_to_do(knowledge, event),
        **about_event(knowledge.store.origin, event, knowledge.now_ms),
    }


class HiddenRecords(NamedTuple):
    """How many records an incident hides.

    Attributes:
        records: None if nothing is known.
        is_least: whether there may be more: the end of one of its partitions is not known.
        at_ms: when it was so, if that is not now.
    """

    records: int | None
    is_least: bool = False
    at_ms: TimestampMs | None = None


def hidden_by(event: IncidentEvent, spans: Spans) -> HiddenRecords:
    """What an incident hides now, by the open lists; else what its last event says."""
    counts = [spans.hidden(at) for at in spans.held_by(event)] if event.is_open else []
    known_counts = [count for count in counts if count is not None]
    holds_nothing = event.is_open and not counts and spans.data_of(event.producer_id) is not None
    if known_counts or holds_nothing:
        return HiddenRecords(sum(known_counts), is_least=len(known_counts) < len(counts))
    return HiddenRecords(event.hidden_records, at_ms=event.time_ms if event.hidden_records is not None else None)


_SHORT_ID: Final = 24
_OF_ONE_START: Final = frozenset({"number", "process"})


def _short(event: IncidentEvent) -> str | None:
    """A long id in words: the application and which instance of it; None if the id itself is short, or says nothing."""
    maker, long = event.application, event.transactional_id or ""
    if maker is None or (len(long) <= _SHORT_ID and len(maker.parts) < 3):
        return None
    told = [f"{part.name} {part.value}" for part in maker.parts[1:] if part.name not in _OF_ONE_START]
    return name(", ".join([prefix_of(event) or maker.name, *told]))


def held_places(event: IncidentEvent, spans: Spans) -> list[str]:
    """The partitions that an open incident holds back; of one that is over, those that it held."""
    return [name(str(at)) for at in spans.held_by(event)] if event.is_open else places(event)


_LONGEST_COMMAND: Final = 1_000


def _to_do(knowledge: Knowledge, event: IncidentEvent) -> dict[str, Any]:
    """What is said about an incident in a row, the steps among it; `look` is the command that only reads."""
    statements = told(knowledge, event)
    return {
        **sentences(statements, StatementKind.WHY, StatementKind.SAFE, StatementKind.CONNECT),
        "steps": [step._asdict() for step in steps_of(statements)],
        "decision": decision(event, name) if knowledge.truth.state is not PageState.UNKNOWN else None,
        "look": _look(knowledge.store.commands, event),
    }


def told(knowledge: Knowledge, event: IncidentEvent, longest: int = LONGEST_NAME) -> tuple[Told, ...]:
    """What is said about an incident. If the page is unknown, the only step is another look.

    The step is a look too if its command was read from where others may write, or is too long for a page.
    """
    command, look = event.suggested_command, _look(knowledge.store.commands, event)
    if command is not None and (not knowledge.store.is_of_ledger or len(command) > _LONGEST_COMMAND):
        event = replace(event, suggested_command=look if look is not None and len(look) <= _LONGEST_COMMAND else None)
    statements = tell(event, lambda foreign, most=longest: name(foreign, most), _still_open(event, knowledge.spans))
    return look_again(statements, look) if knowledge.truth.state is PageState.UNKNOWN else statements


def _look(origin: Origin | None, event: IncidentEvent) -> str | None:
    """The command that only reads; None if the page does not know how the brokers are reached."""
    return look_at(origin, event) if origin is not None else None


def _still_open(event: IncidentEvent, spans: Spans) -> frozenset[str] | None:
    """The partitions on which the lists show open data of its producer; None if they do not have the producer."""
    data = spans.data_of(event.producer_id)
    return frozenset(map(str, data)) if data is not None else None


def recent(knowledge: Knowledge, limit: int) -> dict[str, Any]:
    """The incidents that ended within a day, the last one first."""
    ended = knowledge.ended_incidents
    return {"rows": [recent_row(event) for event in ended[:limit]], "more": max(0, len(ended) - limit)}


def recent_row(event: IncidentEvent) -> dict[str, Any]:
    """An incident that is over, as a row."""
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
