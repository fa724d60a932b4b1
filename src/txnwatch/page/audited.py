"""What the page says about the findings of the audit: the quiet line, the view, and their text. Pure: no I/O, no clock.

An incident and a finding that can be its cause name each other, both by `fits` of the audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from txnwatch.page.incident_rows import NAMED
from txnwatch.page.knowledge import Knowledge
from txnwatch.page.truth import PageState
from txnwatch.page.words import as_text, name
from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.exposure_rows import AuditRow, PeriodicAudit
from txnwatch.state.audit.exposures import Exposure, FittingIncident, explained, fits
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.telling.commands import audit_again
from txnwatch.state.text import counted, printable

_LONGEST: Final = 2_000
_LISTED: Final = 20  # incidents of one finding
_ON_ITS_PAGE: Final = "the page of its watcher has the findings, at /audit"


def _by_severity(audit: PeriodicAudit) -> dict[str, int]:
    return {str(severity): number for severity, number in audit.counts.items()}


def counts_line(row: dict[str, Any]) -> str:
    """The quiet line as text, for example `3 exposures, 1 critical`."""
    total = sum(row[severity] for severity in ExposureSeverity)
    worst = next((severity for severity in ExposureSeverity if row[severity] and severity != "info"), None)
    return counted(total, "exposure") + (f", {row[worst]} {worst}" if worst is not None else "")


def view(known: Knowledge, check: str) -> dict[str, Any]:
    """The findings, worst first; with a name of a check, only its findings."""
    found, origin = known.store.audited, known.store.commands
    chosen = [] if found is None else [at for at, row in enumerate(found.rows) if check in {"", row.check}]
    return {
        "check": next(({"name": one.name, "fires": one.fires} for one in CHECKS if one.name == check), None),
        "at_ms": found.at_ms if found is not None else None,
        "counts": _by_severity(found) if found is not None else None,
        "rows": [_row(known, found, at) for at in _worst_first(found, chosen)] if found is not None else [],
        "unexplained": found.unexplained if found is not None and not check else None,
        "not_checked": [{"what": name(one.what, _LONGEST), "why": name(one.why, _LONGEST)} for one in found.missing]
        if found is not None
        else _elsewhere(known),
        "command": audit_again(origin) if origin is not None else None,
    }


def _elsewhere(known: Knowledge) -> list[dict[str, str]]:
    """What a page of several clusters has in place of the findings: their numbers."""
    told = known.store.told_exposures
    return [] if told is None else [{"what": counts_line(told._asdict()), "why": _ON_ITS_PAGE}]


def _worst_first(audit: PeriodicAudit, chosen: list[int]) -> list[int]:
    return sorted(chosen, key=lambda at: audit.exposures[at].severity.rank)


def _row(known: Knowledge, audit: PeriodicAudit, at: int) -> dict[str, Any]:
    row = audit.rows[at]
    incidents = _incidents(known, audit, at)
    return {
        "check": row.check,
        "severity": row.severity,
        "group": row.group,
        "finding": name(row.finding, _LONGEST),
        "basis": row.basis,
        "affected": row.affected,
        "examples": [name(one) for one in row.examples],
        "evidence": [{key: name(value, _LONGEST) for key, value in one.items()} for one in row.evidence],
        "remedies": list(_shown(known, row).remedies),
        "issues": list(row.issues),
        "exposed_ids": row.exposed_ids,
        "transactional_ids": [name(one) for one in row.transactional_ids],
        "owners": [name(one) for one in row.owners],
        "docs": row.docs,
        "incidents": [
            {"id": one.incident_id, "verdict": one.verdict, "since_ms": one.since_ms} for one in incidents[:_LISTED]
        ],
        "more_incidents": max(0, len(incidents) - _LISTED),
    }


def _shown(known: Knowledge, row: AuditRow) -> AuditRow:
    """The row; its commands write, so a page that is unknown has none."""
    if known.truth.state is not PageState.UNKNOWN:
        return row
    return replace(row, remedies=tuple({**one, "command": None} for one in row.remedies))


def _incidents(known: Knowledge, audit: PeriodicAudit, at: int) -> list[FittingIncident]:
    """The incidents of the last week that fit a finding: those that are known now, and those of the events topic."""
    latest = explained(audit.exposures[at], known.seen.incidents or ())
    both = {one.incident_id: one for one in (*latest, *(audit.fitting[at] if audit.fitting is not None else ()))}
    return sorted(both.values(), key=lambda one: -one.since_ms)


def causes(known: Knowledge, event: IncidentEvent) -> list[dict[str, str]]:
    """The findings that an incident fits, one for each check, the worst first."""
    found = known.store.audited
    fitting: list[Exposure] = [one for one in found.exposures if fits(one, event)] if found is not None else []
    by_check = {one.check.name: one for one in sorted(fitting, key=lambda one: -one.severity.rank)}
    worst = sorted(by_check.values(), key=lambda one: one.severity.rank)
    return [
        {"check": one.check.name, "severity": str(one.severity), "finding": name(one.finding, _LONGEST)}
        for one in worst
    ]


def lines_of(known: Knowledge, check: str) -> list[str]:
    """The view as text."""
    found = known.store.audited
    if found is None:
        told = known.store.told_exposures
        if told is None:
            return ["audit: none was made yet"]
        return [f"{counts_line(told._asdict())} · {audited_ago(told.at_ms, known.now_ms)}", _ON_ITS_PAGE]
    chosen = [at for at, row in enumerate(found.rows) if check in {"", row.check}]
    lines = [f"{counts_line(_by_severity(found))} · {audited_ago(found.at_ms, known.now_ms)}"]
    for at in _worst_first(found, chosen):
        lines += ["", *map(printable, _shown(known, found.rows[at]).lines())]
        lines += _incident_lines(_incidents(known, found, at))
    if found.unexplained is not None and not check:
        lines += ["", found.unexplained]
    if found.missing:
        lines += ["", "not checked"]
        lines += [f"  {name(one.what, _LONGEST)}: {name(one.why, _LONGEST)}" for one in found.missing]
    return lines


def audited_ago(at_ms: TimestampMs, now_ms: TimestampMs) -> str:
    """When the audit was made."""
    return as_text(["audited ", at_ms, " ago"], now_ms)


def _incident_lines(incidents: list[FittingIncident]) -> Iterator[str]:
    for one in incidents[:NAMED]:
        yield f"  incident of the last week that fits: /incident/{one.incident_id} ({one.verdict})"
    if len(incidents) > NAMED:
        yield f"  and {counted(len(incidents) - NAMED, 'more incident')}"
