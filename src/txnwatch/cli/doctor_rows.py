"""The rows of `txnwatch doctor`: rights on topics, traffic, the push, the HTTP port, owners of ids, and replicas."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from kafka.protocol.metadata import MetadataResponse

from txnwatch.cli.one_shot import options_of
from txnwatch.cli.output import IN_NOTES, Name, utc
from txnwatch.http_client import Address, HttpClient
from txnwatch.owners.id_shapes import taken_apart
from txnwatch.owners.owner_table import OwnerTable
from txnwatch.push.alertmanager import STATUS_PATH
from txnwatch.push.push_file import AlertmanagerTarget, HttpTarget, read_push_file
from txnwatch.push.sender import STOPPED, Journal, journal_name
from txnwatch.state.model.errors import ConfigError, SinkError
from txnwatch.state.model.ownership import Subject
from txnwatch.state.model.partition_replicas import PartitionReplicas
from txnwatch.state.model.values import (
    INTERNAL_TOPICS,
    TRANSACTION_STATE_TOPIC,
    CoordinatorAccess,
    DurationMs,
    ErrorCode,
    TimestampMs,
)
from txnwatch.state.telling.replica_words import BLOCKED_MEANS, LAST_MEANS, repair_step, replicas_text
from txnwatch.state.text import Grantee, counted, grouped, some
from txnwatch.streaming.checks.checkup import (
    CensusBytes,
    Checkup,
    LogBytes,
    WriteRates,
    Writers,
    census_bytes,
    coordinator_log_bytes,
    write_rates,
)
from txnwatch.streaming.checks.preflight import READ, WRITE, Operations
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import metadata_of
from txnwatch.streaming.source.options import SourceOptions

# The row of one check of `txnwatch doctor`, and the command that grants a right. Pure: no I/O, no clock.


class Health(StrEnum):
    """The result of a check: `missing` keeps a command from working, `warning` does not."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


class Use(StrEnum):
    """What a right is needed for; docs/rights.md has a list for each."""

    LOOK = "look"
    WATCH = "watch"
    PUBLISH = "publish"
    ABORT = "abort"
    ESTIMATE = "estimate"


_USES = {
    Use.LOOK: "to look (find-hanging, explain, list, describe)",
    Use.WATCH: "to watch (run)",
    Use.PUBLISH: "to publish events (run, events)",
    Use.ABORT: "to abort (abort, run --auto-abort)",
    Use.ESTIMATE: "for the rows of doctor about traffic and about the writers of the events topic",
}


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check.

    Attributes:
        needed_by: the commands that cannot work without it.
        fix: the command or the change that solves the problem.
        use: what the right is needed for, if `fix` grants one.
    """

    check: str
    subject: Name
    status: Health
    detail: str
    needed_by: str
    fix: Annotated[str | None, IN_NOTES]
    use: Annotated[Use | None, IN_NOTES] = None


def fix_notes(rows: Iterable[CheckRow]) -> Iterator[str]:
    """The fixes as lines of text, the lines that grant rights by their use: so nobody grants more than is used."""
    fixes = {use: list(dict.fromkeys(row.fix for row in rows if row.fix and row.use is use)) for use in (None, *Use)}
    for use, lines in fixes.items():
        if use is None:
            yield from (f"fix: {line}" for line in lines)
        elif lines:
            yield f"rights {_USES[use]}, granted by an administrator:"
            yield from lines


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of this command, for the commands that an administrator runs.

    Attributes:
        events_topic: the topic of incident events.
    """

    grantee: Grantee
    events_topic: str


# The name in a line that grants rights on topics whose names are not known, or are too many for a line.
_TOPICS = ("--topic", "TOPIC_PREFIX", "--resource-pattern-type", "prefixed")
_TOPICS_IN_LINE = 50  # of 249 characters at most: a line that every shell takes


def grant_line(caller: Caller, operation: str, *resource: str) -> str:
    """The line that grants an operation on a resource, given as flags of kafka-acls.sh."""
    return caller.grantee.line(operation, *resource)


def topics_line(caller: Caller, operation: str, topics: Sequence[str]) -> str:
    """The line that grants an operation on these topics alone; the reader puts in a prefix if there are too many."""
    named = [part for topic in topics for part in ("--topic", topic)]
    return grant_line(caller, operation, *(named if 0 < len(topics) <= _TOPICS_IN_LINE else _TOPICS))


# The rights on topics: those with data, the coordinators' log, and the events topic. Pure: no I/O, no clock.

_TOPICS_NAMED = 5


def topic_rights(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    """One row for each right on a topic, and one about the writers of the events topic."""
    operations = checkup.topic_operations
    data = {
        name: rights
        for name, rights in operations.items()
        if name not in {TRANSACTION_STATE_TOPIC, caller.events_topic}
    }
    unread = sorted(name for name, rights in data.items() if _lacks(rights, READ))
    needed_by = "find-hanging, explain, run"
    for name in unread:
        fix = grant_line(caller, "Read", "--topic", name)
        yield CheckRow("right", f"Read on topic {name}", Health.MISSING, "not allowed", needed_by, fix, Use.LOOK)
    if not data.keys() - INTERNAL_TOPICS:
        fix = topics_line(caller, "Read", ())
        detail = "no topic of an application is shown: there is none, or this user may describe none"
        yield CheckRow("right", "Read on topics", Health.WARNING, detail, needed_by, fix, Use.LOOK)
    elif not unread:
        detail = f"{len(data)} topics are shown; topics that this user may not describe are missing"
        yield CheckRow("right", "Read on topics", Health.OK, detail, needed_by, None, Use.LOOK)
    yield from _hidden(checkup, caller)
    yield from _log(checkup, caller)
    yield from _events(checkup, caller)
    yield _writers(checkup.events_writers, caller)


def _hidden(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    for partition, why in checkup.hidden.items():
        if not why.is_denied:
            yield CheckRow("right", partition, Health.WARNING, str(why), "find-hanging, explain", None, Use.LOOK)
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
            Use.LOOK,
        )


def _log(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    if checkup.has_unseen_log:
        detail = "not shown, but transactional data exists: a missing right or a proxy hides it; nothing is proven"
        fix = grant_line(caller, "Read", "--topic", TRANSACTION_STATE_TOPIC)
        name = f"Read on topic {TRANSACTION_STATE_TOPIC}"
        yield CheckRow("right", name, Health.MISSING, detail, "run, describe, explain", fix, Use.LOOK)
    else:
        yield internal_right(
            checkup, TRANSACTION_STATE_TOPIC, "no transaction was begun", "run, describe, explain", caller
        )


def internal_right(checkup: Checkup, topic: str, unused: str, needed_by: str, caller: Caller) -> CheckRow:
    """Whether an internal topic may be read; brokers create it at its first use, and report the rights before that."""
    name, rights = f"Read on topic {topic}", checkup.internal_rights[topic]
    if not rights.is_hidden and not _lacks(rights.operations, READ):
        detail = f"does not exist yet: {unused}" if rights.is_absent else "allowed"
        return CheckRow("right", name, Health.OK, detail, needed_by, None, Use.LOOK)
    detail = f"not shown: {unused}, or a right is missing" if rights.is_hidden else "not allowed"
    fix = grant_line(caller, "Read", "--topic", topic)
    health = Health.WARNING if rights.is_hidden or rights.is_absent else Health.MISSING
    return CheckRow("right", name, health, detail, needed_by, fix, Use.LOOK)


def _events(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    """The rights of `run` and `events` on the events topic; before the first start of `run` it does not exist."""
    rights, topic, needed_by = checkup.events_rights, caller.events_topic, "run, events"
    if rights.is_absent or rights.is_hidden:
        yield from _create(checkup, caller)
    if rights.operations is None:
        detail = "not reported by the broker, so not checked; `run` cannot start without both"
        both = grant_line(caller, "Write", "--operation", "Read", "--topic", topic)
        yield CheckRow(
            "right", f"Read and Write on topic {topic}", Health.WARNING, detail, needed_by, both, Use.PUBLISH
        )
        return
    for operation, operation_name in ((READ, "Read"), (WRITE, "Write")):
        lacks = operation not in rights.operations
        fix = grant_line(caller, operation_name, "--topic", topic) if lacks else None
        health = Health.MISSING if lacks else Health.OK
        detail = "not allowed" if lacks else "allowed"
        yield CheckRow("right", f"{operation_name} on topic {topic}", health, detail, needed_by, fix, Use.PUBLISH)


def _create(checkup: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, problem = f"Create topic {caller.events_topic}", checkup.events_problem
    if problem is None:
        detail = "allowed: the topic does not exist, and `run` creates it"
        yield CheckRow("right", name, Health.OK, detail, "run", None, Use.PUBLISH)
    elif problem.is_denied:
        # Nobody knows here whether a hidden topic exists. If it does, `run` works without this right.
        is_needed = checkup.events_rights.is_absent
        detail = f"{problem}: the topic does not exist" if is_needed else f"{problem}: needed if it does not exist"
        fix = grant_line(caller, "Create", "--topic", caller.events_topic)
        yield CheckRow("right", name, Health.MISSING if is_needed else Health.WARNING, detail, "run", fix, Use.PUBLISH)
    elif problem.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        yield CheckRow("right", name, Health.WARNING, str(problem), "run", None, Use.PUBLISH)


def _writers(topic_writers: Writers, caller: Caller) -> CheckRow:
    """Who else can write false alarms to the topic. No abort depends on the topic, so this is only a warning."""
    name, needed_by = f"writers of topic {caller.events_topic}", "events, status"
    harm = "a user who may write it can publish false alarms, but cannot cause an abort"
    if topic_writers.is_open:
        detail = f"every client: the brokers have no authorizer; {harm}. --events-key-file signs the events of txnwatch"
        return CheckRow("right", name, Health.OK, detail, needed_by, None)
    if topic_writers.problem is not None:
        fix = grant_line(caller, "Describe", "--cluster") if topic_writers.problem.is_denied else None
        detail = f"could not be read: {topic_writers.problem}; {harm}"
        return CheckRow("right", name, Health.WARNING, detail, needed_by, fix, Use.ESTIMATE)
    others = [principal for principal in topic_writers.principals if principal != caller.grantee.principal]
    ours = (
        "this user by an ACL"
        if caller.grantee.principal in topic_writers.principals
        else "this user without an ACL of its own"
    )
    if not others:
        return CheckRow("right", name, Health.OK, f"{ours}, and super users", needed_by, None)
    writers = f"{ours}, super users, and {some(others, _TOPICS_NAMED)}"
    detail = f"{writers}: {harm}. --events-key-file signs the events of txnwatch"
    return CheckRow("right", name, Health.WARNING, detail, needed_by, None)


def _lacks(rights: Operations, operation: int) -> bool:
    return rights is not None and operation not in rights


# How many bytes `run` would move: they cost money where traffic out of a zone is paid. Pure: no I/O, no clock.

_DAY_S = 86_400
_LOG = f"{TRANSACTION_STATE_TOPIC}, the coordinators' log"
_CENSUS = "censuses, which read no records"
_NAMED = 3
_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")


def egress_row(rates: WriteRates, topics: str, caller: Caller) -> CheckRow:
    """One row: what `run --topics` would read in a day, and the topics with the most bytes."""
    subject = f"scan of --topics {topics}"
    if rates.problem is not None:
        fix = grant_line(caller, "Describe", "--cluster")
        return CheckRow(
            "egress", subject, Health.WARNING, f"cannot be estimated: {rates.problem}", "-", fix, Use.ESTIMATE
        )
    largest = sorted(rates.by_topic, key=lambda name: -rates.by_topic[name])
    named = [f"{name} {_a_day(rates.by_topic[name])}" for name in largest if rates.by_topic[name]]
    most = f": {some(named, _NAMED)}" if named else ""
    total = _a_day(sum(rates.by_topic.values()))
    detail = f"about {total} a day by the writes of the last hour{most}"
    return CheckRow("egress", subject, Health.OK, detail, "-", None)


def log_row(log_bytes: LogBytes | None, access: CoordinatorAccess, caller: Caller) -> CheckRow:
    """One row: what `run` reads of the coordinators' log; `log_bytes` is None if the view `access` does not read it."""
    if log_bytes is None:
        return CheckRow("egress", _LOG, Health.OK, f"not read: the coordinator view is {access}", "-", None)
    detail = f"about {_a_day(log_bytes.per_second)} a day by the records of the last hour"
    if log_bytes.unread:
        detail = f"{detail}, without {log_bytes.unread} partitions that could not be read"
    if log_bytes.size is not None:
        detail = f"{detail}; a start without a checkpoint reads the whole log: {_amount(log_bytes.size)}"
        return CheckRow("egress", _LOG, Health.WARNING if log_bytes.unread else Health.OK, detail, "-", None)
    why = f": {log_bytes.problem}" if log_bytes.problem is not None else ""
    detail = f"{detail}; a start without a checkpoint reads the whole log, whose size is not shown{why}"
    fix = grant_line(caller, "Describe", "--cluster")
    return CheckRow("egress", _LOG, Health.WARNING, detail, "-", fix, Use.ESTIMATE)


def census_row(scanned: CensusBytes, others: CensusBytes, heal_ms: DurationMs, pause_ms: DurationMs) -> CheckRow:
    """One row: what the censuses of `run` would move in a day, with these pauses between two of them."""
    heal_s, pause_s = heal_ms / 1000, pause_ms / 1000
    parts = [
        f"{census.partitions} {what} partitions every {interval_s:.0f} s {_a_day(census.moved / interval_s)}"
        for what, census, interval_s in (("other", others, pause_s), ("scanned", scanned, heal_s))
        if census.partitions
    ]
    total = _a_day(others.moved / pause_s + scanned.moved / heal_s)
    one_census = _amount(others.moved + scanned.moved)
    failed = others.failed + scanned.failed
    detail = f"about {total} a day{': ' if parts else ''}{', '.join(parts)}; one census of all moved {one_census}"
    if not failed:
        return CheckRow("egress", _CENSUS, Health.OK, detail, "-", None)
    return CheckRow("egress", _CENSUS, Health.WARNING, f"{detail}; {failed} partitions were not described", "-", None)


def _a_day(bytes_per_second: float) -> str:
    return _amount(bytes_per_second * _DAY_S)


def _amount(count: float) -> str:
    amount, unit = count, 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


# Estimates how many bytes `run` would move in a day with the settings of `txnwatch doctor`.

# The settings of `run` that decide how many bytes it moves, beside the topics that are scanned.
SETTINGS = ("census_topics", "foreign_topics", "coordinator_view", "census_interval_ms", "heal_interval_ms")


def watch_options(parsed: argparse.Namespace) -> SourceOptions:
    """Which topics `run` would watch; `parsed` has the topics and SETTINGS."""
    return replace(
        options_of(parsed.bootstrap_server, None),
        pattern=parsed.topics,
        census_pattern=parsed.census_topics,
        foreign_pattern=parsed.foreign_topics,
    )


def egress_rows(
    cluster: Cluster, parsed: argparse.Namespace, access: CoordinatorAccess, caller: Caller
) -> Iterator[CheckRow]:
    """One row for each kind of reading; `parsed` has the topics and SETTINGS, `access` is the view that `run` takes."""
    options = watch_options(parsed)
    topics, now_ms = cluster.known.topics.values(), wall_clock_ms()
    scanned = [topic.name for topic in topics if options.watches(topic)]
    others = [topic.name for topic in topics if options.counts(topic)]
    yield egress_row(write_rates(cluster, scanned, now_ms), parsed.topics, caller)
    log_bytes = coordinator_log_bytes(cluster, now_ms) if access is CoordinatorAccess.LOG else None
    yield log_row(log_bytes, access, caller)
    yield census_row(
        census_bytes(cluster, scanned, now_ms),
        census_bytes(cluster, others, now_ms),
        parsed.heal_interval_ms,
        parsed.census_interval_ms,
    )


# The client's rack: how much of a scan is read from brokers in it.

_RACKS = 5


def rack_row(cluster: Cluster, watched: SourceOptions, rack: str | None) -> CheckRow | None:
    """Where `run` reads the data that it scans; None if no broker has a rack and the client has none.

    Raises:
        BrokerError: no broker answers.
    """
    answer = cluster.whole_metadata()
    racks = sorted({broker.rack for broker in answer.brokers if broker.rack})
    keeps = all(cluster.connection_to_keep(node) for node in cluster.known.brokers)
    return row_of_rack(answer, racks, watched, rack, keeps_epochs=keeps)


def row_of_rack(
    answer: MetadataResponse, racks: list[str], watched: SourceOptions, rack: str | None, *, keeps_epochs: bool
) -> CheckRow | None:
    """The row, from a Metadata response; `keeps_epochs`: a leader that restarts may have its epoch of before."""
    if rack is None:
        if len(racks) < 2:
            return None
        detail = f"not set: data is read from the leaders, in every rack ({some(racks, _RACKS)})"
        return CheckRow("egress", "client.rack", Health.OK, detail, "-", None)
    subject = f"client.rack={rack}"
    if rack not in racks:
        detail = f"no broker has this rack, found {some(racks, _RACKS) or 'brokers without a rack'}"
        return CheckRow("egress", subject, Health.WARNING, f"{detail}: data is read from the leaders", "run", None)
    if keeps_epochs:
        detail = "data is read from the leaders: controllers before Kafka 4.0 may keep a leader epoch after a restart"
        return CheckRow("egress", subject, Health.WARNING, detail, "run", None)
    metadata = metadata_of(answer, rack)
    near = {broker.node_id for broker in answer.brokers if broker.rack == rack}
    infos = [info for topic in metadata.topics.values() if watched.watches(topic) for info in topic.partitions.values()]
    led, followed = sum(info.leader in near for info in infos), sum(info.closest is not None for info in infos)
    detail = f"of {len(infos)} scanned partitions, {led} have their leader there and {followed} a follower"
    return CheckRow("egress", subject, Health.OK, detail, "-", None)


# The targets of the push: whether the servers of each one answer.

_FOR_PUSH: Final = "run --push-file"


def push_rows(path: Path | None, positions: Path | None) -> Iterator[CheckRow]:
    """One row for each server of a target; one for the whole file if it is not valid, none without a file.

    `positions` is the directory in which the watcher keeps the positions of its targets; None if it is not known here.
    A target may have told the watcher that it wants no more events: then its row says so.
    """
    if path is None:
        return
    try:
        file = read_push_file(path)
    except ConfigError as exc:
        yield CheckRow("push", str(path), Health.MISSING, str(exc), _FOR_PUSH, None)
        return
    for target in file.targets:
        for address in target.addresses:
            yield _push_row(target, address, positions)


def _push_row(target: HttpTarget, address: Address, positions: Path | None) -> CheckRow:
    subject = f"{target.name} {address.shown}"
    stopped_ms = _stopped_ms(positions / journal_name(target, address)) if positions is not None else None
    if stopped_ms is not None:
        detail = f"answered 410 at {utc(stopped_ms)}, so the watcher of this checkpoint sends it nothing"
        fix = "if it takes events again, start the watcher again; else remove it from the file"
        return CheckRow("push", subject, Health.MISSING, detail, _FOR_PUSH, fix)
    try:
        reached = _reached(target, address)
    except SinkError as exc:
        return CheckRow("push", subject, Health.MISSING, str(exc), _FOR_PUSH, None)
    health, detail = reached
    return CheckRow("push", subject, health, detail, _FOR_PUSH, None)


def _stopped_ms(path: Path) -> TimestampMs | None:
    """When the target answered that it wants no more events; None if it did not, or if nothing is known of it."""
    stopped = Journal(path, lambda _: None).values.get(STOPPED)
    return TimestampMs(stopped) if isinstance(stopped, int) else None


def _reached(target: HttpTarget, address: Address) -> tuple[Health, str]:
    """What the server answers.

    Raises:
        SinkError: it does not answer, or a secret cannot be read.
    """
    if not isinstance(target, AlertmanagerTarget):
        HttpClient(address, target.ca_file).reach()
        return Health.OK, "accepts connections; no event was sent"
    status = HttpClient(address.below(STATUS_PATH), target.ca_file).request("GET", target.fixed_headers()).status
    if status == 200:
        return Health.OK, "answers"
    return Health.MISSING, f"{STATUS_PATH} answers {status}, expected 200"


# The owners of transactional ids: how many ids have none in the table of owners.

MOST_BEGINNINGS: Final = 10
IDS_LOOKED_UP: Final = 100_000  # 3 s
_FOR_NOTHING: Final = "-"


def owner_rows(transactional_ids: Sequence[str], table: OwnerTable) -> Iterator[CheckRow]:
    """One row for all ids, and one for each of the most frequent beginnings.

    An id whose owner follows from the topic or from a group counts as one without: a list of ids has neither.
    """
    if not transactional_ids:
        return
    looked_at = transactional_ids[:IDS_LOOKED_UP]
    count: Counter[str] = Counter()
    without: Counter[str] = Counter()
    teams: dict[str, dict[str, None]] = {}
    for transactional_id in looked_at:
        owner = table.of(Subject(transactional_id)).owner
        key = beginning(transactional_id)
        count[key] += 1
        if owner is None:
            without[key] += 1
        else:
            teams.setdefault(key, {})[owner.team] = None
    yield _owners_of_all(len(transactional_ids), len(looked_at), without, table)
    for key, number in count.most_common(MOST_BEGINNINGS):
        owners = f"owner {some(list(teams[key]), _NAMED)}" if key in teams else "no owner"
        some_without = f", {without[key]} of them without an owner" if key in teams and without[key] else ""
        detail = f"{counted(number, 'id')}: {owners}{some_without}"
        yield CheckRow("owners", key, Health.OK, detail, _FOR_NOTHING, None)


def _owners_of_all(total: int, looked_at: int, without: Counter[str], table: OwnerTable) -> CheckRow:
    """With a table, ids without an owner are a warning."""
    subject = "transactional ids"
    first = f" (the first {looked_at} were looked up)" if looked_at < total else ""
    if not table.teams:
        detail = f"{total} ids{first}; there is no table of owners (owners_file), so no event names whom to call"
        return CheckRow("owners", subject, Health.OK, detail, _FOR_NOTHING, None)
    if not without:
        return CheckRow("owners", subject, Health.OK, f"each of {total} ids{first} has an owner", _FOR_NOTHING, None)
    often = some([key for key, _ in without.most_common(MOST_BEGINNINGS)], MOST_BEGINNINGS)
    detail = f"{without.total()} of {total} ids{first} have no owner by their name; most often {often}"
    fix = "add these to transactional_ids or applications of an entry in owners_file, if an owner is known"
    return CheckRow("owners", subject, Health.WARNING, detail, _FOR_NOTHING, fix)


def beginning(transactional_id: str) -> str:
    """What ids of one application have in common, as a pattern of the table if it is at the beginning of the id."""
    application = taken_apart(Subject(transactional_id))
    if application is None:
        return transactional_id
    if transactional_id.startswith(application.name):
        return f"{application.name}*"
    return f"application {application.name}"


# The HTTP port of `run`: who reaches the page and the metrics.

HTTP_SETTINGS: Final = ("http_port", "http_host", "http_web_config_file")
_NEEDED_BY: Final = "run --http-port"


def http_rows(parsed: argparse.Namespace) -> Iterator[CheckRow]:
    """One row if `run` serves HTTP; a warning if everybody who reaches the address can read the page."""
    if parsed.http_port is None:
        return
    from txnwatch.web.server import is_private  # noqa: PLC0415 - imports Starlette, which no other check needs
    from txnwatch.web.web_config import read_web_config  # noqa: PLC0415 - imports bcrypt

    where = f"{parsed.http_host}:{parsed.http_port}"
    try:
        web = read_web_config(parsed.http_web_config_file)
    except ConfigError as exc:
        yield CheckRow("http", where, Health.MISSING, str(exc), _NEEDED_BY, None)
        return
    if is_private(parsed, web):
        detail = "reached from this machine, or with a password or a certificate"
        yield CheckRow("http", where, Health.OK, detail, _NEEDED_BY, None)
        return
    detail = "no users: whoever reaches this address reads the names of topics, ids and groups on the page"
    fix = "set basic_auth_users in --http-web-config-file (docs/hardening.md), or --http-host 127.0.0.1"
    yield CheckRow("http", where, Health.WARNING, detail, _NEEDED_BY, fix)


# Partitions without a leader, and those with too few in-sync replicas. Pure: no I/O, no clock.

_PARTITIONS_NAMED: Final = 5


def partition_rows(replicas: Iterable[PartitionReplicas]) -> Iterator[CheckRow]:
    """One row for all partitions of which the same is to be said and to be done."""
    at_risk = [state for state in replicas if state.is_blocked or state.is_last]
    for (check, detail, fix), names in grouped((str(state.partition), _said_of(state)) for state in at_risk).items():
        yield CheckRow(check, some(names, _PARTITIONS_NAMED), Health.WARNING, detail, "all", fix)


def _said_of(state: PartitionReplicas) -> tuple[str, str, str]:
    """The check, its result, and what to do."""
    text, fix = replicas_text(state), repair_step([state])
    if state.leader is None:
        return "leader", f"{text}: nothing about this partition can be read", fix
    return "replicas", f"{text}: {BLOCKED_MEANS if state.is_short else LAST_MEANS}", fix
