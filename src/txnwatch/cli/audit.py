"""`txnwatch audit`: what exposes this cluster to hanging, lost or late transactions, before anything hangs.

It only reads. The checks are in state/audit; docs/audit.md lists them.
"""

from __future__ import annotations

import argparse
import gc
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
    never,
)
from txnwatch.cli.output import CLEAN, CommandAnswer, LeftOut, NotChecked, write
from txnwatch.state.audit.audit_check import ExposureSeverity
from txnwatch.state.audit.audit_table import BY_NAME, CHECKS
from txnwatch.state.audit.auditing import audit
from txnwatch.state.audit.exposure_rows import AuditRow, row_of_exposure, summary
from txnwatch.state.audit.exposures import Exposure, explained, of_the_week, unexplained, unexplained_line
from txnwatch.state.audit.left_out import NO_CHECKS
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BrokerError, ConfigError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.text import Grantee
from txnwatch.streaming.audit.gathering import gather
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import principal_of

DEFAULT_LOG_BYTES: Final = 100_000_000
_SEVERITIES: Final = tuple(map(str, ExposureSeverity))
_NOT_LOOKED_FOR: Final = (
    f"no check looks for {', '.join(unchecked.name for unchecked in NO_CHECKS)}: "
    "`txnwatch audit --list` has the reasons; audit does not look for hangs: run `txnwatch find-hanging`"
)


@dataclass(frozen=True, slots=True)
class CheckLine:
    """A check of the table, for `--list`; or an exposure without a check, and then `silent` has the reason."""

    check: str
    group: str
    severities: tuple[str, ...]
    fires: str
    silent: str
    right: str
    requests: str
    remedies: tuple[dict[str, str], ...] = field(default=())
    incidents: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """The check as text."""
        if not self.severities:
            yield f"{self.check}  (no check)"
            yield f"  {self.fires}: {self.silent}"
            return
        yield f"{self.check}  ({self.group}; {', '.join(self.severities)})"
        yield f"  fires: {self.fires}"
        yield f"  silent: {self.silent}"
        yield from (f"  do, for {remedy['applies']}: {remedy['text']}" for remedy in self.remedies)
        if self.incidents:
            yield f"  incidents that fit: {'; '.join(self.incidents)}"
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
    add_connection_flags(parser, never)
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
        without = (
            CheckLine(unchecked.name, "", (), unchecked.exposure, unchecked.why, "", "") for unchecked in NO_CHECKS
        )
        write(CommandAnswer("audit", "", CheckLine, [*map(_check_line, CHECKS), *without]), parsed.format)
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
        tuple({"applies": remedy.applies, "text": remedy.text} for remedy in check.remedies.values()),
        tuple(map(str, check.explains)),
    )


def _answer(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    published = _published(parsed) if parsed.incidents else None
    gc.disable()  # a log of a million records makes as many values, and none of them is in a cycle: half of the time
    try:
        facts = gather(cluster, parsed.max_log_bytes, parsed.topic.fullmatch if parsed.topic is not None else None)
        result = audit(facts)
    finally:
        gc.enable()
    incidents, unread = _incidents(published, facts.now_ms) if published is not None else (None, ())
    left = unexplained(result.exposures, incidents or ())
    principal, is_configured = principal_of(cluster.security), parsed.command_config is not None
    admin = Grantee(parsed.bootstrap_server, principal, is_configured=is_configured)
    least = ExposureSeverity(parsed.min_severity).rank
    muted = [exposure for exposure in result.exposures if _is_muted(exposure, parsed.ignore)]
    minor = [exposure for exposure in result.exposures if exposure not in muted and exposure.severity.rank > least]
    shown = [exposure for exposure in result.exposures if exposure not in muted and exposure not in minor]
    return CommandAnswer(
        command="audit",
        cluster_id=cluster.known.cluster_id,
        row_type=AuditRow,
        rows=[
            row_of_exposure(
                exposure, facts, admin, parsed.owners, explained(exposure, incidents) if incidents is not None else None
            )
            for exposure in shown
        ],
        not_checked=(*(NotChecked(*missing) for missing in result.missing), *unread),
        left_out=(
            *(LeftOut(number, f"findings of {name}", "the worst are shown") for name, number in result.folded.items()),
            *_left_out(muted, "--ignore"),
            *_left_out(minor, f"less than --min-severity {parsed.min_severity}"),
        ),
        notes=(line,) if (line := unexplained_line(left)) is not None else (),
        also={"unexplained_incidents": [_unexplained(event) for event in left]},
        summary=f"{summary(shown, has_all=not result.missing, left_out=len(muted) + len(minor))}; {_NOT_LOOKED_FOR}",
        found=any(
            exposure.severity.rank <= ExposureSeverity(parsed.fail_on or "critical").rank
            for exposure in (*shown, *minor)
        ),
    )


def _left_out(left: Sequence[Exposure], why: str) -> Iterator[LeftOut]:
    if left:
        yield LeftOut(len(left), "finding" if len(left) == 1 else "findings", why)


def _unexplained(event: IncidentEvent) -> dict[str, object]:
    return {
        "incident_id": event.incident_id,
        "verdict": str(event.verdict),
        "expected_outcome": str(event.expected_outcome),
        "outcome_doubt": str(event.outcome_doubt) if event.outcome_doubt is not None else None,
    }


def _is_muted(exposure: Exposure, ignored: Sequence[tuple[str, str | None]]) -> bool:
    return any(exposure.check.name == check and subject in {None, exposure.key} for check, subject in ignored)


def _published(parsed: argparse.Namespace) -> Iterator[TopicRecord]:
    """The records of the events topic; nothing is read yet, but wrong settings end the command.

    Raises:
        ConfigError: the settings of the events topic are wrong.
    """
    from txnwatch.cli.events_access import read_events_topic  # noqa: PLC0415 - imports confluent_kafka

    return read_events_topic(parsed)


def _incidents(
    published: Iterator[TopicRecord], now_ms: TimestampMs
) -> tuple[list[IncidentEvent] | None, tuple[NotChecked, ...]]:
    """The incidents of the last week; None if the events topic cannot be read, which hides no finding."""
    try:
        return of_the_week((record for record in published if isinstance(record, IncidentEvent)), now_ms), ()
    except BrokerError as exc:
        return None, (NotChecked("incidents of the last week", str(exc)),)
