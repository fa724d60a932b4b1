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


def folds_of(known: Knowledge, wanted: IncidentFilter) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """The rows of the incidents that are meant, each with its fold, by the id of the worst one; and their order."""
    folds = fold(event for event in known.open_incidents if wanted.takes(known, event))
    shown = _shown(folds)
    causes = {one.cause for one in shown}
    rest = [event for one in folds if one.cause not in causes for event in one.incidents]
    rows = {
        one.incidents[0].incident_id: {**incident_row(known, one.incidents[0]), "fold": _fold_row(known, one)}
        for one in shown
    }
    return rows, {
        "incidents": list(rows),
        "more_rows": len(folds) - len(shown),
        "more_incidents": len(rest),
        "more_by_verdict": dict(Counter(event.verdict for event in rest)),
        "choices": choices(known, known.open_incidents),
        "causes": causes_of(known, _untold(known, folds)),
    }


def _shown(folds: Sequence[FoldedIncidents]) -> list[FoldedIncidents]:
    """The first folds, and the first one of each verdict."""
    places = list(range(min(FOLDS, len(folds))))
    verdicts = {folds[at].cause.verdict for at in places}
    for at, one in enumerate(folds[FOLDS:], FOLDS):
        if one.cause.verdict not in verdicts:
            verdicts.add(one.cause.verdict)
            several = Counter(folds[place].cause.verdict for place in places)
            last = next(place for place in reversed(places) if several[folds[place].cause.verdict] > 1)
            places[places.index(last)] = at
    return [folds[at] for at in sorted(places)]


def _fold_row(known: Knowledge, one: FoldedIncidents) -> dict[str, Any] | None:
    """What the incidents of a fold do together; None for an incident that is alone."""
    if len(one.incidents) == 1:
        return None
    hidden = [hidden_by(event, known.spans) for event in one.incidents]
    held: set[TopicPartition] = {at for event in one.incidents for at in known.spans.held_by(event)}
    stopped = {group for event in one.incidents for group in groups(event, GroupState.STOPPED)}
    waits = {group for event in one.incidents for group in waiting(event)}
    cause = one.cause
    query = {
        "verdict": str(cause.verdict),
        "reason": cause.reason,
        "owner": cause.owner,
        "topic": cause.topic,
        "prefix": cause.prefix,
    }
    return {
        "count": len(one.incidents),
        "topic": name(cause.topic) if cause.topic is not None else None,
        "prefix": name(cause.prefix) if cause.prefix is not None else None,
        "producers": len({event.producer_id for event in one.incidents}),
        "partitions": len(held),
        "hidden": sum(found.records or 0 for found in hidden),
        "hidden_is_least": any(found.records is None or found.is_least or found.at_ms is not None for found in hidden),
        "stopped": len(stopped),
        "waiting": len(waits),
        "since_ms": min(event.open_since_ms for event in one.incidents),
        "last_since_ms": max(event.open_since_ms for event in one.incidents),
        "list": f"/incidents?{urlencode({key: value for key, value in query.items() if value is not None})}",
    }


# The causes in words, for a wall.

CAUSES: Final = 5
NO_CAUSES: Final[Mapping[str, Any]] = MappingProxyType({"incidents": 0, "rows": [], "more": 0})


def causes_of(known: Knowledge, folds: Sequence[FoldedIncidents], *, has_owner: bool = True) -> dict[str, Any]:
    """Each cause in one line, the worst first, without early warnings; and how many incidents and causes there are.

    `has_owner`: a line says whose it is.
    """
    urgent = [one for one in folds if one.cause.verdict not in CALM]
    return {
        "incidents": sum(len(one.incidents) for one in urgent),
        "rows": [_cause_text(known, one, has_owner=has_owner) for one in urgent[:CAUSES]],
        "more": max(0, len(urgent) - CAUSES),
    }


def _untold(known: Knowledge, folds: Sequence[FoldedIncidents]) -> Sequence[FoldedIncidents]:
    """The folds without the incident of the headline, if nothing is beside it in its fold."""
    urgent = [event for event in known.open_incidents if event.verdict not in CALM]
    if not urgent:
        return folds
    told = told_first(urgent, lambda event: held_places(event, known.spans))
    return [one for one in folds if one.incidents != [told]]


def _cause_text(known: Knowledge, one: FoldedIncidents, *, has_owner: bool) -> list[Part]:
    """What stands, behind whom, since when, and whose it is."""
    event, *further = one.incidents
    owner = name(event.owner.name) if event.owner is not None else "no owner is known"
    whose = f"; {owner}" if has_owner else ""
    held = sorted({place for each in one.incidents for place in held_places(each, known.spans)})
    since_ms = min(each.open_since_ms for each in one.incidents)
    if further:
        topic, prefix = one.cause.topic, one.cause.prefix
        what = f"{counted(len(held), 'partition')}{f' of {name(topic)}' if topic is not None else ''}"
        producers = counted(len({each.producer_id for each in one.incidents}), "producer")
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

    def takes(self, known: Knowledge, event: IncidentEvent) -> bool:
        """Whether an incident is meant."""
        return (
            self.owner in {None, owner_label(event)}
            and self.verdict in {None, str(event.verdict)}
            and self.reason in {None, str(event.reason)}
            and (self.topic is None or self.topic in _topics(known, event))
            and (self.prefix is None or _begins(event, self.prefix))
        )

    def takes_open(self, at: TopicPartition, held: HeldBack, incident: IncidentEvent | None, team: str) -> bool:
        """See LaneFilter."""
        found = (str(incident.verdict), str(incident.reason)) if incident is not None else ("", "")
        begins = self.prefix is None or (held.transaction.transactional_id or "").startswith(self.prefix)
        return (
            self.owner in {None, team}
            and self.topic in {None, at.topic}
            and self.verdict in {None, found[0]}
            and self.reason in {None, found[1]}
            and (begins or (incident is not None and _begins(incident, self.prefix or "")))
        )


ALL_INCIDENTS: Final = IncidentFilter()


def filter_of(query: Mapping[str, str]) -> IncidentFilter:
    """The filter in the query of an address."""
    return IncidentFilter(**{key: query[key] for key in FILTERS if query.get(key)})


def _begins(event: IncidentEvent, prefix: str) -> bool:
    return (event.transactional_id or "").startswith(prefix) or prefix_of(event) == prefix


def _topics(known: Knowledge, event: IncidentEvent) -> Iterator[str]:
    if event.topic is not None:
        yield event.topic
        return
    yield from (at.topic for at in known.spans.held_by(event))
    yield from (place.rpartition("-")[0] for place in event.pending_partitions)


def select(
    known: Knowledge, wanted: IncidentFilter, limit: int, offset: int = 0, *, has_ended: bool = False
) -> dict[str, Any]:
    """The incidents that are meant, worst first, as rows; `choices` are the values that a filter can have.

    Of open ones, `causes` has them in words.
    """
    found = known.open_incidents if not has_ended else known.ended_incidents
    chosen = [event for event in found if wanted.takes(known, event)]
    page = chosen[offset : offset + limit]
    return {
        "rows": [recent_row(event) if has_ended else incident_row(known, event) for event in page],
        "count": len(chosen),
        "offset": offset,
        "more": max(0, len(chosen) - offset - len(page)),
        "choices": choices(known, found),
        "causes": causes_of(known, fold(chosen), has_owner=wanted.owner is None) if not has_ended else None,
    }


def choices(known: Knowledge, incidents: Sequence[IncidentEvent]) -> Choices:
    """The values of each filter with their numbers, the most frequent first."""
    counts = {key: Counter[str]() for key in FILTERS[:4]}
    for event in incidents:
        counts["owner"][owner_label(event)] += 1
        counts["verdict"][str(event.verdict)] += 1
        counts["topic"].update(set(_topics(known, event)))
        if prefix := prefix_of(event):
            counts["prefix"][prefix] += 1
    return {key: [[name(value), count] for value, count in one.most_common(CHOICES)] for key, one in counts.items()}


CHOICES: Final = 20
