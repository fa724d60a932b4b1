"""The common parts of all commands that query a cluster once: flags, connection, output, exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace

from txnwatch.cli.flag_types import id32, kafka_text, registry_url, topic_name
from txnwatch.cli.output import CommandAnswer, write
from txnwatch.cli.settings_flags import add_config_flag, add_flags
from txnwatch.config import EVENTS_TOPIC, THRESHOLDS, RunSettings
from txnwatch.connection import connected
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, load_settings
from txnwatch.sinks.incidents.commands import EventsFlags, Origin, suggested
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.text.redaction import without_credentials
from txnwatch.streaming.client.cluster import Cluster

_TIMEOUT_S = 15.0
_NO_SERVER = "none:1"  # where a command needs no server, and no source has one
_KEY_FILE = f"{ENVIRONMENT_PREFIX}EVENTS_KEY_FILE"
_BOOTSTRAP, _PROPERTIES = f"{ENVIRONMENT_PREFIX}BOOTSTRAP_SERVER", f"{ENVIRONMENT_PREFIX}COMMAND_CONFIG"


def add_connection_flags(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Adds `--bootstrap-server`, `--command-config` and `--config`; `take_settings` reads the other sources."""
    parser.add_argument(
        "--bootstrap-server",
        type=kafka_text,
        metavar="SERVER",
        help=f"host:port of some brokers, comma-separated (or {_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help=f"Java client properties file with security settings (or {_PROPERTIES})",
    )
    add_config_flag(parser)
    parser.set_defaults(needs_server=is_required)


def take_settings(parsed: argparse.Namespace) -> None:
    """Gives each flag of a command that is a setting of `run` its value: from the flag, the variable or the file.

    Raises:
        ConfigError: a setting is unknown or invalid, or there is no bootstrap server and the command needs one.
    """
    names = [name for name in RunSettings.model_fields if hasattr(parsed, name)]
    parsed.given = frozenset(name for name in names if getattr(parsed, name) is not None)
    without = {} if parsed.needs_server else {"bootstrap_server": _NO_SERVER}
    settings = load_settings({name: getattr(parsed, name) for name in names}, parsed.config, defaults=without)
    for name in names:
        setattr(parsed, name, getattr(settings, name))
    if parsed.bootstrap_server == _NO_SERVER:
        parsed.bootstrap_server = None
    parsed.policy = settings.policy


def add_threshold_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the thresholds; `parsed.policy` has their values."""
    add_flags(parser, RunSettings, only=THRESHOLDS)


def add_foreign_flag(parser: argparse.ArgumentParser) -> None:
    """Adds `--foreign-topics`."""
    parser.add_argument(
        "--foreign-topics",
        metavar="REGEX",
        help="regular expression; in topics that match, nothing is proven to hang, because another cluster's topics "
        "are copied into them byte for byte",
    )


def add_partition_flags(parser: argparse.ArgumentParser, topic: str = "the topic", *, is_required: bool) -> None:
    """Adds `--topic` and `--partition`; `topic` is the help text of the first."""
    parser.add_argument("--topic", type=kafka_text, required=is_required, help=topic)
    parser.add_argument("--partition", required=is_required, type=id32, metavar="N", help="the partition of --topic")


def add_events_flags(parser: argparse.ArgumentParser) -> None:
    """Adds `--events-topic`, `--schema-registry-url`, `--events-key-file`: how to read and verify the events."""
    parser.add_argument(
        "--events-topic",
        type=topic_name,
        metavar="TOPIC",
        help=f"the topic of the incident events (default: {EVENTS_TOPIC})",
    )
    parser.add_argument(
        "--schema-registry-url", type=registry_url, metavar="URL", help="schema registry, for events in confluent-avro"
    )
    parser.add_argument(
        "--events-key-file",
        metavar="FILE",
        help=f"file with the keys that verify the signatures of events (or {_KEY_FILE})",
    )


def add_output_flags(parser: argparse.ArgumentParser, *, found_if: str | None = None, has_table: bool = True) -> None:
    """Adds `--format`, `--wide` for a table and, with the condition `found_if`, `--fail-on-found`."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="text, or one JSON object")
    if has_table:
        parser.add_argument(
            "--wide", action="store_true", help="one line for each row, even if it is wider than the terminal"
        )
    if found_if is not None:
        parser.add_argument("--fail-on-found", action="store_true", help=f"exit code 3 if {found_if}")


def ask(parsed: argparse.Namespace, question: Callable[[Cluster], CommandAnswer]) -> int:
    """Connects, asks, writes the answer; returns the exit code.

    Raises:
        TxnwatchError: there is no answer; the message has the reason.
    """
    with connected(parsed.bootstrap_server, parsed.command_config, timeout_s=_TIMEOUT_S) as cluster:
        answer = question(cluster)
    write(answer, parsed.format, is_wide=getattr(parsed, "wide", False))
    return answer.exit_code(fail_on_found=getattr(parsed, "fail_on_found", False))


def origin_of(cluster: Cluster, parsed: argparse.Namespace) -> Origin:
    """The values that events and suggested commands of this run share."""
    return Origin(cluster.known.cluster_id, parsed.bootstrap_server, _properties_path(parsed))


def with_command_from_here(event: IncidentEvent, parsed: argparse.Namespace) -> IncidentEvent:
    """The event with a suggested command that is built here; without one if the cluster's address is unknown.

    The stored command is not shown: anybody who may write to the events topic or to Redis can store any command.
    """
    if parsed.bootstrap_server is None:
        return replace(event, suggested_command=None)
    topic = parsed.events_topic if parsed.events_topic != EVENTS_TOPIC else None
    url = parsed.schema_registry_url
    flags = EventsFlags(topic, schema_registry_url=without_credentials(url) if url is not None else None)
    origin = Origin(event.cluster_id, parsed.bootstrap_server, _properties_path(parsed), flags)
    return replace(event, suggested_command=suggested(origin, event))


def _properties_path(parsed: argparse.Namespace) -> str | None:
    return str(parsed.command_config) if parsed.command_config is not None else None
