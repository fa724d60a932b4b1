"""`txnwatch events`: prints the events topic, as text or JSON lines."""

from __future__ import annotations

import argparse
from typing import Any

from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, add_owners_flag, as_seen_from_here
from txnwatch.cli.output import CLEAN, FAILURE, delivering, event_line
from txnwatch.cli.topic_reading import passed_over, read_events_topic
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import IncidentEvent


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
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one JSON object per line")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints events; exit code 0 at the end of the topic, or 1 if a record was skipped."""
    code = CLEAN
    bad = passed_over()
    try:
        for event in read_events_topic(parsed, follow=parsed.follow):
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
