"""`txnwatch doctor`: checks brokers, rights, settings and this machine before other commands run.

Without the check, a missing right can look like a hang, or can hide one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from txnwatch.cli.doctor_clocks import clock_rows
from txnwatch.cli.doctor_rows import (
    HTTP_SETTINGS,
    SETTINGS,
    Caller,
    CheckRow,
    Health,
    Use,
    egress_rows,
    fix_notes,
    grant_line,
    http_rows,
    internal_right,
    owner_rows,
    partition_rows,
    push_rows,
    rack_row,
    topic_rights,
    topics_line,
    watch_options,
)
from txnwatch.cli.one_shot import (
    add_connection_flags,
    add_flags,
    add_output_flags,
    add_owners_flag,
    ask,
    kafka_text,
    options_of,
    redis_url,
    topic_name,
)
from txnwatch.cli.output import CommandAnswer, duration
from txnwatch.config import EVENTS_TOPIC, RunSettings
from txnwatch.state.model.errors import MissingMechanismError, TxnwatchError, install_command
from txnwatch.state.model.values import (
    CONSUMER_OFFSETS_TOPIC,
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    CoordinatorAccess,
    DurationMs,
)
from txnwatch.state.model.verdicts import undetected_text
from txnwatch.state.text import Grantee, counted, redacted, shown_url, some
from txnwatch.streaming.checks.checkup import BrokerFacts, Checkup, check_up
from txnwatch.streaming.checks.preflight import ALTER, AUTO, DESCRIBE, DESCRIBE_CONFIGS, READ
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.security import principal_of
from txnwatch.streaming.job.jvm import java
from txnwatch.streaming.job.spark_conf import local_directory
from txnwatch.streaming.source.options import SourceOptions

# The diagnosis of a check-up: one row for each check, with the exact fix of a problem. Pure: no I/O, no clock.

_TRUNCATION_SEEN_SINCE = 12  # from Fetch 12 on, the answer has diverging epochs
_NAMED = 3
_NOT_ALLOWED = "not allowed"


def diagnose(checkup: Checkup, caller: Caller) -> list[CheckRow]:
    """All rows, in the order in which an operator fixes problems."""
    return [
        *_brokers(checkup),
        *partition_rows(checkup.replicas),
        *_ids(checkup, caller),
        *topic_rights(checkup, caller),
        *_cluster(checkup, caller),
        *_settings(checkup),
        *clock_rows(checkup.clocks, checkup.brokers),
    ]


def _brokers(checkup: Checkup) -> Iterator[CheckRow]:
    for node, facts in checkup.brokers.items():
        name = f"broker {node}"
        if facts.problem is not None:
            fix = "its advertised.listeners must name an address that is reachable from here"
            yield CheckRow("listener", f"{name} {facts.endpoint}", Health.MISSING, str(facts.problem), "all", fix)
            continue
        yield CheckRow("listener", f"{name} {facts.endpoint}", Health.OK, "answers", "all", None)
        yield from _versions(name, facts)


def _versions(name: str, facts: BrokerFacts) -> Iterator[CheckRow]:
    needs = (
        ("DescribeProducers", 0, "Kafka 2.8", "find-hanging, explain, describe-producers, run", Health.MISSING),
        ("DescribeTransactions", 0, "Kafka 3.0", "find-hanging, explain, describe, run", Health.MISSING),
        ("ListTransactions", 0, "Kafka 3.0", "find-hanging, explain, list, run", Health.MISSING),
        ("Fetch", _TRUNCATION_SEEN_SINCE, "Kafka 2.7", "run", Health.WARNING),
    )
    unsupported = 0
    for api, needed, since, needed_by, health in needs:
        has = facts.versions.get(f"{api}Request", facts.versions.get(api))
        if has is None or has < needed:
            unsupported += 1
            detail, fix = f"does not support {api} version {needed}", f"{name}: {since} or later"
            yield CheckRow("version", name, health, detail, needed_by, fix)
    if not unsupported:
        level = f", transaction.version {facts.transaction_version}" if facts.transaction_version is not None else ""
        yield CheckRow("version", name, Health.OK, f"supports all requests of txnwatch{level}", "all", None)


def _ids(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, needed_by = "Describe on all transactional ids", "find-hanging, explain, run"
    if checkup.id_problems is None:
        yield CheckRow("right", name, Health.WARNING, "a broker is too old to report it", needed_by, None)
        return
    if not checkup.id_problems:
        yield CheckRow("right", name, Health.OK, "no id is hidden", needed_by, None)
    for problem in checkup.id_problems:
        fix = grant_line(caller, "Describe", "--transactional-id", "*") if problem.is_denied else None
        detail = f"{problem}: a hidden id appears as missing, so nothing is proven"
        yield CheckRow("right", name, Health.MISSING, detail, needed_by, fix, Use.LOOK)


def _cluster(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    rights = checkup.cluster_operations
    allowed = {
        ("Describe", "doctor", Use.ESTIMATE): None if rights is None else DESCRIBE in rights,
        ("DescribeConfigs", "doctor, late", Use.WATCH): _shows_settings(checkup),
        ("Alter", "abort", Use.ABORT): None if rights is None else ALTER in rights,
    }
    for (operation, needed_by, use), is_allowed in allowed.items():
        name = f"{operation} on the cluster"
        if is_allowed is None:
            yield CheckRow("right", name, Health.WARNING, "brokers before 2.8 do not report it", needed_by, None, use)
        elif is_allowed:
            yield CheckRow("right", name, Health.OK, "allowed", needed_by, None, use)
        else:
            fix = grant_line(caller, operation, "--cluster")
            yield CheckRow("right", name, Health.WARNING, _NOT_ALLOWED, needed_by, fix, use)


def _shows_settings(checkup: Checkup) -> bool:
    """Whether no broker refuses to show its settings; another problem of a broker has a row of its own.

    DescribeCluster cannot tell it. For a user without DESCRIBE on the cluster its answer has no operation at all, also
    if the user has DESCRIBE_CONFIGS or ALTER_CONFIGS, which includes it (AuthHelper.computeDescribeClusterResponse).
    ALTER includes DESCRIBE, so a user whose answer is empty has no ALTER either.
    """
    problems = (facts.settings_problem for facts in checkup.brokers.values())
    return not any(problem is not None and problem.is_denied for problem in problems)


def _settings(checkup: Checkup) -> Iterator[CheckRow]:
    for node, facts in checkup.brokers.items():
        name = f"broker {node}"
        if facts.settings_problem is not None:
            yield CheckRow("setting", name, Health.WARNING, f"not shown: {facts.settings_problem}", "doctor", None)
            continue
        for setting, value in sorted(facts.settings.items()):
            yield CheckRow("setting", name, Health.OK, f"{setting}={value}{_meaning(setting, value)}", "-", None)


def _meaning(setting: str, value: str) -> str:
    """What a setting means for a watch; `txnwatch audit` judges whether it exposes the cluster."""
    match setting:
        case "transaction.abort.timed.out.transaction.cleanup.interval.ms":
            return (
                f": a transaction is aborted within {duration(DurationMs(int(value)))} of its timeout; `run` reads it"
            )
        case "transaction.max.timeout.ms":
            return f": a healthy transaction can hold a partition for {duration(DurationMs(int(value)))}"
        case _:
            return ""


# Which coordinator view `run` takes with the rights of this user, and what it does not detect. Pure.


def view_of(checkup: Checkup, wanted: str) -> CoordinatorAccess:
    """The view that `run` takes: the setting `coordinator_view`, or with `auto` the best view that is allowed."""
    if wanted != AUTO:
        return CoordinatorAccess(wanted)
    # If the coordinators cannot be asked about transactions, a log that is not shown may exist all the same.
    is_uncertain = TRANSACTION_STATE_TOPIC not in checkup.topic_operations and checkup.id_problems is None
    best = [access for access in CoordinatorAccess if _is_allowed(checkup, access)]
    return best[1] if is_uncertain and best[0] is CoordinatorAccess.LOG else best[0]


def view_row(checkup: Checkup, wanted: str) -> CheckRow:
    """One row; it is a warning if a right is missing for the best view, and not if a lower view is configured."""
    access = view_of(checkup, wanted)
    reads = f"`run` reads {TRANSACTION_STATE_TOPIC}"
    detail = f"{access}: {reads if access is CoordinatorAccess.LOG else undetected_text(access)}"
    health = Health.OK if access is CoordinatorAccess.LOG or wanted != AUTO else Health.WARNING
    if not _is_allowed(checkup, access):
        health, detail = Health.MISSING, f"{access}: it is configured, but a right is missing, so `run` does not start"
    return CheckRow("view", "coordinator view", health, detail, "run", None)


def _is_allowed(checkup: Checkup, access: CoordinatorAccess) -> bool:
    is_shown = TRANSACTION_STATE_TOPIC in checkup.topic_operations
    match access:
        case CoordinatorAccess.LOG:
            rights = checkup.topic_operations.get(TRANSACTION_STATE_TOPIC)
            return not checkup.has_unseen_log and (rights is None or READ in rights)
        case CoordinatorAccess.API:
            is_refused = checkup.id_problems is None or any(problem.is_denied for problem in checkup.id_problems)
            return not is_refused and (is_shown or not checkup.has_unseen_log)
        case CoordinatorAccess.NONE:
            return True


# Rights without which a part of the result is missing; no command reports this. Pure: no I/O, no clock.


def optional_rights(checkup: Checkup, caller: Caller) -> list[CheckRow]:
    """One row for each right; a row that is not ok names what is missing without it."""
    return [
        _group_offsets(checkup, caller),
        _topic_configs(checkup, caller),
        *_groups(checkup, caller),
        *_strangers(checkup),
    ]


def _group_offsets(checkup: Checkup, caller: Caller) -> CheckRow:
    """Transactions that commit offsets hang in __consumer_offsets, and no other right shows that topic."""
    return internal_right(
        checkup, CONSUMER_OFFSETS_TOPIC, "no group has committed an offset", "find-hanging, run", caller
    )


def _topic_configs(checkup: Checkup, caller: Caller) -> CheckRow:
    """Only topics that are watched: an event has the policy of no other topic."""
    name, needed_by = "DescribeConfigs on topics", "run (cleanup_policy in events)"
    others = INTERNAL_TOPICS | {caller.events_topic}
    shown = {topic: rights for topic, rights in checkup.topic_operations.items() if topic not in others}
    without = sorted(topic for topic, rights in shown.items() if rights is not None and DESCRIBE_CONFIGS not in rights)
    if shown and not without:
        return CheckRow("right", name, Health.OK, "allowed", needed_by, None, Use.WATCH)
    empty = "the field cleanup_policy of an event is empty"
    detail = f"{_NOT_ALLOWED} on {some(without, _NAMED)}: {empty}" if without else "no topic is shown"
    fix = topics_line(caller, "DescribeConfigs", without)
    return CheckRow("right", name, Health.WARNING, detail, needed_by, fix, Use.WATCH)


def _groups(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    rights = checkup.group_rights
    share_groups = (
        "DescribeConfigs on all share groups",
        rights.may_read_isolation,
        "run",
        "an incident does not name the share groups that have stopped",
        ("DescribeConfigs", "--group", "*"),
        Use.WATCH,
    )
    for name, allowed, needed_by, without, grant, use in (
        (
            "Describe on all consumer groups",
            rights.may_describe,
            "run",
            "an incident does not name the groups that have stopped",
            ("Describe", "--group", "*"),
            Use.WATCH,
        ),
        (
            f"Read on group {checkup.lease_group}",
            rights.may_lead,
            "run",
            "this instance publishes only while it hears no other one for a minute, and aborts nothing automatically",
            ("Read", "--group", checkup.lease_group, "--resource-pattern-type", "prefixed"),
            Use.PUBLISH,
        ),
        *([share_groups] if rights.has_share_groups else []),
    ):
        if allowed is None:
            detail = "no answer, or the broker is too old to report it"
            yield CheckRow("right", name, Health.WARNING, detail, needed_by, None, use)
        elif allowed:
            yield CheckRow("right", name, Health.OK, "allowed", needed_by, None, use)
        else:
            fix = grant_line(caller, *grant)
            yield CheckRow("right", name, Health.WARNING, f"{_NOT_ALLOWED}: {without}", needed_by, fix, use)


def _strangers(checkup: Checkup) -> Iterator[CheckRow]:
    for client in checkup.strangers:
        detail = f"{client} is no watcher: while it has the lease of the group, no watcher publishes"
        fix = f"stop the client {client}, and take Read on the group from its user"
        yield CheckRow("group", f"members of {checkup.lease_group}*", Health.WARNING, detail, "run", fix)


# The command: its flags, and the checks of this machine and of Redis.

_JAVA = 17
_CLIENT = "confluent-kafka"


def add_parser(commands: Any) -> None:  # noqa: ANN401 - argparse's private type
    """Adds the command."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "doctor",
        help="check versions, rights, listeners and settings",
        description="Checks whether every broker can be reached and is new enough, whether a right is missing, and "
        "whether this machine has what `run` needs. It warns about clocks that differ, shows the settings that matter "
        "to a watch, and prints the command that grants a missing right. `txnwatch audit` judges the cluster itself.",
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
        type=_topic_pattern,
        metavar="REGEX",
        help="the topics that `run` will scan: doctor checks rights on these and on the topics of censuses alone. "
        "With them, and with the other settings for topics, censuses and the coordinator view, it estimates how many "
        "bytes `run` moves in a day (default: .*)",
    )
    add_flags(parser, RunSettings, only=(*SETTINGS, *HTTP_SETTINGS, "checkpoint"))
    add_owners_flag(parser)
    parser.add_argument("--redis-url", type=redis_url, metavar="URL", help="the Redis that `run` will use")
    parser.add_argument("--push-file", type=Path, metavar="FILE", help="the file of the targets that `run` will use")
    add_output_flags(parser, found_if="there is a warning and nothing is missing")
    parser.set_defaults(run=run)


def _topic_pattern(text: str) -> str:
    """A regular expression for whole names of topics."""
    try:
        re.compile(kafka_text(text))
    except re.error as exc:
        raise argparse.ArgumentTypeError(f"expected a regular expression, found {text!r} ({exc})") from exc
    return text


def run(parsed: argparse.Namespace) -> int:
    """Runs all checks; exit code 1 if something is missing that a command needs."""
    return ask(parsed, lambda cluster: _answer(cluster, parsed))


def _answer(cluster: Cluster, parsed: argparse.Namespace) -> CommandAnswer:
    principal, is_configured = principal_of(cluster.security), parsed.command_config is not None
    caller = Caller(Grantee(parsed.bootstrap_server, principal, is_configured=is_configured), parsed.events_topic)
    checkup = of_the_watch(check_up(cluster, parsed.events_topic), parsed)
    access = view_of(checkup, parsed.coordinator_view)
    reach = [view_row(checkup, parsed.coordinator_view), *egress_rows(cluster, parsed, access, caller)]
    of_client = options_of(parsed.bootstrap_server, parsed.command_config)
    racks = rack_row(cluster, watch_options(parsed), of_client.rack)
    reach += [racks] if racks is not None else []
    rows = [*diagnose(checkup, caller), *reach, *optional_rights(checkup, caller), *_here(parsed, of_client)]
    rows += owner_rows(checkup.transactional_ids, parsed.owners)
    missing = sum(row.status is Health.MISSING for row in rows)
    warnings = sum(row.status is Health.WARNING for row in rows)
    return CommandAnswer(
        command="doctor",
        cluster_id=cluster.known.cluster_id,
        row_type=CheckRow,
        rows=rows,
        notes=(*fix_notes(rows), "`txnwatch audit` judges the settings of the cluster and of its topics"),
        summary=f"{missing} missing, {counted(warnings, 'warning')}",
        found=bool(missing or warnings),
        failed=bool(missing),
    )


def of_the_watch(checkup: Checkup, parsed: argparse.Namespace) -> Checkup:
    """The checkup without the topics that `run` would not watch, because no right on them is needed."""
    options, others = watch_options(parsed), INTERNAL_TOPICS | {parsed.events_topic}
    kept = {name for name in checkup.topic_operations if options.wants(name)} | others
    return replace(
        checkup,
        topic_operations={name: rights for name, rights in checkup.topic_operations.items() if name in kept},
    )


def _here(parsed: argparse.Namespace, of_client: SourceOptions) -> Iterator[CheckRow]:
    """Checks what `run` uses beside the brokers: libraries, Java, Redis, the targets of a push, the HTTP port."""
    yield check_events_client(of_client)
    yield _java()
    try:
        yield CheckRow("machine", "pyspark", Health.OK, version("pyspark"), "run", None)
    except PackageNotFoundError:
        yield CheckRow("machine", "pyspark", Health.MISSING, "not installed", "run", install_command("spark"))
    if parsed.redis_url is not None:
        yield check_redis(parsed.redis_url)
    yield from push_rows(parsed.push_file, local_directory(parsed.checkpoint))
    yield from http_rows(parsed)


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
    match = re.search(r'version "(\d+)', done.stderr)
    number = int(match[1]) if match else 0
    if number < _JAVA:
        detail = f"expected {_JAVA} or later, found {number}"
        return CheckRow("machine", "java", Health.MISSING, detail, "run", "install a JDK 17, or set JAVA_HOME")
    return CheckRow("machine", "java", Health.OK, str(number), "run", None)


def check_redis(url: str) -> CheckRow:
    """Whether Redis answers, and accepts the commands that txnwatch needs."""
    import redis  # noqa: PLC0415 - the import takes 0.25 s, only this check needs it

    from txnwatch.sinks.delivery.redis_client import said  # noqa: PLC0415 - imports redis
    from txnwatch.sinks.delivery.redis_views import COMMANDS, refused_commands  # noqa: PLC0415 - imports redis

    shown = shown_url(url)
    try:
        refused = refused_commands(url)
    except (redis.RedisError, ValueError, OSError) as exc:
        why = said(exc) if isinstance(exc, redis.RedisError) else str(exc)
        return CheckRow("redis", shown, Health.MISSING, redacted(why), "run --redis-url", None)
    if refused:
        detail = f"refuses {', '.join(refusal.command for refusal in refused)}: {redacted(refused[0].error)}"
        rights = list(dict.fromkeys(refusal.right for refusal in refused if refusal.right is not None))
        user = "<user of the sentinels>" if any("sentinel" in right for right in rights) else "<user>"
        remedy = " ".join(("ACL SETUSER", user, *rights)) if rights else None
        return CheckRow("redis", shown, Health.MISSING, detail, "run --redis-url", remedy)
    return CheckRow("redis", shown, Health.OK, f"{len(COMMANDS)} commands work", "run --redis-url", None)
