"""The rights on topics: those with data, the coordinators' log, and the events topic. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator

from txnwatch.cli.check_row import Caller, CheckRow, Health, grant_line
from txnwatch.state.model.ids import INTERNAL_TOPICS, TRANSACTION_STATE_TOPIC
from txnwatch.state.model.problem import ErrorCode
from txnwatch.state.text.lists import some
from txnwatch.streaming.admin.acls import Writers
from txnwatch.streaming.admin.topic_rights import READ, WRITE, Operations
from txnwatch.streaming.job.checkup import Checkup

_NAMED = 5


def topic_rights(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    """One row for each right on a topic, and one about the writers of the events topic."""
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
    if not data.keys() - INTERNAL_TOPICS:
        fix = grant_line(caller, "Read", "--topic", "*")
        detail = "no topic of an application is shown: there is none, or this user may describe none"
        yield CheckRow("right", "Read on topics", Health.WARNING, detail, "find-hanging, explain, run", fix)
    elif not unread:
        detail = f"{len(data)} topics are shown; topics that this user may not describe are missing"
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
    """The rights of `run` and `events` on the events topic; before the first start of `run` it does not exist."""
    rights, topic, needed_by = found.events_rights, caller.events_topic, "run, events"
    if rights.is_absent or rights.is_hidden:
        yield from _create(found, caller)
    if rights.operations is None:
        detail = "not reported by the broker, so not checked; `run` cannot start without both"
        both = grant_line(caller, "Write", "--operation", "Read", "--topic", topic)
        yield CheckRow("right", f"Read and Write on topic {topic}", Health.WARNING, detail, needed_by, both)
        return
    for operation, operation_name in ((READ, "Read"), (WRITE, "Write")):
        lacks = operation not in rights.operations
        fix = grant_line(caller, operation_name, "--topic", topic) if lacks else None
        health = Health.MISSING if lacks else Health.OK
        detail = "not allowed" if lacks else "allowed"
        yield CheckRow("right", f"{operation_name} on topic {topic}", health, detail, needed_by, fix)


def _create(found: Checkup, caller: Caller) -> Iterator[CheckRow]:
    name, problem = f"Create topic {caller.events_topic}", found.events_problem
    if problem is None:
        detail = "allowed: the topic does not exist, and `run` creates it"
        yield CheckRow("right", name, Health.OK, detail, "run", None)
    elif problem.is_denied:
        # Nobody knows here whether a hidden topic exists. If it does, `run` works without this right.
        is_needed = found.events_rights.is_absent
        detail = f"{problem}: the topic does not exist" if is_needed else f"{problem}: needed if it does not exist"
        fix = grant_line(caller, "Create", "--topic", caller.events_topic)
        yield CheckRow("right", name, Health.MISSING if is_needed else Health.WARNING, detail, "run", fix)
    elif problem.code != ErrorCode.TOPIC_ALREADY_EXISTS:
        yield CheckRow("right", name, Health.WARNING, str(problem), "run", None)


def _writers(found: Writers, caller: Caller) -> CheckRow:
    """Who else can write false alarms to the topic. No abort depends on the topic, so this is only a warning."""
    name, needed_by = f"writers of topic {caller.events_topic}", "events, status"
    harm = "a user who may write it can publish false alarms, but cannot cause an abort"
    if found.is_open:
        detail = f"every client: the brokers have no authorizer; {harm}. --events-key-file signs the events of txnwatch"
        return CheckRow("right", name, Health.OK, detail, needed_by, None)
    if found.problem is not None:
        fix = grant_line(caller, "Describe", "--cluster") if found.problem.is_denied else None
        return CheckRow("right", name, Health.WARNING, f"could not be read: {found.problem}; {harm}", needed_by, fix)
    others = [principal for principal in found.principals if principal != caller.principal]
    ours = "this user by an ACL" if caller.principal in found.principals else "this user without an ACL of its own"
    if not others:
        return CheckRow("right", name, Health.OK, f"{ours}, and super users", needed_by, None)
    detail = f"{ours}, super users, and {some(others, _NAMED)}: {harm}. --events-key-file signs the events of txnwatch"
    return CheckRow("right", name, Health.WARNING, detail, needed_by, None)


def _lacks(rights: Operations, operation: int) -> bool:
    return rights is not None and operation not in rights
