"""DescribeTransactions of some ids, each from its coordinator; an answer counts only if the coordinator did not change.

Law: a broker that has lost a partition of the coordinators' log may not know it yet, and then describes an old state.
So the leaders of the log are read before and after, each time from another broker. A description counts only if the
broker that gave it led the id's partition all the time, under one leader epoch. If the log is hidden, nothing can be
compared; the listing (list_transactions.py) then reports the problem.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.protocol.metadata import FindCoordinatorRequest

from txnwatch.state.model.description import (
    NotDescribed,
    TransactionDescription,
)
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.streaming.admin import requests as messages
from txnwatch.streaming.admin.list_transactions import LogLeaders, coordinators_log
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.client.fan_out import ask_for_each
from txnwatch.streaming.wire.transaction_log import coordinator_partition

_TRANSACTION_COORDINATOR = 1
_MANY_KEYS_SINCE = 4
_MISSING = Problem("missing from the answer")


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
    """Each id as its coordinator describes it, or the problem that prevented it."""
    wanted = list(dict.fromkeys(transactional_ids))
    if not wanted:
        return {}
    try:
        before, _ = coordinators_log(cluster)
        answers = _describe(cluster, wanted)
        after, _ = coordinators_log(cluster)
    except BrokerError as exc:
        return {name: NotDescribed(name, Problem.from_error(exc)) for name in wanted}
    return {name: _as_coordinator(answers[name], before, after) for name in wanted}


def _as_coordinator(found: TransactionDescription, before: LogLeaders, after: LogLeaders) -> TransactionDescription:
    if isinstance(found, NotDescribed) or not before or not after:
        return found
    number = coordinator_partition(found.transactional_id, len(before))
    log, led = TopicPartition(TRANSACTION_STATE_TOPIC, number), before[number]
    if after.get(number) != led:
        return NotDescribed(found.transactional_id, Problem(f"the leader of {log} changed during the request"))
    if led.leader != found.coordinator:
        why = Problem(f"broker {found.coordinator} answered, but it does not lead {log}")
        return NotDescribed(found.transactional_id, why)
    return found


def _describe(cluster: Cluster, wanted: list[str]) -> dict[str, TransactionDescription]:
    answers: dict[str, TransactionDescription] = {}
    by_coordinator: dict[BrokerId, list[str]] = {}
    for transactional_id, found in _find_coordinators(cluster, wanted).items():
        if isinstance(found, Problem):
            answers[transactional_id] = NotDescribed(transactional_id, found)
        else:
            by_coordinator.setdefault(found, []).append(transactional_id)
    return answers | describe_at(cluster, by_coordinator)


def describe_at(cluster: Cluster, ids: Mapping[BrokerId, Sequence[str]]) -> dict[str, TransactionDescription]:
    """Each id as the given broker describes it, or the problem that prevented it; one request per broker."""
    found = ask_for_each(cluster, ids, messages.describe_transactions_request, messages.descriptions)
    return {
        name: NotDescribed(name, Problem.from_error(one)) if isinstance(one, BrokerError) else one
        for name, one in found.items()
    }


def _find_coordinators(cluster: Cluster, wanted: list[str]) -> dict[str, BrokerId | Problem]:
    """The broker id of each id's coordinator, or the problem."""
    found: dict[str, BrokerId | Problem] = {}
    try:
        connection = cluster.any_connection()
        version = connection.require_version(FindCoordinatorRequest, highest=4, lowest=1)
        if version >= _MANY_KEYS_SINCE:
            for answer in _find(cluster, connection, version, coordinator_keys=wanted).coordinators:
                found[answer.key] = _node_or_error(answer)
        else:
            for name in wanted:
                found[name] = _node_or_error(_find(cluster, connection, version, key=name))
    except BrokerError as exc:
        return {name: found.get(name, Problem.from_error(exc)) for name in wanted}
    return {name: found.get(name, _MISSING) for name in wanted}


def _find(cluster: Cluster, connection: Connection, version: int, **keys: Any) -> Any:
    request = FindCoordinatorRequest(version=version, key_type=_TRANSACTION_COORDINATOR, **keys)
    return cluster.call(connection, request)


def _node_or_error(answer: Any) -> BrokerId | Problem:
    problem = problem_of(answer.error_code)
    return BrokerId(answer.node_id) if problem is None else problem.with_right(messages.DESCRIBE_IDS)
