"""A finding of `txnwatch audit` as a row: with its owners, the commands for this cluster, and incidents that fit it.

The command and the page show the same rows. Pure: no I/O, no clock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.audit.audit_facts import AuditFacts, NotAudited
from txnwatch.state.audit.audit_table import CHECKS
from txnwatch.state.audit.exposures import EXAMPLES, ChosenRemedy, Exposure, FittingIncident, exposed_ids
from txnwatch.state.model.ownership import OwnerLookup, Subject
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import Grantee, some, some_names


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One finding.

    Attributes:
        subject: what `--ignore CHECK:SUBJECT` names.
        basis: what the finding rests on.
        evidence: the request, its field and the value.
        remedies: what to do, each with its command if there is one.
        transactional_ids: the first of the ids that are exposed; `exposed_ids` is their number, None if not known.
        owners: the teams of these ids and topics by the table of owners.
        incidents: how many of the last week fit it, by the events topic; None if that was not read.
    """

    severity: str
    check: str
    group: str
    subject: str
    finding: str
    basis: str
    affected: int
    examples: tuple[str, ...]
    evidence: tuple[dict[str, str], ...]
    remedies: tuple[dict[str, str | None], ...]
    issues: tuple[str, ...]
    exposed_ids: int | None
    transactional_ids: tuple[str, ...]
    owners: tuple[str, ...]
    incidents: int | None
    incident_ids: tuple[str, ...]
    docs: str

    def lines(self) -> Iterator[str]:
        """The finding as text: what, on what evidence, and what to do."""
        issues = f"  {', '.join(self.issues)}" if self.issues else ""
        yield f"{self.severity:8}  {self.check}  ({self.group}){issues}"
        yield f"  {self.finding}"
        if self.affected > 1:
            yield f"  affected: {some_names(self.examples, EXAMPLES)}{self._more()}"
        if self.transactional_ids:
            yield f"  transactional ids: {self.exposed_ids}, for example {some_names(self.transactional_ids, EXAMPLES)}"
        if self.owners:
            yield f"  owners: {some(self.owners, EXAMPLES)}"
        if self.incidents:
            named = some(self.incident_ids, EXAMPLES)
            yield f"  incidents of the last week that fit: {self.incidents}, for example {named}"
        for evidence in self.evidence:
            yield f"  evidence: {evidence['request']}: {evidence['field']}: {evidence['value']}"
        for remedy in self.remedies:
            yield f"  do: {remedy['text']}"
            if remedy["command"] is not None:
                yield f"      {remedy['command']}"

    def _more(self) -> str:
        more = self.affected - len(self.examples)
        return f" and {more} more" if more > 0 else ""


class ExposureCounts(NamedTuple):
    """How many findings of each severity an audit had, and how much it could not check."""

    at_ms: TimestampMs
    critical: int
    warn: int
    info: int
    not_checked: int


@dataclass(frozen=True, slots=True)
class PeriodicAudit:
    """What a watch has found when it audited last; the page shows it.

    Attributes:
        at_ms: when it asked.
        exposures: the findings; `rows` are the same in the same order.
        fitting: the incidents of the last week that fit each of them; None if the events topic could not be read.
        unexplained: the incidents of the last week that fit none of them, as text; None if there are none, or if the
            events topic could not be read.
        missing: what could not be checked, and what it would need.
    """

    at_ms: TimestampMs
    exposures: tuple[Exposure, ...]
    rows: tuple[AuditRow, ...]
    fitting: tuple[tuple[FittingIncident, ...], ...] | None
    unexplained: str | None
    missing: tuple[NotAudited, ...]

    @property
    def counts(self) -> dict[ExposureSeverity, int]:
        """How many findings each severity has."""
        counts = Counter(exposure.severity for exposure in self.exposures)
        return {severity: counts[severity] for severity in ExposureSeverity}

    @property
    def told(self) -> ExposureCounts:
        """What the page of several clusters gets."""
        critical, warn, info = self.counts.values()
        return ExposureCounts(self.at_ms, critical, warn, info, len(self.missing))


def summary(shown: Sequence[Exposure], *, has_all: bool, left_out: int = 0) -> str:
    """How many findings there are; an incomplete audit never says that there are none."""
    counts = Counter(exposure.severity for exposure in shown)
    numbers = ", ".join(f"{counts[severity]} {severity}" for severity in ExposureSeverity if counts[severity])
    if not numbers and left_out:
        return f"no finding beside {left_out} that {'is' if left_out == 1 else 'are'} left out"
    if not numbers:
        return f"no finding of {len(CHECKS)} checks" if has_all else "no finding in what could be checked"
    return numbers


def row_of_exposure(
    exposure: Exposure,
    facts: AuditFacts,
    admin: Grantee,
    owners: OwnerLookup,
    fitting: Sequence[FittingIncident] | None = None,
) -> AuditRow:
    """A finding as a row, with its owners, with commands for this cluster, and with the incidents that fit it."""
    ids = exposed_ids(exposure, facts)
    return AuditRow(
        severity=str(exposure.severity),
        check=exposure.check.name,
        group=str(exposure.check.group),
        subject=exposure.key,
        finding=exposure.finding,
        basis=str(exposure.basis),
        affected=exposure.affected,
        examples=exposure.examples,
        evidence=tuple(evidence._asdict() for evidence in exposure.evidence),
        remedies=tuple({"text": remedy.text, "command": command_of(remedy, admin)} for remedy in exposure.remedies),
        issues=exposure.issues,
        exposed_ids=len(ids) if ids is not None else None,
        transactional_ids=tuple(ids[:EXAMPLES]) if ids is not None else (),
        owners=tuple(_teams(exposure, facts, ids or (), owners)),
        incidents=len(fitting) if fitting is not None else None,
        incident_ids=tuple(fit.incident_id for fit in fitting[:EXAMPLES]) if fitting is not None else (),
        docs=f"docs/audit.md#{exposure.check.name}",
    )


def _teams(exposure: Exposure, facts: AuditFacts, ids: Sequence[str], owners: OwnerLookup) -> list[str]:
    """The teams that are called about what is exposed: by the ids, else by the topics that they wrote to."""
    teams = [owners.owner(subject) for name in ids for subject in _subjects(name, facts)]
    teams += [owners.owner(Subject(None, topic)) for topic in sorted(exposure.topics)]
    return list(dict.fromkeys(owner.whom_to_call for owner in teams if owner is not None))


def _subjects(name: str, facts: AuditFacts) -> Iterator[Subject]:
    audited_id = facts.ids.get(name) if facts.ids is not None else None
    topics = frozenset(place.topic for place in audited_id.partitions) if audited_id is not None else frozenset()
    for topic in tuple(sorted(topics)) or (None,):
        yield Subject(name, topic, topics)


def command_of(remedy: ChosenRemedy, admin: Grantee) -> str | None:
    """The line that an administrator runs, in bash; None if no command does it."""
    if not remedy.command:
        return None
    tool, *arguments = remedy.command
    if remedy.plan is None:
        return admin.admin_line(tool, *arguments)
    partitions = [
        {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
        for place, replicas in remedy.plan.items()
    ]
    plan = json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))
    return f"{admin.admin_line(tool, *arguments)} --reassignment-json-file <(echo '{plan}')"
