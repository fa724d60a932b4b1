"""`txnwatch events`: prints the events topic, as text or JSON lines."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from txnwatch.cli.log_output import ROOT as LOG
from txnwatch.cli.one_shot import add_connection_flags, add_events_flags, with_command_from_here
from txnwatch.cli.output import CLEAN, FAILURE, delivering, event_line
from txnwatch.cluster_connection import options_of
from txnwatch.librdkafka import decoder, events_keys, librdkafka_config, registry_codec
from txnwatch.setting_sources import client_properties
from txnwatch.sinks.delivery.encoding import Keys, to_json
from txnwatch.sinks.delivery.event_log import Found, SkippedRecords, read_events
from txnwatch.state.model.errors import BadEventError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.clock import wall_clock_ms

# Reads the events topic with a command's flags, and reports records that are not events.


def keys_of(parsed: argparse.Namespace) -> Keys | None:
    """The keys of `--events-key-file`; None without the flag.

    Raises:
        ConfigError: the file has no key, or cannot be read.
    """
    path = Path(parsed.events_key_file) if parsed.events_key_file else None
    return events_keys(path, LOG.warning)


def read_events_topic(parsed: argparse.Namespace, *, follow: bool = False) -> Iterator[Found]:
    """Reads the events topic that the flags name.

    Raises:
        BrokerError: the topic does not exist, or cannot be read to its end.
        ConfigError: the settings of the registry, the client properties or the keys are invalid.
    """
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    return read_events(config, parsed.events_topic, follow=follow, decode=decode, keys=keys_of(parsed))


def passed_over() -> SkippedRecords:
    """A counter of records that are not events; it reports to the log."""
    return SkippedRecords(LOG.warning, wall_clock_ms)


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "events",
        help="show the incident events of a cluster",
        description="Prints the incident events of the events topic, oldest first.",
    )
    add_connection_flags(parser)
    add_events_flags(parser)
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
                shown = with_command_from_here(event, parsed)
                line = to_json(shown).decode() if parsed.format == "json" else event_line(shown)
                with delivering():
                    print(line, flush=True)
    finally:
        bad.report_new()
    return code
