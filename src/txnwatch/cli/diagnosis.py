"""The diagnosis of a check-up: one row for each check, with the exact fix of a problem. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from txnwatch.cli.event_lines import duration
from txnwatch.cli.output import Line
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.quantities import DurationMs
from txnwatch.state.text.escape import shell_line
from txnwatch.state.text.lists import some
from txnwatch.streaming.admin.acls import Writers
from txnwatch.streaming.job.checkup import (
    ALTER,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    READ,
    WRITE,
    BrokerFacts,
    Checkup,
    Operations,
)

_TRUNCATION_SEEN_SINCE = 12  # from Fetch 12 on, the answer has diverging epochs
_FRESH_MS = DurationMs(5_000)
_NAMED = 5


class Health(StrEnum):
    """The result of a check: `missing` keeps a command from working, `warning` does not."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check. `needed_by` has the commands that cannot work without it."""

    check: str
    subject: str
    status: Health
    detail: str
    needed_by: str
    fix: Line | None


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of this command, for the commands that grant a right.

    Attributes:
        principal: the name of the user in Kafka.
        events_topic: the topic of incident events.
    """

    bootstrap_server: str
    principal: str
    events_topic: str
    command_config: str | None = None


def diagnose(found: Checkup, caller: Caller) -> list[CheckRow]:
    """All rows, in the order in which an operator fixes problems."""
    return [
        *_brokers(found),
        *_leaders(found),
        *_ids(found, caller),
        *_topics(found, caller),
        *_cluster(found, caller),
        *_settings(found),
        _clock(found),
    ]


def _brokers(found: Checkup) -> Iterator[CheckRow]:
    for node, facts in found.brokers.items():
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
    for api, version, since, needed_by, health in needs:
        has = facts.versions.get(f"{api}Request", facts.versions.get(api))
        if has is None or has < version:
            unsupported += 1
            detail, fix = f"does not support {api} version {version}", f"{name}: {since} or later"
            yield CheckRow("version", name, health, detail, needed_by, fix)
    if not unsupported:
        level = f", transaction.version {facts.transaction_version}" if facts.transaction_version is not None else ""
        yield CheckRow("version", name, Health.OK, f"supports all requests of txnwatch{level}", "all", None)


def _leaders(found: Checkup) -> Iterator[CheckRow]:
    for partition in found.without_leader:
        yield CheckRow(
            "leader", str(partition), Health.WARNING, "no leader: nothing about this partition can be read", "all", None
        )


def _ids(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, needed_by = "Describe on all transactional ids", "find-hanging, explain, run"
    if found.id_problems is None:
        yield CheckRow("right", name, Health.WARNING, "a broker is too old to report it", needed_by, None)
        return
    if not found.id_problems:
        yield CheckRow("right", name, Health.OK, "no id is hidden", needed_by, None)
    for problem in found.id_problems:
        fix = grant_line(caller, "Describe", "--transactional-id", "*") if problem.is_denied else None
        detail = f"{problem}: a hidden id appears as missing, so nothing is proven"
        yield CheckRow("right", name, Health.MISSING, detail, needed_by, fix)


def _topics(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    operations = found.topic_operations
    data = {
        name: rights
        for name, rights in operations.items()
        if name not in {TRANSACTION_STATE_TOPIC, caller.events_topic}
    }
    unread = sorted(name for name, rights in data.items() if _lacks(rights, READ))
    for name in unread:
        fix = grant_line(caller, "Read", "--topic", name)
        yield CheckRow(
            "right", f"Read on topic {name}", Health.MISSING, "not allowed", "find-hanging, explain, run", fix
        )
    if not data:
        fix = grant_line(caller, "Read", "--topic", "*")
        detail = "no topic is shown: there is none, or this user may describe none"
        yield CheckRow("right", "Read on topics", Health.WARNING, detail, "find-hanging, explain, run", fix)
    elif not unread:
        detail = f"{len(data)} topics are shown; a topic that this user may not describe is not"
        yield CheckRow("right", "Read on topics", Health.OK, detail, "find-hanging, explain, run", None)
    yield from _hidden(found, caller)
    yield from _log(found, caller)
    yield from _events(found, caller)
    yield _writers(found.events_writers, caller)


def _hidden(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    for partition, why in found.hidden.items():
        if not why.is_denied:
            yield CheckRow("right", partition, Health.WARNING, str(why), "find-hanging, explain", None)
            continue
        topic = partition.rpartition("-")[0]
        fix = grant_line(caller, "Read", "--topic", topic)
        yield CheckRow(
            "right",
            f"Describe on topic {topic}",
            Health.MISSING,
            f"{partition}: {why}",
            "find-hanging, explain, run",
            fix,
        )


def _log(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, needed_by = f"Read on topic {TRANSACTION_STATE_TOPIC}", "run, describe, explain"
    operations = found.topic_operations
    if TRANSACTION_STATE_TOPIC not in operations:
        detail = "not shown: no transaction was ever begun here, or this user may not describe it"
        if found.has_unseen_log:
            detail = "not shown, but transactional data exists: a missing right or a proxy hides it; nothing is proven"
        fix = grant_line(caller, "Read", "--topic", TRANSACTION_STATE_TOPIC)
        health = Health.MISSING if found.has_unseen_log else Health.WARNING
        yield CheckRow("right", name, health, detail, needed_by, fix)
    elif _lacks(operations[TRANSACTION_STATE_TOPIC], READ):
        fix = grant_line(caller, "Read", "--topic", TRANSACTION_STATE_TOPIC)
        yield CheckRow("right", name, Health.MISSING, "not allowed", needed_by, fix)
    else:
        yield CheckRow("right", name, Health.OK, "allowed", needed_by, None)


def _events(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    topic = caller.events_topic
    if topic not in found.topic_operations:
        name, problem = f"Create topic {topic}", found.events_problem
        if problem is None:
            detail = "allowed; `run` creates it, and also needs Read and Write, which are reported once it exists"
            yield CheckRow("right", name, Health.OK, detail, "run", None)
        else:
            grant = grant_line(caller, "Create", "--operation", "Write", "--operation", "Read", "--topic", topic)
            yield CheckRow("right", name, Health.WARNING, str(problem), "run", grant if problem.is_denied else None)
        return
    for operation, operation_name in ((READ, "Read"), (WRITE, "Write")):
        lacks = _lacks(found.topic_operations[topic], operation)
        fix = grant_line(caller, operation_name, "--topic", topic) if lacks else None
        health = Health.MISSING if lacks else Health.OK
        detail = "not allowed" if lacks else "allowed"
        yield CheckRow("right", f"{operation_name} on topic {topic}", health, detail, "run, events", fix)


def _writers(found: Writers, caller: Caller) -> CheckRow:
    """Who else can write false alarms to the topic. No abort depends on the topic, so this is only a warning."""
    name, needed_by = f"writers of topic {caller.events_topic}", "events, status"
    harm = "a user who may write it can publish false alarms, but cannot cause an abort"
    if found.is_open:
        detail = f"every client: the brokers have no authorizer; {harm}. --events-key-file signs our events"
        return CheckRow("right", name, Health.OK, detail, needed_by, None)
    if found.problem is not None:
        fix = grant_line(caller, "Describe", "--cluster") if found.problem.is_denied else None
        return CheckRow("right", name, Health.WARNING, f"could not be read: {found.problem}; {harm}", needed_by, fix)
    others = [principal for principal in found.principals if principal != caller.principal]
    ours = "this user by an ACL" if caller.principal in found.principals else "this user without an ACL of its own"
    if not others:
        return CheckRow("right", name, Health.OK, f"{ours}, and super users", needed_by, None)
    detail = f"{ours}, super users, and {some(others, _NAMED)}: {harm}. --events-key-file signs our events"
    return CheckRow("right", name, Health.WARNING, detail, needed_by, None)


def _cluster(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    rights = found.cluster_operations
    for operation, operation_name, needed_by in (
        (DESCRIBE, "Describe", "doctor"),
        (DESCRIBE_CONFIGS, "DescribeConfigs", "doctor, late"),
        (ALTER, "Alter", "abort"),
    ):
        name = f"{operation_name} on the cluster"
        if rights is None:
            yield CheckRow("right", name, Health.WARNING, "brokers before 2.8 do not report it", needed_by, None)
        elif operation in rights:
            yield CheckRow("right", name, Health.OK, "allowed", needed_by, None)
        else:
            yield CheckRow(
                "right",
                name,
                Health.WARNING,
                "not allowed, or not shown",
                needed_by,
                grant_line(caller, operation_name, "--cluster"),
            )


def _settings(found: Checkup) -> Iterator[CheckRow]:
    for node, facts in found.brokers.items():
        name = f"broker {node}"
        if facts.settings_problem is not None:
            yield CheckRow("setting", name, Health.WARNING, f"not shown: {facts.settings_problem}", "doctor", None)
            continue
        for setting, value in sorted(facts.settings.items()):
            health, meaning = _judge(setting, value)
            yield CheckRow("setting", name, health, f"{setting}={value}{meaning}", "-", None)


def _judge(setting: str, value: str) -> tuple[Health, str]:
    match setting, value:
        case "transaction.partition.verification.enable", "false":
            return Health.WARNING, ": late writes of old clients are accepted, and hang (KIP-890)"
        case "unclean.leader.election.enable", "true":
            return Health.WARNING, ": an election can lose a marker, and then its transaction hangs"
        case "transaction.abort.timed.out.transaction.cleanup.interval.ms", text:
            return (
                Health.OK,
                f": a transaction is aborted within {duration(DurationMs(int(text)))} of its timeout; `run` reads it",
            )
        case "transaction.max.timeout.ms", text:
            return Health.OK, f": a healthy transaction can hold a partition for {duration(DurationMs(int(text)))}"
        case _:
            return Health.OK, ""


def _clock(found: Checkup) -> CheckRow:
    stamp_ms = found.newest_stamp_ms
    if stamp_ms is None:
        return CheckRow(
            "clock", "ours", Health.WARNING, "the coordinators' log has no timestamp to compare with", "-", None
        )
    ahead_ms = stamp_ms - found.asked_ms
    if ahead_ms > _FRESH_MS:
        detail = f"a broker's clock is {duration(ahead_ms)} or more ahead: `late` would be detected too late"
        return CheckRow("clock", "ours", Health.WARNING, detail, "run, find-hanging", "set this machine's clock (NTP)")
    if ahead_ms < -_FRESH_MS:
        detail = f"the brokers' newest timestamp is {duration(-ahead_ms)} old: too old to compare with"
        return CheckRow("clock", "ours", Health.OK, detail, "-", None)
    return CheckRow("clock", "ours", Health.OK, "agrees with the brokers' clocks within 5 s", "-", None)


def _lacks(rights: Operations, operation: int) -> bool:
    return rights is not None and operation not in rights


def grant_line(caller: Caller, operation: str, *resource: str) -> str:
    """The line that grants an operation on a resource, given as flags of kafka-acls.sh."""
    config = ("--command-config", caller.command_config) if caller.command_config is not None else ()
    return shell_line(
        [
            *("kafka-acls.sh", "--bootstrap-server", caller.bootstrap_server, *config, "--add"),
            *("--allow-principal", caller.principal, "--operation", operation, *resource),
        ]
    )
