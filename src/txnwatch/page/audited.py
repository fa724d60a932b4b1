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


def view(knowledge: Knowledge, check: str) -> dict[str, Any]:
    """The findings, worst first; with a name of a check, only its findings."""
    audit, origin = knowledge.store.audited, knowledge.store.commands
    chosen = [] if audit is None else [at for at, row in enumerate(audit.rows) if check in {"", row.check}]
    return {
        "check": next(
            (
                {"name": audit_check.name, "fires": audit_check.fires}
                for audit_check in CHECKS
                if audit_check.name == check
            ),
            None,
        ),
        "at_ms": audit.at_ms if audit is not None else None,
        "counts": _by_severity(audit) if audit is not None else None,
        "rows": [_row(knowledge, audit, at) for at in _worst_first(audit, chosen)] if audit is not None else [],
        "unexplained": audit.unexplained if audit is not None and not check else None,
        "not_checked": [
            {"what": name(missing.what, _LONGEST), "why": name(missing.why, _LONGEST)} for missing in audit.missing
        ]
        if audit is not None
        else _elsewhere(knowledge),
        "command": audit_again(origin) if origin is not None else None,
    }


def _elsewhere(knowledge: Knowledge) -> list[dict[str, str]]:
    """What a page of several clusters has in place of the findings: their numbers."""
    told = knowledge.store.told_exposures
    return [] if told is None else [{"what": counts_line(told._asdict()), "why": _ON_ITS_PAGE}]


def _worst_first(audit: PeriodicAudit, chosen: list[int]) -> list[int]:
    return sorted(chosen, key=lambda at: audit.exposures[at].severity.rank)


def _row(knowledge: Knowledge, audit: PeriodicAudit, at: int) -> dict[str, Any]:
    row = audit.rows[at]
    incidents = _incidents(knowledge, audit, at)
    return {
        "check": row.check,
        "severity": row.severity,
        "group": row.group,
        "finding": name(row.finding, _LONGEST),
        "basis": row.basis,
        "affected": row.affected,
        "examples": [name(example) for example in row.examples],
        "evidence": [{key: name(value, _LONGEST) for key, value in evidence.items()} for evidence in row.evidence],
        "remedies": list(_shown(knowledge, row).remedies),
        "issues": list(row.issues),
        "exposed_ids": row.exposed_ids,
        "transactional_ids": [name(transactional_id) for transactional_id in row.transactional_ids],
        "owners": [name(owner) for owner in row.owners],
        "docs": row.docs,
        "incidents": [
            {"id": incident.incident_id, "verdict": incident.verdict, "since_ms": incident.since_ms}
            for incident in incidents[:_LISTED]
        ],
        "more_incidents": max(0, len(incidents) - _LISTED),
    }


def _shown(knowledge: Knowledge, row: AuditRow) -> AuditRow:
    """The row; its commands write, so a page that is unknown has none."""
    if knowledge.truth.state is not PageState.UNKNOWN:
        return row
    return replace(row, remedies=tuple({**remedy, "command": None} for remedy in row.remedies))


def _incidents(knowledge: Knowledge, audit: PeriodicAudit, at: int) -> list[FittingIncident]:
    """The incidents of the last week that fit a finding: those that are known now, and those of the events topic."""
    latest = explained(audit.exposures[at], knowledge.seen.incidents or ())
    both = {
        incident.incident_id: incident
        for incident in (*latest, *(audit.fitting[at] if audit.fitting is not None else ()))
    }
    return sorted(both.values(), key=lambda incident: -incident.since_ms)


def causes(knowledge: Knowledge, event: IncidentEvent) -> list[dict[str, str]]:
    """The findings that an incident fits, one for each check, the worst first."""
    audit = knowledge.store.audited
    fitting: list[Exposure] = (
        [exposure for exposure in audit.exposures if fits(exposure, event)] if audit is not None else []
    )
    by_check = {
        exposure.check.name: exposure for exposure in sorted(fitting, key=lambda exposure: -exposure.severity.rank)
    }
    worst = sorted(by_check.values(), key=lambda exposure: exposure.severity.rank)
    return [
        {"check": exposure.check.name, "severity": str(exposure.severity), "finding": name(exposure.finding, _LONGEST)}
        for exposure in worst
    ]


def lines_of(knowledge: Knowledge, check: str) -> list[str]:
    """The view as text."""
    audit = knowledge.store.audited
    if audit is None:
        told = knowledge.store.told_exposures
        if told is None:
            return ["audit: none was made yet"]
        return [f"{counts_line(told._asdict())} · {audited_ago(told.at_ms, knowledge.now_ms)}", _ON_ITS_PAGE]
    chosen = [at for at, row in enumerate(audit.rows) if check in {"", row.check}]
    lines = [f"{counts_line(_by_severity(audit))} · {audited_ago(audit.at_ms, knowledge.now_ms)}"]
    for at in _worst_first(audit, chosen):
        lines += ["", *map(printable, _shown(knowledge, audit.rows[at]).lines())]
        lines += _incident_lines(_incidents(knowledge, audit, at))
    if audit.unexplained is not None and not check:
        lines += ["", audit.unexplained]
    if audit.missing:
        lines += ["", "not checked"]
        lines += [f"  {name(missing.what, _LONGEST)}: {name(missing.why, _LONGEST)}" for missing in audit.missing]
    return lines


def audited_ago(at_ms: TimestampMs, now_ms: TimestampMs) -> str:
    """When the audit was made."""
    return as_text(["audited ", at_ms, " ago"], now_ms)


def _incident_lines(incidents: list[FittingIncident]) -> Iterator[str]:
    for incident in incidents[:NAMED]:
        yield f"  incident of the last week that fits: /incident/{incident.incident_id} ({incident.verdict})"
    if len(incidents) > NAMED:
        yield f"  and {counted(len(incidents) - NAMED, 'more incident')}"
