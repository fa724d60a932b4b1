"""`txnwatch events`: the events topic, read back for people and pipes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from txnwatch.cli.asking import add_connection_flags, add_events_flags
from txnwatch.cli.event_lines import event_line
from txnwatch.cli.output import CLEAN, FAILURE, delivering
from txnwatch.clients import decoder, librdkafka_config, registry_codec
from txnwatch.config import client_properties
from txnwatch.connection import options_of
from txnwatch.sinks.encoding import to_json
from txnwatch.sinks.event_log import read_events
from txnwatch.state.errors import SinkError


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the verb."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "events",
        help="show the incident events of a cluster",
        description="Prints the events that the topic holds, oldest first.",
    )
    add_connection_flags(parser)
    add_events_flags(parser)
    parser.add_argument("--follow", action="store_true", help="go on with new events until interrupted")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one event a line")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints events; at the end of the topic 0, or 1 if a record had to be passed over."""
    code = CLEAN
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    for event in read_events(config, parsed.events_topic, follow=parsed.follow, decode=decode):
        if isinstance(event, SinkError):
            code = FAILURE
            print(f"txnwatch: passing over a record: {event}", file=sys.stderr)
        else:
            line = to_json(event).decode() if parsed.format == "json" else event_line(event)
            with delivering():
                print(line, flush=True)
    return code
