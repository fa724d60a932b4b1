"""What the page shows at one moment, as the values of its JSON. Pure: no I/O, no clock.

A picture has sections, each a mapping: `status`, `incidents` by id, `lanes` by partition, `order` of both, `others`,
`recent`, `shared`, `day`, `watcher`. So the difference of two pictures is a mapping of changed entries and a list of
those that are gone (`changes`); the browser makes the next picture of both. Times are epoch milliseconds; an age is
never sent, because the reader counts it. Every list has a bound, and beside each cut list is how much is missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

from txnwatch.page.incident_rows import NAMED, held_places, recent
from txnwatch.page.knowledge import Knowledge, transactions_of
from txnwatch.page.lanes import worst_lanes
from txnwatch.page.past import day_of
from txnwatch.page.shared import first_roots
from txnwatch.page.store import Reach, StartStep, TargetRow, WatcherRow
from txnwatch.page.storms import ALL_INCIDENTS, IncidentFilter, folds_of
from txnwatch.page.truth import CALM, Facts, PageState
from txnwatch.page.words import Part, groups, headline, name, names_of_owners, number
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.verdicts import Severity, undetected
from txnwatch.state.telling.commands import Origin, explain_id
from txnwatch.state.text import counted, printable

LANES: Final = 24
RECENT: Final = 20
_REASON: Final = 300
_LONGEST: Final = 1_000
_AGES_S: Final = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 1 << 20)

Picture = dict[str, dict[str, Any]]


def picture_of(knowledge: Knowledge) -> Picture:
    """The whole picture."""
    sections = sections_of(knowledge)
    return {
        "status": _status(knowledge, knowledge.open_incidents),
        **sections,
        "others": _others(knowledge, list(sections["lanes"].values())),
        "recent": recent(knowledge, RECENT),
        "shared": first_roots(knowledge),
        "day": dict(day_of(knowledge.store, knowledge.now_ms)),
        "watcher": {name: list(values) for name, values in knowledge.series.items()},
    }


def sections_of(knowledge: Knowledge, wanted: IncidentFilter = ALL_INCIDENTS) -> Picture:
    """The sections that a filter concerns: the rows, the lanes, and the order of both."""
    lanes, more_lanes = worst_lanes(knowledge, LANES, wanted if wanted != ALL_INCIDENTS else None)
    rows, order = folds_of(knowledge, wanted)
    return {"incidents": rows, "lanes": lanes, "order": {**order, "lanes": list(lanes), "more_lanes": more_lanes}}


def _status(knowledge: Knowledge, incidents: Sequence[IncidentEvent]) -> dict[str, Any]:
    seen, facts = knowledge.seen, knowledge.facts
    truth = knowledge.truth
    urgent = [event for event in incidents if event.verdict not in CALM]
    reach = seen.reach if seen.reach is not None else Reach()
    lacking = _unproven(reach, facts)
    stopped = {group for event in incidents for group in groups(event, GroupState.STOPPED)}
    at_risk = {group for event in incidents for group in groups(event, GroupState.AT_RISK)} - stopped
    critical = any(event.severity is Severity.CRITICAL for event in urgent)
    return {
        "state": truth.state,
        "why": truth.why,
        "tone": truth.state if truth.state is not PageState.INCIDENT else "critical" if critical else "warning",
        "headline": headline(
            *(truth, facts, urgent, lacking["unproven_names"], lacking["undecided_names"], _reason(knowledge)),
            lambda event: held_places(event, knowledge.spans),
        ),
        "detail": _detail(knowledge, urgent, stopped, at_risk),
        "problem": seen.problem,
        "judged_ms": seen.judged_ms,
        "judged_within_ms": seen.judged_within_ms,
        "barrier": seen.totals.barrier,
        "ready": seen.is_ready,
        "view": knowledge.store.access,
        "partitions": {**seen.watched._asdict(), "unproven": facts.unproven},
        **lacking,
        "not_detected": list(undetected(knowledge.store.access)) if knowledge.store.access is not None else None,
        "undelivered": seen.undelivered,
        "targets": [_target(target) for target in seen.targets],
        "speaks": seen.speaks,
        "speaker": name(seen.speaker) if seen.speaker is not None else None,
        "start": _start(knowledge),
        "bootstrap_servers": _servers(knowledge.store.origin),
        "open_incidents": len(urgent),
        "early_warnings": sum(event.severity is Severity.INFO for event in incidents),
        "groups_stopped": len(stopped),
        "groups_at_risk": len(at_risk),
        "open_transactions": seen.totals.open,
        "states": dict(seen.totals.states),
        "oldest_ms": seen.totals.oldest_ms,
        "watchers": [_watcher(watcher) for watcher in seen.watchers],
        "worst": urgent[0].incident_id if urgent else None,
        "search_command": _search(knowledge.store.commands),
        "exposures": knowledge.store.exposures._asdict() if knowledge.store.exposures is not None else None,
    }


def _servers(origin: Origin | None) -> str | None:
    return name(origin.bootstrap_servers, _REASON) if origin is not None and origin.bootstrap_servers else None


def _reason(knowledge: Knowledge) -> list[Part]:
    """Why nothing is known: why no watcher is believed, or what the log has said since the last barrier."""
    problem, said, judged_ms = knowledge.seen.problem, knowledge.store.warning, knowledge.seen.judged_ms
    if problem is not None:
        since: list[Part] = (
            [] if knowledge.seen.problem_ms is None else [" It is so for ", knowledge.seen.problem_ms, "."]
        )
        return [*since, f" Reason: {name(problem, _LONGEST)}."]
    if said is None or (judged_ms is not None and said.at_ms <= judged_ms):
        return []
    return [" The log, ", said.at_ms, f" ago: {name(said.text, _LONGEST).rstrip('.')}."]


_STEPS: Final = {
    StartStep.SPARK: "Spark starts",
    StartStep.PLAN: "the published incidents are read, and Spark plans the query",
    StartStep.LOGS: "the first micro-batches read the logs",
}


def _start(knowledge: Knowledge) -> list[dict[str, str]] | None:
    """The steps of a start; None once the watch is ready, or if nothing is known of a start."""
    step = knowledge.store.step
    if step is None or knowledge.seen.is_ready:
        return None
    states = {
        start_step: "done" if start_step < step else "now" if start_step == step else "to come"
        for start_step in StartStep
    }
    return [{"text": _STEPS[start_step], "state": states[start_step]} for start_step in StartStep]


def _target(row: TargetRow) -> dict[str, Any]:
    problem = name(row.problem, _REASON) if row.problem is not None else None
    return {**row._asdict(), "name": name(row.name), "problem": problem}


def _watcher(row: WatcherRow) -> dict[str, Any]:
    """A watcher as a row. Its address is the operator's own; what it says of itself is only text."""
    problem = name(row.problem, _REASON) if row.problem is not None else None
    told = {"instance": row.instance, "version": row.version}
    shown = {key: name(value) if value is not None else None for key, value in told.items()}
    return {**row._asdict(), **shown, "problem": problem}


def _unproven(reach: Reach, facts: Facts) -> dict[str, Any]:
    """What nothing is proven about: the first few partitions, and the first open data with its reasons."""
    return {
        "unproven_names": [str(partition) for partition in reach.named[:NAMED]],
        "undecided": facts.undecided,
        "undecided_names": [printable(text) for text in reach.undecided[:NAMED]],
        "unread_log_partitions": reach.of_log,
    }


def _search(origin: Origin | None) -> str | None:
    """The command that finds what hangs without a watcher."""
    if origin is None:
        return None
    explain = explain_id(origin, "x").partition(" --transactional-id x")[2]
    return f"txnwatch find-hanging --fail-on-found{explain}"


def _detail(
    knowledge: Knowledge, urgent: Sequence[IncidentEvent], stopped: set[str], at_risk: set[str]
) -> list[str | int]:
    """The line below the headline; numbers are times, as in a headline."""
    seen = knowledge.seen
    total = seen.watched.scanned + seen.watched.census
    parts: list[str | int] = []
    if urgent:
        parts.append(counted(len(urgent), "incident"))
    if stopped or at_risk:
        parts.append(f"{counted(len(stopped), 'group')} stopped, {number(len(at_risk))} at risk")
    if owners := names_of_owners(urgent, NAMED):
        parts.append(f"to call: {owners}")
    if nobody := sum(event.owner is None for event in urgent):
        parts.append(f"no owner is known of {number(nobody)}")
    if seen.judged_ms is not None:
        parts.append(f"evaluated on {counted(total, 'partition')}")
        parts.append(counted(seen.totals.open, "open transaction"))
    parts += [
        f"{name(target.name)} takes no events"
        for target in seen.targets
        if target.problem is not None or target.is_stopped
    ]
    if seen.problem is None:
        away = ((watcher.url, watcher.problem) for watcher in seen.watchers if watcher.problem is not None)
        parts += [f"{name(url)}: {name(problem, _REASON)}" for url, problem in away]
    ended = [event.time_ms for event in seen.incidents or () if event.resolution is not None]
    if ended and not urgent:
        return [" · ".join(map(str, parts)), " · the last incident ended ", max(ended), " ago"]
    return [" · ".join(map(str, parts))]


def _others(knowledge: Knowledge, lanes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The open transactions that are not drawn: their number, and the ages of those that the lists have."""
    drawn = {bar["producer_id"] for lane in lanes for bar in (lane["holder"], *lane["behind"]) if bar is not None}
    listed = [transaction for transaction in transactions_of(knowledge.seen) if transaction.producer_id not in drawn]
    ages_s = [max(0, knowledge.now_ms - transaction.since_ms) / 1000 for transaction in listed]
    bins = [
        [low, high, count]
        for low, high in itertools.pairwise(_AGES_S)
        if (count := sum(low <= age < high for age in ages_s))
    ]
    return {
        "count": max(0, knowledge.seen.totals.open - len(drawn)),
        "listed": len(listed),
        "oldest_ms": min((transaction.since_ms for transaction in listed), default=None),
        "ages_s": bins,
    }


def changes(before: Picture, after: Picture) -> dict[str, Any]:
    """The difference: `set` has the changed entries of each section, `gone` the removed ones."""
    changed: dict[str, dict[str, Any]] = {}
    gone: dict[str, list[str]] = {}
    for section, entries in after.items():
        former = before[section]
        if new := {key: value for key, value in entries.items() if former.get(key, _ABSENT) != value}:
            changed[section] = new
        if left := [key for key in former if key not in entries]:
            gone[section] = left
    return {"set": changed, "gone": gone}


_ABSENT: Final = object()
