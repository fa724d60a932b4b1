"""Requests about producers and transactions, and their answers as typed values.

Requests to one broker come first, then ListTransactions of the whole cluster. An error concerns only what it names: a
partition, an id, a broker.

Law: a broker lists the ids that it coordinates, and does not report the others. If a partition of the log has no
leader, or its new leader has not begun to load it, its ids are missing without an error. So the log's partitions are
checked before and after, and the result names every partition that was not listed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ActiveProducer, ListedTransaction
from txnwatch.state.model.transaction import (
    DescribedTransaction,
    NotDescribed,
    TransactionDescription,
    TransactionState,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    ErrorCode,
    Problem,
    ProducerId,
    TopicPartition,
    coordinator_partition,
    log_numbered,
)
from txnwatch.streaming.client.cluster import Cluster, RequestOf, ask_for_each
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.client.hidden_topics import NOT_SHOWN, why_no_log
from txnwatch.streaming.client.metadata import NO_LEADER, PartitionInfo, any_of
from txnwatch.streaming.log.coordinator_log import newest_stamps
from txnwatch.streaming.wire.primitives import present

DESCRIBE_IDS = "DESCRIBE on transactional ids"  # for all of them, because the problems of many ids share one line
_UPGRADE = "if the broker is newer, upgrade txnwatch"
_STATES = frozenset(map(str, TransactionState))


def _describe_producers_request(partitions: Sequence[TopicPartition]) -> RequestOf:
    """DescribeProducers of some partitions that one broker leads."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(DescribeProducersRequest, highest=0)
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        topic = DescribeProducersRequest.TopicRequest
        return DescribeProducersRequest(
            version=version,
            topics=[topic(version=version, name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        )

    return build


def described(response: Any, _: BrokerId) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
    """Each partition's producers, or its problem, as one broker describes them."""
    return {
        TopicPartition(topic.name, partition.partition_index): _producers(partition)
        for topic in response.topics
        for partition in topic.partitions
    }


def _producers(partition: Any) -> tuple[ActiveProducer, ...] | Problem:
    problem = problem_of(partition.error_code)
    if problem is not None:
        return problem.with_right("READ on the topic")
    return tuple(
        ActiveProducer(
            row.producer_id,
            row.producer_epoch,
            present(row.last_sequence),
            present(row.last_timestamp),
            present(row.coordinator_epoch),
            present(row.current_txn_start_offset),
        )
        for row in partition.active_producers
    )


def describe_transactions_request(transactional_ids: Sequence[str]) -> RequestOf:
    """DescribeTransactions of some ids of one coordinator."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(DescribeTransactionsRequest, highest=0)
        return DescribeTransactionsRequest(version=version, transactional_ids=list(transactional_ids))

    return build


def descriptions(response: Any, node: BrokerId) -> dict[str, TransactionDescription]:
    """Each id as its coordinator describes it; or the problem."""
    return {row.transactional_id: _description(row, node) for row in response.transaction_states}


def _description(row: Any, node: BrokerId) -> TransactionDescription:
    name, problem = row.transactional_id, problem_of(row.error_code)
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return UnknownTransactionalId(name, node)
    if problem is not None:
        return NotDescribed(name, problem.with_right(DESCRIBE_IDS))
    if row.transaction_state not in _STATES:
        return NotDescribed(name, Problem(f"found the unknown state {row.transaction_state!r}: {_UPGRADE}"))
    transaction = DescribedTransaction(
        transactional_id=name,
        coordinator=node,
        state=TransactionState(row.transaction_state),
        producer_id=row.producer_id,
        producer_epoch=present(row.producer_epoch),
        timeout_ms=row.transaction_timeout_ms,
        start_ms=present(row.transaction_start_time_ms),
        partitions=frozenset(
            TopicPartition(topic.topic, number) for topic in row.topics for number in topic.partitions
        ),
    )
    if transaction.is_live and transaction.producer_epoch is None:
        return NotDescribed(name, Problem(f"found the state {transaction.state} without a producer epoch"))
    return transaction


def list_transactions_request(producer_ids: list[ProducerId]) -> RequestOf:
    """ListTransactions of some producer ids; an empty list asks for all."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(ListTransactionsRequest, highest=0)
        return ListTransactionsRequest(version=version, state_filters=[], producer_id_filters=producer_ids)

    return build


def listed_transactions(response: Any, node: BrokerId) -> tuple[list[ListedTransaction], Problem | None]:
    """The transactions that one broker coordinates, and a problem if some have a state that we do not know."""
    unknown = {row.transaction_state for row in response.transaction_states} - _STATES
    rows = [
        ListedTransaction(row.transactional_id, row.producer_id, TransactionState(row.transaction_state), node)
        for row in response.transaction_states
        if row.transaction_state in _STATES
    ]
    problem = Problem(f"found the unknown states {sorted(unknown)}: {_UPGRADE}")
    return rows, problem if unknown else None


@cache
def one_id_for_each_partition(count: int) -> tuple[str, ...]:
    """Unused transactional ids, one for each partition of a coordinators' log with `count` partitions."""
    ids: dict[int, str] = {}
    names = (f"nobody-{number}" for number in itertools.count())
    while len(ids) < count:
        name = next(names)
        ids.setdefault(coordinator_partition(name, count), name)
    return tuple(ids[number] for number in range(count))


# DescribeProducers of many partitions, each from its leader; an error concerns only its own partition.


def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | Problem]:
    """The producers of each partition as its known leader describes them, or the problem."""
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    answers: dict[TopicPartition, tuple[ActiveProducer, ...] | Problem] = {}
    for partition in partitions:
        info = cluster.known.info(partition)
        if info is None or info.leader is None:
            answers[partition] = NO_LEADER
        else:
            by_leader.setdefault(info.leader, []).append(partition)
    from_leaders = ask_for_each(cluster, by_leader, _describe_producers_request, described)
    return answers | {
        at: Problem.from_error(answer) if isinstance(answer, BrokerError) else answer
        for at, answer in from_leaders.items()
    }


# ListTransactions of the whole cluster.

MISSING = Problem("missing from the answer")
_Problems = dict[str, Problem]
LogLeaders = dict[TopicPartition, PartitionInfo]


class BrokerListings(NamedTuple):
    """The transactions that the brokers listed.

    Attributes:
        problems: a coordinator, or a partition of its log, and why its ids are missing.
        silent: those of the problems that are brokers without an answer, or a log that is hidden.
        is_unused: no broker shows the log, and no broker has an id: no transaction was ever begun on this cluster.
        log_partitions: how many partitions the log has; None if it is not shown.
    """

    rows: list[ListedTransaction]
    problems: _Problems
    silent: _Problems
    is_unused: bool = False
    log_partitions: int | None = None


def list_everywhere(cluster: Cluster, request: Callable[[Connection], Any]) -> BrokerListings:
    """Sends one ListTransactions to every broker; the listing is complete only if it has no problems.

    Before and after the listing, each broker must show that it answers for every log partition that it leads. `request`
    builds the request for a connection, in a version that its broker knows.
    """
    try:
        before, problems = coordinators_log(cluster)
    except BrokerError as exc:
        nobody = {TRANSACTION_STATE_TOPIC: Problem.from_error(exc)}
        return BrokerListings([], nobody, nobody)
    silent: _Problems = {}
    problems |= _not_answered_for(cluster, before, silent)
    rows, refused = _list(cluster, request, silent)
    after: LogLeaders = {}
    try:
        after, without = coordinators_log(cluster)
        problems |= without | _moved(before, after)
    except BrokerError as exc:
        problems[TRANSACTION_STATE_TOPIC] = Problem.from_error(exc)
    problems |= _not_answered_for(cluster, before, silent)
    led = [row for row in rows if not _is_orphan(row, before) and not _is_orphan(row, after)]
    problems |= refused
    if is_never_used(cluster, problems):
        return BrokerListings([], {}, {}, is_unused=True)
    silent |= {what: why for what, why in problems.items() if what == TRANSACTION_STATE_TOPIC}
    return BrokerListings(led, problems, silent, log_partitions=len(before) or None)


def _is_orphan(row: ListedTransaction, log: LogLeaders) -> bool:
    """Whether the id's partition has no leader: a broker that still lists the id has lost it, and its row is old."""
    return bool(log) and log[log_numbered(coordinator_partition(row.transactional_id, len(log)))].leader is None


def _list(
    cluster: Cluster, request: Callable[[Connection], Any], silent: _Problems
) -> tuple[list[ListedTransaction], _Problems]:
    rows: list[ListedTransaction] = []
    problems: _Problems = {}
    requests = dict.fromkeys(cluster.known.brokers, request)
    for node, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problems[_coordinator(node)] = silent[_coordinator(node)] = Problem.from_error(answer)
        elif (refused := problem_of(answer.error_code)) is not None:
            problems[_coordinator(node)] = silent[_coordinator(node)] = refused
        else:
            listed, problem = listed_transactions(answer, node)
            rows += listed
            if answer.unknown_state_filters:
                problem = Problem(f"it does not know the states {', '.join(answer.unknown_state_filters)}")
            if problem is not None:
                problems[_coordinator(node)] = problem
    return rows, problems


NEVER_USED: Final = (
    "no transactional producer was ever used on this cluster: it has no __transaction_state, and no broker lists an id"
)
_LEFT_TO_HANG = (
    "Only data that was copied byte for byte from another cluster, or whose __transaction_state was deleted, can hang "
    "here: such data is not proven to hang, but listed as not checked"
)
NEVER_USED_NOTE: Final = f"{NEVER_USED}. {_LEFT_TO_HANG}"


def is_never_used(cluster: Cluster, problems: Mapping[str, Problem]) -> bool:
    """Whether no transaction was ever begun on this cluster; `problems` are those of the coordinators' log."""
    return problems == {TRANSACTION_STATE_TOPIC: NOT_SHOWN} and not _any_ids(cluster)


def _any_ids(cluster: Cluster) -> bool:
    """Whether any broker lists an id, or fails to answer."""
    rows, problems = _list(cluster, list_transactions_request([]), {})
    return bool(rows or problems)


def coordinators_log(cluster: Cluster) -> tuple[LogLeaders, _Problems]:
    """The current leader of each partition of the coordinators' log; and problems: no leader, or a hidden log.

    Raises:
        BrokerError: no broker answered.
    """
    topic = cluster.refresh().topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None or not topic.partitions:
        return {}, {TRANSACTION_STATE_TOPIC: why_no_log(cluster)}
    if topic.partitions.keys() != set(range(len(topic.partitions))):
        return {}, {TRANSACTION_STATE_TOPIC: Problem("the metadata lacks some of its partitions")}
    leaders = {log_numbered(number): info for number, info in topic.partitions.items()}
    leaderless = (log for log, info in leaders.items() if info.leader is None)
    return leaders, {str(log): _leaderless(topic.replicas.get(log.partition, ())) for log in leaderless}


def _leaderless(replicas: Sequence[BrokerId]) -> Problem:
    """Why the ids of a partition cannot be listed, and which brokers have it."""
    brokers = f" until one of its replicas is back: {any_of(replicas)}" if replicas else ""
    return Problem(f"has no leader: its ids cannot be listed{brokers}")


def _moved(before: LogLeaders, after: LogLeaders) -> _Problems:
    moved = (log for log in before.keys() | after.keys() if before.get(log) != after.get(log))
    led = (log for log in moved if log not in after or after[log].leader is not None)
    return _of_all(sorted(led), Problem("its coordinator moved to another broker during the listing"))


FORMER_NUMBER: Final = (
    "the log moves; or its number of partitions was changed (txnwatch doctor says so), and brokers use the former "
    "number until all of them have restarted"
)


def _not_answered_for(cluster: Cluster, leaders: LogLeaders, silent: _Problems) -> _Problems:
    """The partitions of the log that cannot be listed, and why: an unused id of each partition is described.

    Between taking over a partition and beginning to load it, a broker lists without an error and without the
    partition's ids (measured: 20 to 100 ms after a failover). DescribeTransactions of such an id returns
    NOT_COORDINATOR. An id that we have no right to describe would also be missing from a listing.
    """
    probes = one_id_for_each_partition(len(leaders))
    asked: dict[BrokerId, list[TopicPartition]] = {}
    for log, info in leaders.items():
        if info.leader is not None:
            asked.setdefault(info.leader, []).append(log)
    requests = {
        node: describe_transactions_request([probes[log.partition] for log in logs]) for node, logs in asked.items()
    }
    problems: _Problems = {}
    for node, answer in cluster.ask(requests, cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problems[_coordinator(node)] = silent[_coordinator(node)] = Problem.from_error(answer)
            continue
        shown = descriptions(answer, node)
        for log in asked[node]:
            probe = probes[log.partition]
            description = shown.get(probe, NotDescribed(probe, MISSING))
            if isinstance(description, NotDescribed):
                why = description.problem.of(f"broker {node}")
                is_former = description.problem.code == ErrorCode.NOT_COORDINATOR
                problems |= _of_all([log], why.with_hint(FORMER_NUMBER) if is_former else why)
    return problems


def _coordinator(node: BrokerId) -> str:
    return f"coordinator {node}"


def _of_all(logs: Iterable[TopicPartition], why: Problem) -> _Problems:
    return {str(log): why for log in logs}


# Queries beyond the port TransactionAdmin: filtered listings, one broker's producers.
#
# Each broker's error is returned beside the other brokers' results. If a broker is too old for a request, its error
# names the Kafka release that is needed.

DURATION_SINCE, PATTERN_SINCE = 1, 2  # versions of ListTransactions


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a listing; empty or None means no filter.

    Brokers before 3.8 do not know the duration filter, and brokers before 4.1 not the pattern: they list more.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[ProducerId, ...] = ()
    longer_than_ms: DurationMs | None = None
    pattern: str | None = None


def list_filtered(cluster: Cluster, filters: Filters) -> BrokerListings:
    """Every broker's transactions; a broker that is too old for a filter lists more."""
    return list_everywhere(cluster, _list_request(filters))


def _list_request(filters: Filters) -> Callable[[Connection], Any]:
    """ListTransactions for one broker, without the filters that it is too old for."""

    def build(connection: Connection) -> Any:
        version = connection.require_version(ListTransactionsRequest)
        more: dict[str, Any] = {}
        if filters.longer_than_ms is not None and version >= DURATION_SINCE:
            more["duration_filter"] = filters.longer_than_ms
        if filters.pattern is not None and version >= PATTERN_SINCE:
            more["transactional_id_pattern"] = filters.pattern
        return ListTransactionsRequest(
            version=version, state_filters=list(filters.states), producer_id_filters=list(filters.producer_ids), **more
        )

    return build


def producers_at(cluster: Cluster, node: BrokerId, partition: TopicPartition) -> Sequence[ActiveProducer] | Problem:
    """One partition's producers as one broker, leader or follower, describes them; or the problem."""
    answers = ask_for_each(cluster, {node: [partition]}, _describe_producers_request, described)
    answer = answers[partition]
    return Problem.from_error(answer) if isinstance(answer, BrokerError) else answer


# How long a transaction has been open by its coordinator's clock.
#
# state/evidence/screening.py explains what that proves.

_NOT_ASKED = Problem("brokers before 3.8 cannot answer this, and no timestamp of its coordinator is recent enough")


def is_open_for_longer(cluster: Cluster, described: DescribedTransaction, open_for_ms: DurationMs) -> bool | Problem:
    """Whether it has been open for longer than `open_for_ms` by its coordinator's clock, or why that is unknown."""
    node = described.coordinator
    try:
        version = cluster.node(node).version(ListTransactionsRequest)
    except BrokerError as exc:
        return Problem.from_error(exc)
    if version is None or version < DURATION_SINCE:
        reached_ms = max((stamp.stamp_ms for stamp in newest_stamps(cluster) if stamp.broker == node), default=None)
        if reached_ms is None or described.start_ms is None:
            return _NOT_ASKED
        return reached_ms - described.start_ms > open_for_ms or _NOT_ASKED
    asked = _list_request(Filters(producer_ids=(described.producer_id,), longer_than_ms=open_for_ms))
    (answer,) = cluster.ask({node: asked}, cluster.timeout_s).values()
    if isinstance(answer, BrokerError):
        return Problem.from_error(answer)
    refused = problem_of(answer.error_code)
    if refused is not None:
        return refused
    rows, problem = listed_transactions(answer, node)
    return any(row.transactional_id == described.transactional_id for row in rows) or problem or False
