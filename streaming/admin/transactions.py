"""TransactionAdmin over the wire: fresh reads of partitions and coordinators, and the two writes.

kafka-python's own admin client raises for the whole request if one partition fails. Here a partition's error is the
answer of that partition only. The two writes are the marker of TransactionAdmin, and InitProducerId, which only
`txnwatch fence` uses. `described_with_log` adds what the coordinators' log has of a transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import InitProducerIdRequest, WriteTxnMarkersRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import (
    ActiveProducer,
    ListedOffset,
    MarkerSpec,
    NotSent,
    PartitionReading,
    SpanHistory,
    TransactionListing,
)
from txnwatch.state.model.transaction import (
    ClosingMarker,
    DescribedTransaction,
    NotDescribed,
    ProducerIdentity,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    ErrorCode,
    Offset,
    Problem,
    ProducerId,
    SpanStart,
    TopicPartition,
    coordinator_partition,
    log_numbered,
)
from txnwatch.state.text import cut, grouped, some
from txnwatch.streaming.admin import transaction_requests as messages
from txnwatch.streaming.admin.kafka_settings import topic_settings
from txnwatch.streaming.admin.transaction_requests import (
    MISSING,
    LogLeaders,
    coordinators_log,
    describe_producers,
    list_everywhere,
)
from txnwatch.streaming.client.cluster import EARLIEST, READ_COMMITTED, Cluster, ask_for_each
from txnwatch.streaming.client.connection import Connection, problem_of, the_one
from txnwatch.streaming.client.hidden_topics import NOT_SHOWN
from txnwatch.streaming.client.metadata import NO_LEADER, Metadata
from txnwatch.streaming.log.coordinator_log import LogRecord, log_of, read_records_anywhere
from txnwatch.streaming.log.lookups import SpanHistoryReader, closing_marker

# DescribeTransactions of some ids, each from its coordinator; an answer counts only if the coordinator did not change.
#
# Law: a broker that has lost a partition of the coordinators' log may not know it yet, and then describes an old state.
# So the leaders of the log are read before and after, each time from another broker. A description counts only if the
# broker that gave it led the id's partition all the time, under one leader epoch. If the log is hidden, nothing can be
# compared; the listing (transaction_requests.py) then reports the problem.

_TRANSACTION_COORDINATOR = 1
_MANY_KEYS_SINCE = 4


def describe_transactions(cluster: Cluster, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
    """Each id as its coordinator describes it, or the problem that prevented it."""
    wanted = list(dict.fromkeys(transactional_ids))
    if not wanted:
        return {}
    try:
        before, problems = coordinators_log(cluster)
        if messages.is_never_used(cluster, problems):  # FindCoordinator would create the log
            return {name: NotDescribed(name, Problem(messages.NEVER_USED)) for name in wanted}
        answers = _describe(cluster, wanted)
        after, _ = coordinators_log(cluster)
    except BrokerError as exc:
        return {name: NotDescribed(name, Problem.from_error(exc)) for name in wanted}
    return {name: _as_coordinator(answers[name], before, after) for name in wanted}


def _as_coordinator(
    description: TransactionDescription, before: LogLeaders, after: LogLeaders
) -> TransactionDescription:
    if isinstance(description, NotDescribed) or not before or not after:
        return description
    log = log_numbered(coordinator_partition(description.transactional_id, len(before)))
    led = before[log]
    if after.get(log) != led:
        return NotDescribed(description.transactional_id, Problem(f"the leader of {log} changed during the request"))
    if led.leader != description.coordinator:
        why = Problem(f"broker {description.coordinator} answered, but it does not lead {log}").with_hint(
            messages.FORMER_NUMBER
        )
        return NotDescribed(description.transactional_id, why)
    return description


def _describe(cluster: Cluster, wanted: list[str]) -> dict[str, TransactionDescription]:
    answers: dict[str, TransactionDescription] = {}
    by_coordinator: dict[BrokerId, list[str]] = {}
    for transactional_id, coordinator in _find_coordinators(cluster, wanted).items():
        if isinstance(coordinator, Problem):
            answers[transactional_id] = NotDescribed(transactional_id, coordinator)
        else:
            by_coordinator.setdefault(coordinator, []).append(transactional_id)
    return answers | describe_at(cluster, by_coordinator)


def describe_at(cluster: Cluster, ids: Mapping[BrokerId, Sequence[str]]) -> dict[str, TransactionDescription]:
    """Each id as the given broker describes it, or the problem that prevented it; one request per broker."""
    answers = ask_for_each(cluster, ids, messages.describe_transactions_request, messages.descriptions)
    return {
        name: NotDescribed(name, Problem.from_error(answer)) if isinstance(answer, BrokerError) else answer
        for name, answer in answers.items()
    }


def _find_coordinators(cluster: Cluster, wanted: list[str]) -> dict[str, BrokerId | Problem]:
    """The broker id of each id's coordinator, or the problem."""
    coordinators: dict[str, BrokerId | Problem] = {}
    try:
        connection = cluster.any_connection()
        version = connection.require_version(FindCoordinatorRequest, highest=4, lowest=1)
        if version >= _MANY_KEYS_SINCE:
            for answer in _find(cluster, connection, version, coordinator_keys=wanted).coordinators:
                coordinators[answer.key] = _node_or_error(answer)
        else:
            for name in wanted:
                coordinators[name] = _node_or_error(_find(cluster, connection, version, key=name))
    except BrokerError as exc:
        return {name: coordinators.get(name, Problem.from_error(exc)) for name in wanted}
    return {name: coordinators.get(name, MISSING) for name in wanted}


def _find(cluster: Cluster, connection: Connection, version: int, **keys: Any) -> Any:
    request = FindCoordinatorRequest(version=version, key_type=_TRANSACTION_COORDINATOR, **keys)
    return cluster.call(connection, request)


def _node_or_error(answer: Any) -> BrokerId | Problem:
    problem = problem_of(answer.error_code)
    return BrokerId(answer.node_id) if problem is None else problem.with_right(messages.DESCRIBE_IDS)


# The port TransactionAdmin.


class ClusterAdmin:
    """TransactionAdmin of one cluster; not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._histories = SpanHistoryReader(cluster)

    def within(self, budget_ms: DurationMs) -> AbstractContextManager[None]:
        """See TransactionAdmin."""
        return self._cluster.budget(budget_ms / 1000)

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        """See TransactionAdmin. One metadata refresh, then five requests per leader."""
        wanted = list(dict.fromkeys(partitions))
        try:
            metadata = self._cluster.refresh({partition.topic for partition in wanted})
        except BrokerError as exc:
            return {partition: PartitionReading(partition, Problem.from_error(exc)) for partition in wanted}
        before = self._cluster.list_offsets(wanted)
        described = describe_producers(self._cluster, wanted)
        after = self._cluster.list_offsets(wanted)
        stable = self._cluster.list_offsets(wanted, isolation=READ_COMMITTED)
        start = self._cluster.list_offsets(wanted, timestamp=EARLIEST)
        return {
            at: _reading(metadata, at, before[at], described[at], after[at], stable[at], start[at]) for at in wanted
        }

    def read_span_histories(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanHistory]:
        """See TransactionAdmin."""
        return self._histories.read(spans)

    def closing_marker(self, span: SpanStart, from_offset: Offset) -> ClosingMarker | None:
        """See TransactionAdmin."""
        return closing_marker(self._cluster, span, from_offset)

    def log_epochs(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, CoordinatorEpoch | Problem]:
        """See TransactionAdmin. One metadata refresh, then one request per leader."""
        wanted = list(dict.fromkeys(logs))
        try:
            self._cluster.refresh({TRANSACTION_STATE_TOPIC})
            listed = self._cluster.list_offsets(wanted)
        except BrokerError as exc:
            return dict.fromkeys(wanted, Problem.from_error(exc))
        return {log: _epoch_of(listed[log]) for log in wanted}

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """See TransactionAdmin."""
        return describe_transactions(self._cluster, transactional_ids)

    def list_transactions(self, producer_ids: Iterable[ProducerId]) -> TransactionListing:
        """See TransactionAdmin."""
        request = messages.list_transactions_request(list(dict.fromkeys(producer_ids)))
        listing = list_everywhere(self._cluster, request)
        if listing.is_unused:
            why = problem_lines({TRANSACTION_STATE_TOPIC: NOT_SHOWN})
            return TransactionListing((), why, why, has_ids=False)
        # Without the leaders of the log, any row may come from a former coordinator.
        rows = listing.rows if TRANSACTION_STATE_TOPIC not in listing.problems else []
        problems, silent = problem_lines(listing.problems), problem_lines(listing.silent)
        return TransactionListing(tuple(rows), problems, silent, log_partitions=listing.log_partitions)

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str]:
        """See TransactionAdmin."""
        settings = topic_settings(self._cluster, dict.fromkeys(topics), "cleanup.policy")
        return {topic: setting.value for topic, setting in settings.items()}

    def write_marker(self, marker: MarkerSpec) -> Problem | NotSent | None:
        """See TransactionAdmin."""
        return _write_marker(self._cluster, marker)


_NAMED = 3


def problem_lines(problems: Mapping[str, Problem]) -> tuple[Problem, ...]:
    """One problem for each reason, because a log has fifty partitions."""
    return tuple(why.of(some(names, _NAMED)) for why, names in grouped(problems.items()).items())


def _reading(
    metadata: Metadata,
    partition: TopicPartition,
    before: ListedOffset | Problem,
    described: tuple[ActiveProducer, ...] | Problem,
    after: ListedOffset | Problem,
    stable: ListedOffset | Problem,
    start: ListedOffset | Problem,
) -> PartitionReading:
    info = metadata.info(partition)
    if isinstance(before, Problem):
        return _unread(partition, before, is_shown=info is not None)
    if isinstance(described, Problem) and not described.is_unsupported:
        return _unread(partition, described, is_shown=info is not None)
    if isinstance(after, Problem):
        return _unread(partition, after, is_shown=info is not None)
    if before.leader_epoch != after.leader_epoch:
        why = f"the leader changed during the read (epoch {before.leader_epoch}, then {after.leader_epoch})"
        return PartitionReading(partition, Problem(why))
    return PartitionReading(
        partition=partition,
        problem=described if isinstance(described, Problem) else None,
        topic_id=metadata.topics[partition.topic].topic_id,
        leader=before.leader,
        leader_epoch=info.leader_epoch if info is not None else None,
        end_before=before.offset,
        end_after=after.offset,
        last_stable_offset=_offset(stable),
        high_watermark=after.offset,
        log_start_offset=_offset(start),
        producers=() if isinstance(described, Problem) else described,
    )


def _unread(partition: TopicPartition, problem: Problem, *, is_shown: bool) -> PartitionReading:
    if is_shown and problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:  # yet: the metadata has it
        return PartitionReading(partition, Problem("its leader does not have this partition"))
    return PartitionReading(partition, problem, is_absent=problem.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _offset(listed: ListedOffset | Problem) -> Offset | None:
    return None if isinstance(listed, Problem) else listed.offset


def _epoch_of(listed: ListedOffset | Problem) -> CoordinatorEpoch | Problem:
    if isinstance(listed, Problem):
        return listed
    epoch = listed.leader_epoch
    return Problem("the leader returned no leader epoch") if epoch is None else CoordinatorEpoch(epoch)


# Writes a marker (WriteTxnMarkers), which ends a transaction on one partition.


def _write_marker(cluster: Cluster, marker: MarkerSpec) -> Problem | NotSent | None:
    try:
        info = cluster.refresh().info(marker.partition)
        if info is None or info.leader is None:
            return NotSent(NO_LEADER.text)
        if marker.leader_epoch not in {None, info.leader_epoch}:
            return NotSent(f"the leader changed (epoch {marker.leader_epoch}, now {info.leader_epoch})")
        connection = cluster.node(info.leader)
        request = _write_marker_request(connection, marker)
    except BrokerError as exc:
        return NotSent(str(exc))
    try:
        response = cluster.call(connection, request)
        answer = the_one(the_one(the_one(response.markers).topics).partitions)
    except BrokerError as exc:
        return Problem.from_error(exc)
    return problem_of(answer.error_code)


def _write_marker_request(connection: Connection, marker: MarkerSpec) -> Any:
    """A request that writes one marker.

    TransactionVersion stays 0: a broker would refuse 2 with the epoch that DescribeProducers returns (KIP-1228).
    """
    version = connection.require_version(WriteTxnMarkersRequest, highest=1)
    writable = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        version=version,
        markers=[
            writable(
                version=version,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.commit,
                topics=[
                    writable.WritableTxnMarkerTopic(
                        version=version, name=marker.partition.topic, partition_indexes=[marker.partition.partition]
                    )
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ],
    )


# Fences a transactional id (InitProducerId): `txnwatch fence` sends it.


def init_producer_id(
    cluster: Cluster, transactional_id: str, timeout_ms: DurationMs, expected: ProducerIdentity | None
) -> Problem | None:
    """Sends InitProducerId to the coordinator of an id; the problem, or None if the coordinator accepts it.

    The id keeps the timeout only if `timeout_ms` is its own, because the request replaces it. With `expected` the
    coordinator refuses the request if the id has another producer id or epoch (KIP-360).
    """
    coordinator = _find_coordinators(cluster, [transactional_id])[transactional_id]
    if isinstance(coordinator, Problem):
        return coordinator
    try:
        connection = cluster.node(coordinator)
        request = InitProducerIdRequest(
            version=connection.require_version(InitProducerIdRequest, highest=4, lowest=3),
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1 if expected is None else expected.producer_id,
            producer_epoch=-1 if expected is None else expected.producer_epoch,
        )
        problem = problem_of(cluster.call(connection, request).error_code)
    except BrokerError as exc:
        return Problem.from_error(exc)
    return None if problem is None else problem.with_right("WRITE on the transactional id")


# One transactional id: what its coordinator answers, and the records that the coordinators' log has of it.

_TRIES = 3


class DescribedWithLog(NamedTuple):
    """A transactional id at its coordinator and in the log.

    Attributes:
        records: the records that the log still has, oldest first.
        problem: why the last record could not be read; None if it could.
        log: the partition of the log that has the id, by its hash; None if no broker shows the log.
    """

    described: DescribedTransaction
    records: Sequence[LogRecord]
    problem: str | None
    log: TopicPartition | None

    @property
    def last(self) -> LogRecord | None:
        """The last record."""
        return self.records[-1] if self.records else None


def described_with_log(cluster: Cluster, transactional_id: str) -> DescribedWithLog:
    """The id at its coordinator, and its records in the log.

    Raises:
        BrokerError: the coordinator did not answer, or does not know the id.
    """
    admin = ClusterAdmin(cluster)
    described = _known(admin.describe_transactions([transactional_id])[transactional_id])
    records: list[LogRecord] = []
    problem: str | None = None
    for _ in range(_TRIES):
        records, problem = read_records_anywhere(cluster, transactional_id)
        if problem is None and not records:
            problem = f"{TRANSACTION_STATE_TOPIC} has no record of this id"
        again = admin.describe_transactions([transactional_id])[transactional_id]
        if again == described or isinstance(again, NotDescribed):
            break
        described = _known(again)  # its state changed while the log was read
    log = log_of(cluster, transactional_id)
    if log is not None and records and records[-1].partition is not None:
        log = log_numbered(records[-1].partition)  # the log may have had another number of partitions
    return DescribedWithLog(described, records, problem, log)


def _known(described: TransactionDescription) -> DescribedTransaction:
    match described:
        case NotDescribed(transactional_id, problem):
            raise BrokerError(f"transactional id {cut(transactional_id)}: {problem}")
        case UnknownTransactionalId(transactional_id, coordinator):
            raise BrokerError(
                f"transactional id {cut(transactional_id)}: its coordinator, broker {coordinator}, does not know it: "
                "it never existed, or it expired (transactional.id.expiration.ms)"
            )
    return described
