"""`txnwatch events`: prints the events topic, as text or JSON lines.

Apart: main.py imports each command, and only when it runs.
"""

from __future__ import annotations

import argparse
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from txnwatch.cli.command_origin import as_seen_from_here
from txnwatch.cli.events_access import read_events_topic
from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, add_format_flag, add_owners_flag, count
from txnwatch.cli.output import CLEAN, FAILURE, LOG, delivering, event_line
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.sinks.delivery.event_log import SkippedRecords
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import IncidentEvent, is_incident_id
from txnwatch.state.model.values import TimestampMs
from txnwatch.streaming.client.clock import wall_clock_ms

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(rf"(\d{{1,9}})([{''.join(_UNITS_MS)}])")


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "events",
        help="show the incident events of a cluster",
        description="Prints the incident events of the events topic, oldest first.",
    )
    add_connection_flags(parser)
    add_events_flags(parser)
    add_owners_flag(parser)
    parser.add_argument("--follow", action="store_true", help="continue with new events until interrupted")
    parser.add_argument(
        "--since",
        type=point_in_time,
        metavar="TIME",
        help="only events since this time: how long ago (30s, 15m, 2h, 7d), or a time in ISO 8601 (without an offset: "
        "UTC)",
    )
    parser.add_argument(
        "--last", type=count, metavar="N", help="only the last N of these events; with --follow, then the new ones"
    )
    parser.add_argument("--incident", type=incident_id, metavar="ID", help="only the events of this incident")
    add_format_flag(parser, "text, or one JSON object per line")
    parser.set_defaults(run=run)


def point_in_time(text: str) -> TimestampMs:
    """A time that is given as a time in ISO 8601, or by how long ago it was."""
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return TimestampMs(wall_clock_ms() - int(ago[1]) * _UNITS_MS[ago[2]])
    try:
        given = datetime.fromisoformat(text)
        in_utc = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return TimestampMs(int(in_utc.timestamp() * 1000))
    except (ValueError, OverflowError):
        expected = "how long ago (30s, 15m, 2h, 7d) or a time in ISO 8601"
        raise argparse.ArgumentTypeError(f"expected {expected}, found {text[:40]!r}") from None


def incident_id(text: str) -> str:
    """The id of an incident."""
    if not is_incident_id(text):
        raise argparse.ArgumentTypeError(f"expected the id of an incident, as events show it, found {text[:80]!r}")
    return text


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """Which events are printed; None: no limit."""

    since_ms: TimestampMs | None
    last: int | None
    incident_id: str | None

    def has(self, record: TopicRecord) -> bool:
        """Whether it is one of them, if there are no later ones; a record that is no event always is."""
        if not isinstance(record, IncidentEvent):
            return True
        is_new_enough = self.since_ms is None or record.time_ms >= self.since_ms
        return is_new_enough and self.incident_id in {None, record.incident_id}

    def of_history(self, records: Iterable[TopicRecord]) -> Iterator[TopicRecord]:
        """What is wanted of the records that the topic has; with `last`, records that are no events come first."""
        wanted = filter(self.has, records)
        if self.last is None:
            yield from wanted
            return
        kept: deque[TopicRecord] = deque(maxlen=self.last)
        for record in wanted:
            if isinstance(record, IncidentEvent):
                kept.append(record)
            else:
                yield record
        yield from kept


def run(parsed: argparse.Namespace) -> int:
    """Prints events; exit code 0 at the end of the topic, or 1 if a record was skipped."""
    code = CLEAN
    bad = SkippedRecords(LOG.warning, wall_clock_ms)
    wanted = WantedEvents(parsed.since, parsed.last, parsed.incident)
    try:
        for event in filter(wanted.has, read_events_topic(parsed, wanted.of_history, follow=parsed.follow)):
            if isinstance(event, BadEventError):
                code = FAILURE
                bad.take(event)
                if parsed.follow:
                    bad.report_when_due()
            elif isinstance(event, IncidentEvent):
                shown = as_seen_from_here(event, parsed)
                line = to_json(shown).decode() if parsed.format == "json" else event_line(shown)
                with delivering():
                    print(line, flush=True)
    finally:
        bad.report_new()
    return code
