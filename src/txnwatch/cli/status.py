"""`txnwatch status`: what is wrong right now, from Redis or the events topic; it asks no broker about transactions.

What it prints is what `txnwatch run` has told and not yet resolved, the oldest first: no answer of its own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from txnwatch import __version__
from txnwatch.app import decoder, librdkafka_config, options_of, registry_codec
from txnwatch.cli.event_lines import duration, owner, utc, where
from txnwatch.config import EVENTS_TOPIC, client_properties
from txnwatch.sinks.encoding import plain
from txnwatch.sinks.event_log import read_events
from txnwatch.sinks.redis import read_open_incidents
from txnwatch.state.errors import ConfigError, SinkError
from txnwatch.state.incident import IncidentEvent
from txnwatch.streaming.clock import wall_clock_ms

_CLEAN, _FOUND = 0, 3
_WIDE = 200


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the verb."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "status",
        help="show what is wrong right now",
        description="Prints the open incidents, oldest first: from Redis where --redis-url is given, else from the "
        "events topic.",
    )
    parser.add_argument("--bootstrap-server", help="host:port of some brokers; not needed with --redis-url")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="Java client properties file")
    parser.add_argument("--events-topic", default=EVENTS_TOPIC, metavar="TOPIC", help="(default: %(default)s)")
    parser.add_argument("--schema-registry-url", metavar="URL", help="where events are in Confluent framing")
    parser.add_argument("--redis-url", metavar="URL", help="redis://host:port/db that `txnwatch run` fills")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one document")
    parser.add_argument("--fail-on-found", action="store_true", help="exit with 3 if anything is wrong")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints the open incidents; 0, or 3 if there are any and that was asked for."""
    incidents = _open_incidents(parsed)
    if parsed.format == "json":
        document = {"txnwatch": __version__, "command": "status", "incidents": [plain(one) for one in incidents]}
        print(json.dumps(document, indent=2))
    else:
        _print_table(incidents, wall_clock_ms())
    return _FOUND if incidents and parsed.fail_on_found else _CLEAN


def _open_incidents(parsed: argparse.Namespace) -> list[IncidentEvent]:
    if parsed.redis_url is not None:
        return read_open_incidents(parsed.redis_url)
    if parsed.bootstrap_server is None:
        raise ConfigError("status: expected --redis-url or --bootstrap-server, found neither")
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    latest: dict[str, IncidentEvent] = {}
    for event in read_events(config, parsed.events_topic, decode=decode):
        if isinstance(event, SinkError):
            print(f"txnwatch: passing over a record: {event}", file=sys.stderr)
        elif event.incident_id not in latest or latest[event.incident_id].sequence < event.sequence:
            latest[event.incident_id] = event
    return sorted((event for event in latest.values() if event.is_open), key=lambda event: event.open_since_ms)


def _print_table(incidents: Sequence[IncidentEvent], now_ms: int) -> None:
    console = Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)
    if not incidents:
        console.print("nothing is wrong: no open incident")
        return
    table = Table(
        "verdict", "where", "owner", "open since", "for", "hidden", "groups stopped", box=None, pad_edge=False
    )
    for event in incidents:
        table.add_row(
            f"{event.verdict}/{event.reason}" if event.reason is not None else event.verdict,
            where(event),
            owner(event),
            utc(event.open_since_ms),
            duration(now_ms - event.open_since_ms),
            "" if event.hidden_records is None else str(event.hidden_records),
            ", ".join(group["group_id"] for group in event.consumer_groups if group["state"] == "stopped"),
        )
    console.print(table)
    for event in incidents:
        if event.suggested_command is not None:
            console.print(f"\n{where(event)}: {event.suggested_command}", soft_wrap=True, markup=False)
