"""What every command has in common that asks a cluster once and answers: flags, connection, output, exit code."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from txnwatch.cli.flag_types import id32, topic_name, words
from txnwatch.cli.output import Answer, write
from txnwatch.config import ENVIRONMENT_PREFIX, EVENTS_TOPIC
from txnwatch.connection import connected
from txnwatch.sinks.commands import Origin
from txnwatch.streaming.cluster import Cluster

_TIMEOUT_S = 15.0
_BOOTSTRAP, _PROPERTIES = f"{ENVIRONMENT_PREFIX}BOOTSTRAP_SERVER", f"{ENVIRONMENT_PREFIX}COMMAND_CONFIG"


def add_connection_flags(parser: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """`--bootstrap-server` and `--command-config`; the TXNWATCH_* variables of `run` serve here too."""
    known = os.environ.get(_BOOTSTRAP) or None
    parser.add_argument(
        "--bootstrap-server",
        type=words,
        required=is_required and known is None,
        default=known,
        metavar="SERVER",
        help=f"host:port of some brokers, comma-separated (or {_BOOTSTRAP})",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        default=os.environ.get(_PROPERTIES),
        metavar="FILE",
        help=f"Java client properties file with security settings (or {_PROPERTIES})",
    )


def add_partition_flags(parser: argparse.ArgumentParser, topic: str = "which topic", *, is_required: bool) -> None:
    """`--topic` and `--partition`; `topic` is the help text of the first."""
    parser.add_argument("--topic", type=words, required=is_required, help=topic)
    parser.add_argument("--partition", required=is_required, type=id32, metavar="N", help="which partition of --topic")


def add_events_flags(parser: argparse.ArgumentParser) -> None:
    """`--events-topic` and `--schema-registry-url`: where a run tells its events."""
    parser.add_argument(
        "--events-topic", type=topic_name, default=EVENTS_TOPIC, metavar="TOPIC", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--schema-registry-url", type=words, metavar="URL", help="where events are in Confluent framing"
    )


def add_output_flags(parser: argparse.ArgumentParser, *, can_find: bool = True) -> None:
    """`--format` and, for commands that look for something, `--fail-on-found`."""
    parser.add_argument("--format", choices=("text", "json"), default="text", help="a table, or one JSON envelope")
    if can_find:
        parser.add_argument("--fail-on-found", action="store_true", help="exit with 3 if something was found")


def ask(parsed: argparse.Namespace, question: Callable[[Cluster], Answer]) -> int:
    """Connects, asks, writes the answer; returns the exit code.

    Raises:
        TxnwatchError: no answer at all; the message says why.
    """
    with connected(parsed.bootstrap_server, parsed.command_config, timeout_s=_TIMEOUT_S) as cluster:
        answer = question(cluster)
    write(answer, parsed.format)
    return answer.exit_code(fail_on_found=getattr(parsed, "fail_on_found", False))


def origin_of(cluster: Cluster, parsed: argparse.Namespace) -> Origin:
    """What events and suggested commands of this run share."""
    path = str(parsed.command_config) if parsed.command_config is not None else None
    return Origin(cluster.known.cluster_id, parsed.bootstrap_server, path)
