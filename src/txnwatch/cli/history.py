"""`txnwatch history`: how often, whose, how long and how ended, of the incidents that the events topic has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from txnwatch.cli.events import point_in_time
from txnwatch.cli.events_access import read_events_topic
from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, add_owners_flag, count
from txnwatch.cli.output import (
    DETAIL,
    LOG,
    WIDE,
    AtLeast,
    CommandAnswer,
    Duration,
    FieldStyle,
    LeftOut,
    Name,
    NotChecked,
    Time,
    delivering,
    write,
)
from txnwatch.state.incidents.past_incidents import IncidentHistory, PastIncident
from txnwatch.state.incidents.past_summary import (
    Facet,
    PastGroup,
    PastSummary,
    PastWindow,
    as_csv,
    as_markdown,
    headline_of,
    remarks,
    summary_of,
)
from txnwatch.streaming.client.clock import wall_clock_ms

_FORMATS: Final = ("text", "json", "csv", "markdown")
_TOP: Final = 10
Counts = Annotated[
    tuple[tuple[str, int], ...], FieldStyle(lambda counts: ", ".join(f"{n} {name}" for name, n in counts))
]


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """Incidents that have something in common.

    Attributes:
        opened_before: how many of them were opened before the time of `--since`.
        last_ms: when the last of them was opened.
        ends: how they ended.
    """

    by: str
    name: Name
    incidents: int
    still_open: int
    opened_before: int
    median_ms: AtLeast
    longest_ms: AtLeast
    total_ms: Annotated[Duration, DETAIL]
    last_ms: Annotated[Time, DETAIL]
    verdicts: Annotated[Counts, WIDE]
    ends: Counts


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "history",
        help="show how often, whose, how long and how ended: the incidents of a week",
        description="Counts the incidents of the events topic by owner, transactional id, partition, verdict and day: "
        "how many, for how long at least, how they ended. An incident counts once, also if it was opened before or is "
        "still open. The topic keeps an incident that ended for a week, if events_retention_ms is not set.",
    )
    add_connection_flags(parser)
    add_events_flags(parser)
    add_owners_flag(parser)
    parser.add_argument(
        "--since",
        type=point_in_time,
        metavar="TIME",
        default="7d",
        help="incidents that were open since this time: how long ago (2h, 7d), or a time in ISO 8601 (without an "
        "offset: UTC) (default: %(default)s)",
    )
    parser.add_argument(
        "--by",
        action="append",
        choices=tuple(map(str, Facet)),
        help="count only by this; may be given several times. With --format csv, a row for each group",
    )
    parser.add_argument(
        "--top", type=count, default=_TOP, metavar="N", help="only the N most frequent of each (default: %(default)s)"
    )
    parser.add_argument(
        "-o",
        "--format",
        choices=_FORMATS,
        default="text",
        help="text, one JSON object, CSV (a row for each incident), or Markdown for a ticket",
    )
    parser.add_argument("--wide", action="store_true", help="every column, even if it is wider than the terminal")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Reads the topic once; exit code 1 if a record was no valid event, or incidents are missing."""
    history = IncidentHistory(parsed.owners)
    for record in read_events_topic(parsed):
        history.take(record)
    summary = summary_of(history, PastWindow(parsed.since, wall_clock_ms()))
    facets = [Facet(facet) for facet in parsed.by or Facet]
    answer = answer_of(summary, facets, parsed.top, parsed.events_topic)
    if parsed.format in {"text", "json"}:
        write(answer, parsed.format, is_wide=parsed.wide)
    else:
        title = _title(summary, parsed.events_topic)
        is_csv, by = parsed.format == "csv", facets[0] if parsed.by else None
        text = as_csv(summary, by) if is_csv else as_markdown(summary, title, facets)
        with delivering():
            print(text, end="", flush=True)
    for missing in answer.not_checked if parsed.format == "csv" else ():
        LOG.warning(f"not checked: {missing.what}: {missing.why}")
    return answer.exit_code(fail_on_found=False)


def _title(summary: PastSummary, topic: str) -> str:
    clusters = sorted({incident.subject.cluster_id for incident in summary.incidents})
    return " ".join(clusters[:3]) or topic


def answer_of(summary: PastSummary, facets: Sequence[Facet], top: int, topic: str) -> CommandAnswer:
    """The answer: a row for each of the most frequent groups, and in JSON each incident."""
    groups = {by: summary.groups(by) for by in facets}
    return CommandAnswer(
        command="history",
        cluster_id=_title(summary, "") if summary.incidents else "",
        row_type=HistoryRow,
        rows=[_row(group) for by, all_of in groups.items() for group in _shown(by, all_of, top)],
        not_checked=tuple(_not_checked(summary, topic)),
        left_out=tuple(
            LeftOut(len(all_of) - top, f"more by {by}", f"--top {top}")
            for by, all_of in groups.items()
            if by is not Facet.DAY and len(all_of) > top
        ),
        notes=tuple(remarks(summary)),
        summary=headline_of(summary),
        also={"incidents": [incident_json(incident, summary) for incident in summary.incidents]},
    )


def _shown(by: Facet, groups: Sequence[PastGroup], top: int) -> Sequence[PastGroup]:
    return groups if by is Facet.DAY else groups[:top]


def _row(group: PastGroup) -> HistoryRow:
    return HistoryRow(**{**group._asdict(), "by": str(group.by)})


def _not_checked(summary: PastSummary, topic: str) -> list[NotChecked]:
    missing = [NotChecked(f"{number} records of {topic}", str(why)) for why, number in summary.skipped.items()]
    if not summary.is_complete:
        missing.append(NotChecked("incidents", "there are too many: some that ended first are left out"))
    return missing


def incident_json(incident: PastIncident, summary: PastSummary) -> dict[str, Any]:
    """An incident as JSON; times are epoch milliseconds."""
    kind, about = incident.kind, incident.subject
    return {
        "incident_id": incident.incident_id,
        "cluster_id": about.cluster_id,
        "verdict": kind.verdict,
        "severity": kind.severity,
        "since_ms": incident.since_ms,
        "ended_ms": incident.ended_ms,
        "opened_before": incident.since_ms < summary.window.from_ms,
        "how": kind.how,
        "by": kind.by,
        "owner": about.owner,
        "transactional_id": about.name,
        "producer_id": about.producer_id,
        "partitions": list(about.places),
        "more_partitions": about.more_places,
    }
