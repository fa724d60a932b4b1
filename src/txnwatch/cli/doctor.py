"""`txnwatch doctor`: checks brokers, rights, settings and this machine before other commands run.

Without the check, a missing right can look like a hang, or can hide one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from txnwatch.cli.check_row import Caller, CheckRow, Health
from txnwatch.cli.diagnosis import diagnose
from txnwatch.cli.diagnosis_of_optional_rights import optional_rights
from txnwatch.cli.diagnosis_of_view import view_of, view_row
from txnwatch.cli.egress_estimate import SETTINGS, egress_rows
from txnwatch.cli.flag_types import redis_url, topic_name, topic_pattern
from txnwatch.cli.one_shot import add_connection_flags, add_output_flags, ask
from txnwatch.cli.output import CommandAnswer
from txnwatch.cli.settings_flags import add_flags
from txnwatch.config import EVENTS_TOPIC, RunSettings
from txnwatch.connection import options_of
from txnwatch.java import java
from txnwatch.state.model.errors import MissingMechanismError, TxnwatchError
from txnwatch.state.text.redaction import redacted, shown_url
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import principal_of
from txnwatch.streaming.job.checkup import check_up
from txnwatch.streaming.source.options import SourceOptions

_JAVA = 17
_CLIENT = "confluent-kafka"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check versions, rights, listeners and settings",
        description="Checks whether every broker can be reached and is new enough, whether a right is missing, and "
        "whether this machine has what `run` needs. It shows the settings that matter, and prints the command that "
        "grants a missing right.",
    )
    add_connection_flags(parser)
    parser.add_argument(
        "--events-topic",
        type=topic_name,
        metavar="TOPIC",
        help=f"the events topic that `run` will use (default: {EVENTS_TOPIC})",
    )
    parser.add_argument(
        "--topics",
        type=topic_pattern,
        metavar="REGEX",
        help="the topics that `run` will scan: with them, and with the other settings for topics, censuses and the "
        "coordinator view, doctor estimates how many bytes `run` moves in a day (default: .*)",
    )
    add_flags(parser, RunSettings, only=SETTINGS)
    parser.add_argument("--redis-url", type=redis_url, metavar="URL", help="the Redis that `run` will use")
    add_output_flags(parser, found_if="there is a warning and nothing is missing")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Runs all checks; exit code 1 if something is missing that a command needs."""
    return ask(parsed, lambda cluster: _answer(cluster, parsed))


def _answer(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    config = str(parsed.command_config) if parsed.command_config is not None else None
    caller = Caller(parsed.bootstrap_server, principal_of(cluster.security), parsed.events_topic, config)
    found = check_up(cluster, parsed.events_topic, wall_clock_ms())
    access = view_of(found, parsed.coordinator_view)
    reach = (view_row(found, parsed.coordinator_view), *egress_rows(cluster, parsed, access, caller))
    rows = [*diagnose(found, caller), *reach, *optional_rights(found, caller), *_here(parsed)]
    missing = sum(row.status is Health.MISSING for row in rows)
    warnings = sum(row.status is Health.WARNING for row in rows)
    return CommandAnswer(
        command="doctor",
        cluster_id=cluster.known.cluster_id,
        row_type=CheckRow,
        rows=rows,
        summary=f"{missing} missing, {warnings} warning{'s' if warnings != 1 else ''}",
        found=bool(missing or warnings),
        failed=bool(missing),
    )


def _here(parsed: argparse.Namespace) -> Iterator[CheckRow]:
    """Checks what `run` needs beside the brokers: confluent-kafka, Java, PySpark, Redis."""
    yield check_events_client(options_of(parsed.bootstrap_server, parsed.command_config))
    yield _java()
    try:
        yield CheckRow("machine", "pyspark", Health.OK, version("pyspark"), "run", None)
    except PackageNotFoundError:
        yield CheckRow("machine", "pyspark", Health.MISSING, "not installed", "run", "pip install 'pyspark>=4.3,<4.4'")
    if parsed.redis_url is not None:
        yield check_redis(parsed.redis_url)


def check_events_client(options: SourceOptions) -> CheckRow:
    """Whether confluent-kafka, which reads and writes the events topic, can use the connection's security settings."""
    from txnwatch.librdkafka import librdkafka_config  # noqa: PLC0415 - imports confluent_kafka

    try:
        librdkafka_config(options)
    except TxnwatchError as exc:
        fix = exc.fix if isinstance(exc, MissingMechanismError) else None
        return CheckRow("machine", _CLIENT, Health.MISSING, str(exc), "run", fix)
    return CheckRow("machine", _CLIENT, Health.OK, version(_CLIENT), "run", None)


def _java() -> CheckRow:
    try:
        done = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True, timeout=30.0)  # noqa: S603
    except (TxnwatchError, OSError, subprocess.SubprocessError) as exc:
        return CheckRow("machine", "java", Health.MISSING, str(exc), "run", "install a JDK 17, or set JAVA_HOME")
    found = re.search(r'version "(\d+)', done.stderr)
    number = int(found[1]) if found else 0
    if number < _JAVA:
        detail = f"expected {_JAVA} or later, found {number}"
        return CheckRow("machine", "java", Health.MISSING, detail, "run", "install a JDK 17, or set JAVA_HOME")
    return CheckRow("machine", "java", Health.OK, str(number), "run", None)


def check_redis(url: str) -> CheckRow:
    """Whether Redis answers, and accepts the commands that txnwatch needs."""
    import redis  # noqa: PLC0415 - the import takes 0.25 s, only this check needs it

    from txnwatch.sinks.delivery.redis_check import COMMANDS, refused_commands  # noqa: PLC0415 - imports redis

    shown = shown_url(url)
    try:
        refused = refused_commands(url)
    except (redis.RedisError, ValueError, OSError) as exc:
        return CheckRow("redis", shown, Health.MISSING, redacted(str(exc)), "run --redis-url", None)
    if refused:
        detail = f"refuses {', '.join(one.command for one in refused)}: {redacted(refused[0].error)}"
        rights = list(dict.fromkeys(one.right for one in refused if one.right is not None))
        user = "<user of the sentinels>" if any("sentinel" in right for right in rights) else "<user>"
        remedy = " ".join(("ACL SETUSER", user, *rights)) if rights else None
        return CheckRow("redis", shown, Health.MISSING, detail, "run --redis-url", remedy)
    return CheckRow("redis", shown, Health.OK, f"{len(COMMANDS)} commands work", "run --redis-url", None)
