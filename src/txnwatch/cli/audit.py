"""`txnwatch audit`: what exposes this cluster to hanging, lost or late transactions, before anything hangs.

It only reads. The checks are in state/audit; docs/audit.md lists them.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_events_flags,
    add_output_flags,
    add_owners_flag,
    ask,
    count,
    kafka_text,
)
from txnwatch.cli.output import CLEAN, CommandAnswer, LeftOut, NotChecked, write
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.state.audit.audit_facts import AuditFacts
from txnwatch.state.audit.audit_table import BY_NAME, CHECKS, ExposureSeverity
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposures import EXAMPLES, ChosenRemedy, Exposure, explained, exposed_ids
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ownership import Subject
from txnwatch.state.text import Grantee, some, some_names
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import principal_of

DEFAULT_LOG_BYTES: Final = 100_000_000
_SEVERITIES: Final = tuple(map(str, ExposureSeverity))
_NO_HANGS: Final = "audit does not look for hangs: run `txnwatch find-hanging`"


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
        for one in self.evidence:
            yield f"  evidence: {one['request']}: {one['field']}: {one['value']}"
        for remedy in self.remedies:
            yield f"  do: {remedy['text']}"
            if remedy["command"] is not None:
                yield f"      {remedy['command']}"

    def _more(self) -> str:
        more = self.affected - len(self.examples)
        return f" and {more} more" if more > 0 else ""


@dataclass(frozen=True, slots=True)
class CheckLine:
    """A check of the table, for `--list`."""

    check: str
    group: str
    severities: tuple[str, ...]
    fires: str
    silent: str
    right: str
    requests: str
    remedies: tuple[dict[str, str], ...] = field(default=())

    def lines(self) -> Iterator[str]:
        """The check as text."""
        yield f"{self.check}  ({self.group}; {', '.join(self.severities)})"
        yield f"  fires: {self.fires}"
        yield f"  silent: {self.silent}"
        yield from (f"  do, for {one['applies']}: {one['text']}" for one in self.remedies)
        yield f"  needs: {self.right}; asks: {self.requests}"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "audit",
        help="show what exposes the cluster to hanging, lost or late transactions",
        description="Checks the settings and releases of the brokers, the coordinators' log and the topics with "
        "transactional data for what can make a transaction hang, before one hangs. Each finding has its evidence and "
        "its remedies. It changes nothing. What could not be checked is listed as not checked.",
    )
    add_connection_flags(parser, is_required=False)
    parser.add_argument("--list", action="store_true", help="list the checks, and ask no broker")
    parser.add_argument("--topic", type=_pattern, metavar="REGEX", help="judge only topics with such a name")
    parser.add_argument(
        "--min-severity",
        choices=_SEVERITIES,
        default=str(ExposureSeverity.INFO),
        help="leave out what is less severe (default: %(default)s)",
    )
    parser.add_argument("--fail-on", choices=_SEVERITIES, help="exit code 3 if a finding is at least so severe")
    parser.add_argument(
        "--ignore",
        action="append",
        type=_ignored,
        default=[],
        metavar="CHECK[:SUBJECT]",
        help="leave out the findings of a check, or one of them; may be given several times",
    )
    parser.add_argument(
        "--max-log-bytes",
        type=count,
        default=DEFAULT_LOG_BYTES,
        metavar="BYTES",
        help="how much of the coordinators' log is read at most (default: %(default)s)",
    )
    parser.add_argument(
        "--incidents",
        action="store_true",
        help="also read the events topic, and count the incidents of the last week that fit each finding",
    )
    add_events_flags(parser)
    add_owners_flag(parser)
    add_output_flags(parser, has_table=False)
    parser.set_defaults(run=run)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(kafka_text(text))
    except re.error as exc:
        raise argparse.ArgumentTypeError(f"expected a regular expression, found {text!r} ({exc})") from exc


def _ignored(text: str) -> tuple[str, str | None]:
    check, colon, subject = text.partition(":")
    if check not in BY_NAME:
        raise argparse.ArgumentTypeError(f"expected the name of a check ({', '.join(BY_NAME)}), found {check!r}")
    return check, subject if colon else None


def run(parsed: argparse.Namespace) -> int:
    """Audits once; exit code 3 for a finding with `--fail-on`, 1 if not all could be checked, else 0.

    Raises:
        ConfigError: no bootstrap server is given, and the checks are not only listed.
    """
    if parsed.list:
        write(CommandAnswer("audit", "", CheckLine, [*map(_check_line, CHECKS)]), parsed.format)
        return CLEAN
    if parsed.bootstrap_server is None:
        raise ConfigError("expected --bootstrap-server, or --list")
    parsed.fail_on_found = parsed.fail_on is not None
    return ask(parsed, lambda cluster: _answer(cluster, parsed))


def _check_line(check: Any) -> CheckLine:  # noqa: ANN401 - AuditCheck
    return CheckLine(
        check.name,
        str(check.group),
        tuple(map(str, check.severities)),
        check.fires,
        check.silent,
        check.right,
        check.asks,
        tuple({"applies": one.applies, "text": one.text} for one in check.remedies.values()),
    )


def _answer(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    gc.disable()  # a log of a million records makes as many values, and none of them is in a cycle: half of the time
    facts = gather(cluster, parsed.max_log_bytes, parsed.topic.fullmatch if parsed.topic is not None else None)
    result = audit(facts)
    gc.enable()
    events = _incidents(parsed) if parsed.incidents else None
    principal, is_configured = principal_of(cluster.security), parsed.command_config is not None
    admin = Grantee(parsed.bootstrap_server, principal, is_configured=is_configured)
    least = ExposureSeverity(parsed.min_severity).rank
    muted = [one for one in result.exposures if _is_muted(one, parsed.ignore)]
    minor = [one for one in result.exposures if one not in muted and one.severity.rank > least]
    shown = [one for one in result.exposures if one not in muted and one not in minor]
    return CommandAnswer(
        command="audit",
        cluster_id=cluster.known.cluster_id,
        row_type=AuditRow,
        rows=[row_of_exposure(one, facts, admin, parsed.owners, events) for one in shown],
        not_checked=tuple(NotChecked(*one) for one in result.missing),
        left_out=(
            *(LeftOut(number, f"findings of {name}", "the worst are shown") for name, number in result.folded.items()),
            *([LeftOut(len(muted), "findings", "--ignore")] if muted else []),
            *([LeftOut(len(minor), "findings", f"less than --min-severity {parsed.min_severity}")] if minor else []),
        ),
        summary=f"{summary(shown, has_all=not result.missing)}; {_NO_HANGS}",
        found=any(one.severity.rank <= ExposureSeverity(parsed.fail_on or "critical").rank for one in shown),
    )


def _is_muted(one: Exposure, ignored: Sequence[tuple[str, str | None]]) -> bool:
    return any(one.check.name == check and subject in {None, one.key} for check, subject in ignored)


def summary(shown: Sequence[Exposure], *, has_all: bool) -> str:
    """How many findings there are; an incomplete audit never says that there are none."""
    counts = {severity: sum(one.severity is severity for one in shown) for severity in ExposureSeverity}
    found = ", ".join(f"{number} {severity}" for severity, number in counts.items() if number)
    if not found:
        return f"no finding of {len(CHECKS)} checks" if has_all else "no finding in what could be checked"
    return found


def _incidents(parsed: argparse.Namespace) -> list[IncidentEvent]:
    """The events of the events topic; records that are no events are left out."""
    from txnwatch.cli.events_access import read_events_topic  # noqa: PLC0415 - imports confluent_kafka

    return [one for one in read_events_topic(parsed) if isinstance(one, IncidentEvent)]


def row_of_exposure(
    one: Exposure, facts: AuditFacts, admin: Grantee, owners: OwnerTable, events: Sequence[IncidentEvent] | None = None
) -> AuditRow:
    """A finding as a row, with its owners, with commands for this cluster, and with the incidents that fit it."""
    ids = exposed_ids(one, facts)
    fitting = explained(one, events, facts.now_ms) if events is not None else None
    return AuditRow(
        severity=str(one.severity),
        check=one.check.name,
        group=str(one.check.group),
        subject=one.key,
        finding=one.finding,
        basis=str(one.basis),
        affected=one.affected,
        examples=one.examples,
        evidence=tuple(evidence._asdict() for evidence in one.evidence),
        remedies=tuple({"text": remedy.text, "command": command_of(remedy, admin)} for remedy in one.remedies),
        issues=one.issues,
        exposed_ids=len(ids) if ids is not None else None,
        transactional_ids=tuple(ids[:EXAMPLES]) if ids is not None else (),
        owners=tuple(_teams(one, ids or (), owners)),
        incidents=len(fitting) if fitting is not None else None,
        incident_ids=tuple(fitting[:EXAMPLES]) if fitting is not None else (),
        docs=f"docs/audit.md#{one.check.name}",
    )


def _teams(one: Exposure, ids: Sequence[str], owners: OwnerTable) -> list[str]:
    """The teams that are called about what is exposed, by the table of owners."""
    found = [owners.of(Subject(name)).owner for name in ids]
    found += [owners.of(Subject(None, topic)).owner for topic in sorted(one.topics)]
    return list(dict.fromkeys(owner.whom_to_call for owner in found if owner is not None))


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
