"""Open incidents in numbers that nobody reads one by one: a row for each cause, filters, and pages. Pure.

Law: each open incident can be reached. It is in a row of the picture, or in the count of one, and every row leads to a
list that has it (`select`). The picture has at least one row of each verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from txnwatch.page.incident_rows import held_places, hidden_by, incident_row, recent_row
from txnwatch.page.knowledge import HeldBack, Knowledge
from txnwatch.page.truth import CALM
from txnwatch.page.words import Part, groups, holder, name, number, tag, told_first, waiting
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.telling.folding import FoldedIncidents, fold, owner_label, prefix_of
from txnwatch.state.text import counted

FOLDS: Final = 30
LISTED: Final = 50
MOST: Final = 200
Choices = Mapping[str, list[list[str | int]]]
FILTERS: Final = ("owner", "topic", "verdict", "prefix", "reason")


def folds_of(knowledge: Knowledge, wanted: IncidentFilter) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The rows of the incidents that are meant, each with its fold, by the id of the worst one; and their order."""
    folds = fold(event for event in knowledge.open_incidents if wanted.takes(knowledge, event))
    shown = _shown(folds)
    causes = {folded.cause for folded in shown}
    rest = [event for folded in folds if folded.cause not in causes for event in folded.incidents]
    rows = {
        folded.incidents[0].incident_id: {
            **incident_row(knowledge, folded.incidents[0]),
            "fold": _fold_row(knowledge, folded),
        }
        for folded in shown
    }
    return rows, {
        "incidents": list(rows),
        "more_rows": len(folds) - len(shown),
        "more_incidents": len(rest),
        "more_by_verdict": dict(Counter(event.verdict for event in rest)),
        "choices": choices(knowledge, knowledge.open_incidents),
        "causes": causes_of(knowledge, _untold(knowledge, folds)),
    }


def _shown(folds: Sequence[FoldedIncidents]) -> list[FoldedIncidents]:
    """The first folds, and the first one of each verdict."""
    places = list(range(min(FOLDS, len(folds))))
    verdicts = {folds[at].cause.verdict for at in places}
    for at, folded in enumerate(folds[FOLDS:], FOLDS):
        if folded.cause.verdict not in verdicts:
            verdicts.add(folded.cause.verdict)
            several = Counter(folds[place].cause.verdict for place in places)
            last = next(place for place in reversed(places) if several[folds[place].cause.verdict] > 1)
            places[places.index(last)] = at
    return [folds[at] for at in sorted(places)]


def _fold_row(knowledge: Knowledge, folded: FoldedIncidents) -> dict[str, Any] | None:
    """What the incidents of a fold do together; None for an incident that is alone."""
    if len(folded.incidents) == 1:
        return None
    hidden = [hidden_by(event, knowledge.spans) for event in folded.incidents]
    held: set[TopicPartition] = {at for event in folded.incidents for at in knowledge.spans.held_by(event)}
    stopped = {group for event in folded.incidents for group in groups(event, GroupState.STOPPED)}
    waits = {group for event in folded.incidents for group in waiting(event)}
    cause = folded.cause
    query = {
        "verdict": str(cause.verdict),
        "reason": cause.reason,
        "owner": cause.owner,
        "topic": cause.topic,
        "prefix": cause.prefix,
    }
    return {
        "count": len(folded.incidents),
        "topic": name(cause.topic) if cause.topic is not None else None,
        "prefix": name(cause.prefix) if cause.prefix is not None else None,
        "producers": len({event.producer_id for event in folded.incidents}),
        "partitions": len(held),
        "hidden": sum(count.records or 0 for count in hidden),
        "hidden_is_least": any(count.records is None or count.is_least or count.at_ms is not None for count in hidden),
        "stopped": len(stopped),
        "waiting": len(waits),
        "since_ms": min(event.open_since_ms for event in folded.incidents),
        "last_since_ms": max(event.open_since_ms for event in folded.incidents),
        "list": f"/incidents?{urlencode({key: value for key, value in query.items() if value is not None})}",
    }


# The causes in words, for a wall.

CAUSES: Final = 5
NO_CAUSES: Final[Mapping[str, Any]] = MappingProxyType({"incidents": 0, "rows": [], "more": 0})


def causes_of(knowledge: Knowledge, folds: Sequence[FoldedIncidents], *, has_owner: bool = True) -> dict[str, Any]:
    """Each cause in one line, the worst first, without early warnings; and how many incidents and causes there are.

    `has_owner`: a line says whose it is.
    """
    urgent = [folded for folded in folds if folded.cause.verdict not in CALM]
    return {
        "incidents": sum(len(folded.incidents) for folded in urgent),
        "rows": [_cause_text(knowledge, folded, has_owner=has_owner) for folded in urgent[:CAUSES]],
        "more": max(0, len(urgent) - CAUSES),
    }


def _untold(knowledge: Knowledge, folds: Sequence[FoldedIncidents]) -> Sequence[FoldedIncidents]:
    """The folds without the incident of the headline, if nothing is beside it in its fold."""
    urgent = [event for event in knowledge.open_incidents if event.verdict not in CALM]
    if not urgent:
        return folds
    told = told_first(urgent, lambda event: held_places(event, knowledge.spans))
    return [folded for folded in folds if folded.incidents != [told]]


def _cause_text(knowledge: Knowledge, folded: FoldedIncidents, *, has_owner: bool) -> list[Part]:
    """What stands, behind whom, since when, and whose it is."""
    event, *further = folded.incidents
    owner = name(event.owner.name) if event.owner is not None else "no owner is known"
    whose = f"; {owner}" if has_owner else ""
    held = sorted({place for each in folded.incidents for place in held_places(each, knowledge.spans)})
    since_ms = min(each.open_since_ms for each in folded.incidents)
    if further:
        topic, prefix = folded.cause.topic, folded.cause.prefix
        what = f"{counted(len(held), 'partition')}{f' of {name(topic)}' if topic is not None else ''}"
        producers = counted(len({each.producer_id for each in folded.incidents}), "producer")
        whom = f"{producers}{f' of {name(prefix)}' if prefix is not None else ''}"
    else:
        more = f" and {number(len(held) - 1)} more" if held[1:] else ""
        what, whom = f"{held[0]}{more}" if held else "no partition", holder(event)
    return [f"{what} behind {whom} for at least ", since_ms, f": {tag(event).lower()}{whose}"]


# The list of incidents one by one.


class IncidentFilter(NamedTuple):
    """What an incident has to have; None for anything."""

    owner: str | None = None
    topic: str | None = None
    verdict: str | None = None
    prefix: str | None = None
    reason: str | None = None

    def takes(self, knowledge: Knowledge, event: IncidentEvent) -> bool:
        """Whether an incident is meant."""
        return (
            self.owner in {None, owner_label(event)}
            and self.verdict in {None, str(event.verdict)}
            and self.reason in {None, str(event.reason)}
            and (self.topic is None or self.topic in _topics(knowledge, event))
            and (self.prefix is None or _begins(event, self.prefix))
        )

    def takes_open(self, at: TopicPartition, held: HeldBack, incident: IncidentEvent | None, team: str) -> bool:
        """See LaneFilter."""
        verdict, reason = (str(incident.verdict), str(incident.reason)) if incident is not None else ("", "")
        begins = self.prefix is None or (held.transaction.transactional_id or "").startswith(self.prefix)
        return (
            self.owner in {None, team}
            and self.topic in {None, at.topic}
            and self.verdict in {None, verdict}
            and self.reason in {None, reason}
            and (begins or (incident is not None and _begins(incident, self.prefix or "")))
        )


ALL_INCIDENTS: Final = IncidentFilter()


def filter_of(query: Mapping[str, str]) -> IncidentFilter:
    """The filter in the query of an address."""
    return IncidentFilter(**{key: query[key] for key in FILTERS if query.get(key)})


def _begins(event: IncidentEvent, prefix: str) -> bool:
    return (event.transactional_id or "").startswith(prefix) or prefix_of(event) == prefix


def _topics(knowledge: Knowledge, event: IncidentEvent) -> Iterator[str]:
    if event.topic is not None:
        yield event.topic
        return
    yield from (at.topic for at in knowledge.spans.held_by(event))
    yield from (place.rpartition("-")[0] for place in event.pending_partitions)


def select(
    knowledge: Knowledge, wanted: IncidentFilter, limit: int, offset: int = 0, *, has_ended: bool = False
) -> dict[str, Any]:
    """The incidents that are meant, worst first, as rows; `choices` are the values that a filter can have.

    Of open ones, `causes` has them in words.
    """
    incidents = knowledge.open_incidents if not has_ended else knowledge.ended_incidents
    chosen = [event for event in incidents if wanted.takes(knowledge, event)]
    page = chosen[offset : offset + limit]
    return {
        "rows": [recent_row(event) if has_ended else incident_row(knowledge, event) for event in page],
        "count": len(chosen),
        "offset": offset,
        "more": max(0, len(chosen) - offset - len(page)),
        "choices": choices(knowledge, incidents),
        "causes": causes_of(knowledge, fold(chosen), has_owner=wanted.owner is None) if not has_ended else None,
    }


def choices(knowledge: Knowledge, incidents: Sequence[IncidentEvent]) -> Choices:
    """The values of each filter with their numbers, the most frequent first."""
    counts = {key: Counter[str]() for key in FILTERS[:4]}
    for event in incidents:
        counts["owner"][owner_label(event)] += 1
        counts["verdict"][str(event.verdict)] += 1
        counts["topic"].update(set(_topics(knowledge, event)))
        if prefix := prefix_of(event):
            counts["prefix"][prefix] += 1
    return {
        key: [[name(value), count] for value, count in values.most_common(CHOICES)] for key, values in counts.items()
    }


CHOICES: Final = 20
