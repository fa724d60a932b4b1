"""`txnwatch status`: what is wrong right now, from Redis or the events topic; it asks no broker about transactions.

What it prints is what `txnwatch run` has told and not yet resolved, the oldest first: no answer of its own.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from txnwatch.cli.asking import add_connection_flags, add_events_flags, add_output_flags
from txnwatch.cli.flag_types import redis_url
from txnwatch.cli.output import Answer, Duration, Line, NotChecked, Time, write
from txnwatch.clients import decoder, librdkafka_config, registry_codec
from txnwatch.config import client_properties
from txnwatch.connection import options_of
from txnwatch.sinks.event_log import read_events
from txnwatch.sinks.redis import read_open_incidents
from txnwatch.state.errors import ConfigError, SinkError
from txnwatch.state.incident import IncidentEvent, latest
from txnwatch.streaming.clock import wall_clock_ms


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """One open incident; `txnwatch events --format json` has every field of its events."""

    verdict: str
    reason: str | None
    topic: str | None
    partition: int | None
    transactional_id: str | None
    producer_id: int
    open_since_ms: Time
    age_ms: Duration
    hidden_records: int | None
    stopped_groups: tuple[str, ...]
    incident_id: str
    suggested_command: Line


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the verb."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "status",
        help="show what is wrong right now",
        description="Prints the open incidents, oldest first: from Redis where --redis-url is given, else from the "
        "events topic.",
    )
    add_connection_flags(parser, is_required=False)
    add_events_flags(parser)
    parser.add_argument(
        "--redis-url", type=redis_url, metavar="URL", help="redis://host:port/db that `txnwatch run` fills"
    )
    add_output_flags(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Prints the open incidents; 0, or 3 if there are any and that was asked for."""
    incidents, problems = _open_incidents(parsed)
    now_ms = wall_clock_ms()
    answer = Answer(
        "status",
        incidents[0].cluster_id if incidents else "",
        OpenIncident,
        [_row(event, now_ms) for event in incidents],
        tuple(problems),
        "" if incidents else _nothing(is_complete=not problems),
        found=bool(incidents),
    )
    write(answer, parsed.format)
    return answer.exit_code(fail_on_found=parsed.fail_on_found)


def _open_incidents(parsed: argparse.Namespace) -> tuple[list[IncidentEvent], list[NotChecked]]:
    if parsed.redis_url is not None:
        found, unread = read_open_incidents(parsed.redis_url)
        return found, [NotChecked(key, why) for key, why in unread.items()]
    if parsed.bootstrap_server is None:
        raise ConfigError("status: expected --redis-url or --bootstrap-server, found neither")
    config = librdkafka_config(options_of(parsed.bootstrap_server, parsed.command_config))
    properties = client_properties(parsed.command_config)
    decode = decoder(registry_codec(parsed.schema_registry_url, properties, parsed.events_topic))
    told: list[IncidentEvent] = []
    problems: list[NotChecked] = []
    for event in read_events(config, parsed.events_topic, decode=decode):
        if isinstance(event, SinkError):
            problems.append(NotChecked(f"a record of {parsed.events_topic}", str(event)))
        else:
            told.append(event)
    open_now = (event for event in latest(told).values() if event.is_open)
    return sorted(open_now, key=lambda event: event.open_since_ms), problems


def _nothing(*, is_complete: bool) -> str:
    """Silence is a good sign only while somebody watches, and that is not known here."""
    if not is_complete:
        return "no open incident was read, but not all could be read"
    return "no open incident is told; whether `txnwatch run` watches now, its metrics tell"


def _row(event: IncidentEvent, now_ms: int) -> OpenIncident:
    return OpenIncident(
        verdict=event.verdict,
        reason=event.reason,
        topic=event.topic,
        partition=event.partition,
        transactional_id=event.transactional_id,
        producer_id=event.producer_id,
        open_since_ms=event.open_since_ms,
        age_ms=max(0, now_ms - event.open_since_ms),
        hidden_records=event.hidden_records,
        stopped_groups=tuple(group["group_id"] for group in event.consumer_groups if group["state"] == "stopped"),
        incident_id=event.incident_id,
        suggested_command=event.suggested_command or "",
    )
