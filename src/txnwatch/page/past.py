"""The past on the page: a strip of the day, and a week in numbers, of what the events topic has told. No I/O, no clock.

Law: the topic can be written by others. What is shown says where it is from, has no command, and never makes the page
green or red. Names pass `name`, as everywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Final

from txnwatch.page.shown_past import STEP_MS, ShownPast
from txnwatch.page.store import PageStore
from txnwatch.page.words import id_for_address, links_at, name
from txnwatch.state.incidents.heartbeat import AHEAD_MS
from txnwatch.state.incidents.past_incidents import PastIncident
from txnwatch.state.incidents.past_summary import (
    Facet,
    PastGroup,
    PastSummary,
    as_csv,
    as_markdown,
    headline_of,
    how_ended,
    remarks,
)
from txnwatch.state.model.values import DAY_MS, TimestampMs
from txnwatch.state.model.verdicts import Severity
from txnwatch.state.telling.commands import Origin

SLOTS: Final = int(DAY_MS // STEP_MS)
DAYS: Final = 7
MOST_DAYS: Final = 31
ROWS: Final = 20
LISTED: Final = 50
_LONGEST: Final = 60  # of a name in a table
_TONES: Final = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_SHOWN: Final = (Facet.OWNER, Facet.TRANSACTIONAL_ID, Facet.PARTITION, Facet.VERDICT, Facet.DAY)


NO_DAY: Final[Mapping[str, Any]] = {"slots": None, "from_ms": None, "step_ms": STEP_MS, "opened": None}


def day_of(store: PageStore, now_ms: TimestampMs) -> Mapping[str, Any]:
    """The strip of the day; its slots are null if this process does not read the events topic, or not yet."""
    if store.history is None or store.origin is None:
        return NO_DAY
    past, cluster_id = store.history, store.origin.cluster_id
    return past.made("day", lambda: day_strip(past.history.incidents, cluster_id, now_ms), now_ms)


def day_strip(incidents: Iterable[PastIncident], cluster_id: str, now_ms: TimestampMs) -> dict[str, Any]:
    """How many incidents were open in each quarter of an hour, and how severe the worst was: [slot, number, tone].

    A slot without any is left out. A tone is info, warning or critical.
    """
    first = now_ms // STEP_MS - SLOTS + 1
    from_ms = TimestampMs(first * STEP_MS)
    begun = {tone: [0] * (SLOTS + 1) for tone in _TONES}
    opened = 0
    for incident in incidents:
        is_shown = incident.subject.cluster_id == cluster_id and not incident.kind.is_by_hand
        if not is_shown or not incident.overlaps(from_ms, now_ms) or incident.time_ms > now_ms + AHEAD_MS:
            continue
        last = SLOTS - 1 if incident.ended_ms is None else min(SLOTS - 1, incident.ended_ms // STEP_MS - first)
        steps = begun[incident.kind.severity]
        steps[max(0, incident.since_ms // STEP_MS - first)] += 1
        steps[last + 1] -= 1
        opened += incident.since_ms >= from_ms
    open_in = {tone: list(itertools.accumulate(steps)) for tone, steps in begun.items()}
    slots = [
        [
            slot,
            sum(open_in[tone][slot] for tone in _TONES),
            max(tone for tone in range(3) if open_in[_TONES[tone]][slot]),
        ]
        for slot in range(SLOTS)
        if any(open_in[tone][slot] for tone in _TONES)
    ]
    return {"slots": slots, "from_ms": from_ms, "step_ms": STEP_MS, "opened": opened}


# The view.


def past_of(store: PageStore, days: int, now_ms: TimestampMs) -> dict[str, Any]:
    """The last days in numbers; `state` is read, reading, or elsewhere: with the watchers of a page of clusters."""
    if store.history is None or store.origin is None:
        return {"state": "reading" if store.instance else "elsewhere", "days": days}
    past, origin = store.history, store.origin
    summary = past.summary(origin.cluster_id, days, now_ms)
    return past.made(("view", days), lambda: _view(past, summary, origin, days), now_ms)


def _view(past: ShownPast, summary: PastSummary, origin: Origin, days: int) -> dict[str, Any]:
    return {
        "state": "read",
        "days": days,
        "topic": past.topic,
        "is_signed": past.is_signed,
        "from_ms": summary.window.from_ms,
        "to_ms": summary.window.to_ms,
        "headline": headline_of(summary),
        "remarks": list(remarks(summary)),
        "facets": [_facet(summary, by) for by in _SHOWN],
        "incidents": [_incident(incident, summary, origin) for incident in summary.incidents[:LISTED]],
        "more": max(0, len(summary.incidents) - LISTED),
    }


NO_PAST: Final = "The events topic is not read here, or not yet: the history is on the page of a watcher."
PAST_FORMS: Final = {"csv": "text/csv; charset=utf-8", "md": "text/plain; charset=utf-8"}


def past_text(store: PageStore, form: str, days: int, title: str, by: Facet | None, now_ms: TimestampMs) -> str | None:
    """The last days as CSV or Markdown; None if the topic is not read."""
    if store.history is None or store.origin is None:
        return None
    summary = store.history.summary(store.origin.cluster_id, days, now_ms)
    return as_csv(summary, by) if form == "csv" else as_markdown(summary, title, _SHOWN)


def _facet(summary: PastSummary, by: Facet) -> dict[str, Any]:
    groups = summary.groups(by)
    shown = groups if by is Facet.DAY else groups[:ROWS]
    return {"by": by, "rows": [_group(group) for group in shown], "more": len(groups) - len(shown)}


def _group(group: PastGroup) -> dict[str, Any]:
    return {
        "name": name(group.name, _LONGEST),
        "incidents": group.incidents,
        "still_open": group.still_open,
        "opened_before": group.opened_before,
        "median_ms": group.median_ms,
        "longest_ms": group.longest_ms,
        "total_ms": group.total_ms,
        "last_ms": group.last_ms,
        "ends": [[how.replace("_", " "), count] for how, count in group.ends],
    }


def _incident(incident: PastIncident, summary: PastSummary, origin: Origin) -> dict[str, Any]:
    about = incident.subject
    return {
        "id": incident.incident_id,
        "verdict": incident.kind.verdict,
        "tag": incident.kind.verdict.replace("_", " ").upper(),
        "places": [name(place, _LONGEST) for place in about.places],
        "more_places": about.more_places,
        "holder": name(about.name, _LONGEST) if about.name is not None else f"producer {about.producer_id}",
        "transactional_id": id_for_address(about.name),
        "producer_id": about.producer_id,
        "owner": about.owner,
        "since_ms": incident.since_ms,
        "ended_ms": incident.ended_ms,
        "opened_before": incident.since_ms < summary.window.from_ms,
        "how": how_ended(incident),
        "links": links_at(origin, about.owner, incident.since_ms, incident.ended_ms or summary.window.to_ms),
    }
