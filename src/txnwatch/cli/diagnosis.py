"""The diagnosis of a check-up: one row for each check, with the exact fix of a problem. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.cli.check_row import Caller, CheckRow, Health, grant_line
from txnwatch.cli.diagnosis_of_topics import topic_rights
from txnwatch.cli.event_lines import duration
from txnwatch.state.model.quantities import DurationMs
from txnwatch.streaming.admin.topic_rights import ALTER, DESCRIBE, DESCRIBE_CONFIGS
from txnwatch.streaming.job.checkup import BrokerFacts, Checkup

_TRUNCATION_SEEN_SINCE = 12  # from Fetch 12 on, the answer has diverging epochs
_FRESH_MS = DurationMs(5_000)


def diagnose(found: Checkup, caller: Caller) -> list[CheckRow]:
    """All rows, in the order in which an operator fixes problems."""
    return [
        *_brokers(found),
        *_leaders(found),
        *_ids(found, caller),
        *topic_rights(found, caller),
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
            "clock", "this machine", Health.WARNING, "the coordinators' log has no timestamp to compare with", "-", None
        )
    ahead_ms = stamp_ms - found.asked_ms
    if ahead_ms > _FRESH_MS:
        detail = f"a broker's clock is {duration(ahead_ms)} or more ahead: `late` would be detected too late"
        return CheckRow(
            "clock", "this machine", Health.WARNING, detail, "run, find-hanging", "set this machine's clock (NTP)"
        )
    if ahead_ms < -_FRESH_MS:
        detail = f"the brokers' newest timestamp is {duration(-ahead_ms)} old: too old to compare with"
        return CheckRow("clock", "this machine", Health.OK, detail, "-", None)
    return CheckRow("clock", "this machine", Health.OK, "agrees with the brokers' clocks within 5 s", "-", None)
