"""The ports of the core: protocols for the outside world, and plain results. Each has one fake and one contract suite.

A result is never shorter than the request: an item that could not be read is present, with its problem. A missing item
would look like an idle producer, and so like a hang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from txnwatch.state.model.incident import ConnectUse, IncidentEvent, WaitingGroup
from txnwatch.state.model.transaction import ClosingMarker, Marker, SpanData, TransactionDescription, TransactionState
from txnwatch.state.model.values import (
    BrokerId,
    CoordinatorEpoch,
    DurationMs,
    ErrorCode,
    LeaderEpoch,
    Offset,
    Problem,
    ProducerEpoch,
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
)

# Brokers learn of a deletion one after the other, and each look asks another broker. A topic counts as deleted after
# this many absences in a row.
ABSENCES_OF_A_DELETED_TOPIC = 3
# The partition does not exist; a hidden one gives another error.
UNKNOWN_PARTITION = Problem("UNKNOWN_TOPIC_OR_PARTITION", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Log(Protocol):
    """Receives messages for the operator that are no incident events; `logging.Logger` is one."""

    def info(self, message: str, /) -> None:
        """Something changed as expected."""

    def warning(self, message: str, /) -> None:
        """Something needs attention."""


class ListedOffset(NamedTuple):
    """One partition's answer to ListOffsets.

    Attributes:
        leader_epoch: the epoch of the leader's log at `offset`; None if the leader did not return it.
        leader: the broker that answered.
        connection: see Leader in clocks.py; only the listing of the coordinators' log sets it.
    """

    offset: Offset
    leader_epoch: LeaderEpoch | None
    leader: BrokerId
    connection: str = ""


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers.

    Attributes:
        last_sequence: None if the leader knows no data batch of the producer.
        last_timestamp_ms: None if the last batch has no timestamp.
        coordinator_epoch: the epoch of the last marker; None if the leader knows no marker of the producer.
        txn_start_offset: None if the producer has no open transaction on the partition.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_sequence: int | None
    last_timestamp_ms: TimestampMs | None
    coordinator_epoch: CoordinatorEpoch | None
    txn_start_offset: Offset | None

    @property
    def start_offset(self) -> Offset:
        """Where the open transaction starts; only for a row that has one."""
        assert self.txn_start_offset is not None
        return self.txn_start_offset

    @property
    def data(self) -> SpanData:
        """What identifies the open data; only for a row that has some."""
        return SpanData(self.start_offset, self.producer_epoch, self.last_sequence, self.last_timestamp_ms)


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """The producers of a partition at its leader, read between two listings under one leader epoch.

    Attributes:
        problem: why the reading cannot be used, None if it is complete. If only the request for the producers is not
            supported, the offsets are there.
        is_absent: the metadata says that the partition does not exist. A hidden partition is not absent.
        end_before, end_after: ends listed before and after the producers were described.
        last_stable_offset, high_watermark, log_start_offset: None if the leader did not return it.
    """

    partition: TopicPartition
    problem: Problem | None = None
    topic_id: str = ""
    leader: BrokerId | None = None
    leader_epoch: LeaderEpoch | None = None
    end_before: Offset | None = None
    end_after: Offset | None = None
    last_stable_offset: Offset | None = None
    high_watermark: Offset | None = None
    log_start_offset: Offset | None = None
    producers: tuple[ActiveProducer, ...] = ()
    is_absent: bool = False
    _open: Mapping[ProducerId, ActiveProducer] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_open = (row for row in reversed(self.producers) if row.txn_start_offset is not None)
        object.__setattr__(self, "_open", {row.producer_id: row for row in is_open})  # of equal ids the first counts

    def open_transaction(self, producer_id: ProducerId) -> ActiveProducer | None:
        """The producer's open transaction on the partition, None if it has none."""
        return self._open.get(producer_id)


class ListedTransaction(NamedTuple):
    """One row of ListTransactions."""

    transactional_id: str
    producer_id: ProducerId
    state: TransactionState
    coordinator: BrokerId


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """ListTransactions over the whole cluster. It proves absence only if `problems` is empty.

    Attributes:
        problems: what is missing, and why.
        silent: the entries of `problems` about brokers without an answer, or about a coordinators' log that is not
            shown: then another broker may be the coordinator of any id.
        has_ids: whether a transactional id can exist at all. If not, and without open data, a cluster without a
            coordinators' log is only one in which no transaction has begun yet.
        log_partitions: how many partitions the coordinators' log has; None if this is not known.
    """

    transactions: tuple[ListedTransaction, ...]
    problems: tuple[Problem, ...] = ()
    silent: tuple[Problem, ...] = ()
    has_ids: bool = True
    log_partitions: int | None = None
    _rows: Mapping[ProducerId, list[ListedTransaction]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rows: dict[ProducerId, list[ListedTransaction]] = {}
        for row in self.transactions:
            rows.setdefault(row.producer_id, []).append(row)
        object.__setattr__(self, "_rows", rows)

    def of_producer(self, producer_id: ProducerId) -> Sequence[ListedTransaction]:
        """The ids that have a producer id."""
        return self._rows.get(producer_id, ())


class MarkerSpec(NamedTuple):
    """A marker to write to one partition, as an administrator can (WriteTxnMarkers).

    With a leader epoch, the marker is written only under that epoch: a later leader may have lost a later marker, and
    then the same epoch is open on data that nobody has checked. None writes under any leader epoch.
    """

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    coordinator_epoch: CoordinatorEpoch
    commit: bool = False
    leader_epoch: LeaderEpoch | None = None


class NotSent(NamedTuple):
    """Why a marker was not sent: no broker has the request, so it can have no effect."""

    why: str


class SpanHistory(NamedTuple):
    """What a partition's log shows about the start of an open span and about the data below it.

    Attributes:
        start_epoch: producer epoch of its first batch; None if the batch is gone or could not be read.
        last_marker: the producer's last marker below the span, if nothing between the two is missing.
        is_first: whether the log is complete from offset 0 on and has no marker of the producer.
        problem: why it could not be read now, or not to its end; None if the log has given all it has.
        is_being_read: the read has made progress and continues with the next call.
    """

    start_epoch: ProducerEpoch | None = None
    last_marker: Marker | None = None
    is_first: bool = False
    problem: str | None = None
    is_being_read: bool = False


NOT_ASKED = SpanHistory(problem="its partition's log was not read")
BEING_READ = SpanHistory(problem="its partition's log is being read; the next read continues there", is_being_read=True)


class TransactionAdmin(Protocol):
    """Fresh reads of partitions and coordinators, and the one write: a marker, as an administrator can write it."""

    def within(self, budget_ms: DurationMs) -> AbstractContextManager[None]:
        """Limits the time of all requests inside; what does not fit is returned as a problem."""

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        """Describes the producers of each partition, between two listings."""

    def read_span_histories(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanHistory]:
        """Reads the first batch of each open span, and the log below it, all spans in parallel.

        A span that does not fit into the time budget is BEING_READ; the next call continues there.
        """

    def closing_marker(self, span: SpanStart, from_offset: Offset) -> ClosingMarker | None:
        """The marker that closed a span: the producer's first at or after its start and `from_offset`.

        Its `data_epoch` is of the data from there on that this marker closed.

        `from_offset` is an end listed while the span was open, or a lower offset. The result is None if there is no
        marker, it cannot be read, or it is not within the first 1,000,000 offsets.
        """

    def log_epochs(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, CoordinatorEpoch | Problem]:
        """The leader epoch under which each partition of `__transaction_state` lists its end now."""

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Asks the coordinator of each id."""

    def list_transactions(self, producer_ids: Iterable[ProducerId]) -> TransactionListing:
        """Asks every broker for the transactions of some producer ids."""

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str]:
        """`cleanup.policy` of each topic; a topic that could not be read is missing, as it is only a detail."""

    def write_marker(self, marker: MarkerSpec) -> Problem | NotSent | None:
        """Writes a marker; returns the problem, or None. None does not prove that a transaction was open.

        After a problem the marker may have been written. It was not written if the answer is NotSent.
        """


class GroupOffset(NamedTuple):
    """The committed offset of a consumer group on a partition; None if a member has it and nothing was committed.

    `has_members` is whether the group has members now. `is_floor` is whether the group may have read beyond this
    offset.
    """

    group_id: str
    committed_offset: Offset | None
    has_members: bool
    is_floor: bool = False


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Committed offsets of all groups, and the groups that are assigned a partition and have committed none of it.

    Attributes:
        problems: why groups may be missing: one entry per broker or reason, not one per group.
        unassigned: groups without a committed offset on some of the partitions, of which it is not known now what their
            members are assigned: they rebalance, or they also read a topic that is hidden.
        connect: by topic, what Kafka Connect keeps in it.
    """

    offsets: Mapping[TopicPartition, tuple[GroupOffset, ...]]
    problems: tuple[str, ...] = ()
    unassigned: tuple[str, ...] = ()
    connect: Mapping[str, ConnectUse] = field(default_factory=dict)


class WaitingGroups(NamedTuple):
    """The groups that wait for offsets that are pending in open transactions on `__consumer_offsets`.

    Attributes:
        groups: by span; a span that could not be read is missing.
        problems: why groups may be missing; one entry per reason.
    """

    groups: Mapping[SpanStart, tuple[WaitingGroup, ...]]
    problems: tuple[str, ...] = ()


class ConsumerGroups(Protocol):
    """Reads the committed offsets of consumer groups."""

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """Asks every broker for the groups that it coordinates, and for their offsets on some partitions.

        A group with members that has committed nothing of a partition is returned if the partition is assigned to it.
        """

    def waiting(self, spans: Iterable[SpanStart]) -> WaitingGroups:
        """Reads the pending offsets of open spans on `__consumer_offsets`, and asks the coordinators of their groups.

        A group is returned only if its coordinator refuses to return a committed offset because it is pending.
        """


class LeaseView(StrEnum):
    """What an instance knows of the lease, by the last answer of the group's coordinator."""

    HELD = "this instance has it"
    ANOTHERS = "another member of the group has it, or gets it now"
    UNKNOWN = "the coordinator does not answer"


class Lease(Protocol):
    """Decides which of several instances speaks and acts. An instance without an answer does not hold the lease.

    `problem` is why this instance cannot ask for it; None if it can. `losses` is how often this instance has lost it:
    it may have it again without ever having seen itself without it.
    """

    problem: str | None
    losses: int

    def view(self) -> LeaseView:
        """Who has it, as far as this instance knows; often without a request, so it may be called many times."""

    def is_held_now(self) -> bool:
        """Whether this instance has it, by a request to the group's coordinator at this moment."""

    def close(self) -> None:
        """Releases the lease, so that another instance can hold it."""


class EventsTopicWriter(Protocol):
    """Writes the events topic. An event is published once the topic has it; the ledger reads the topic back."""

    @property
    def name(self) -> str:
        """The name of the topic in messages and metrics."""

    def publish(self, events: Sequence[IncidentEvent]) -> None:
        """Writes events in order. For the caller it is all of them or none; writing them twice does no harm.

        Raises:
            SinkError: it is not certain that all arrived; the same events will be written again.
        """


class Mirror(Protocol):
    """A copy of the events for other programs. It gets an event only after the event is on the events topic."""

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """Delivers events in order. For the caller it is all of them or none; delivering them twice does no harm.

        Raises:
            SinkError: it is not certain that all arrived; the same events will be delivered again.
        """


class OpenIncidentsView(Protocol):
    """What a mirror offers in addition if it shows the open incidents, and can lose them."""

    def has_lost_everything(self) -> bool:
        """Whether earlier deliveries are gone; true once per loss, and False if this cannot be checked now."""

    def forget(self, has_ended: Callable[[str], bool]) -> None:
        """Removes incidents that are shown as open because the mirror missed their end; does nothing if it cannot now.

        `has_ended` decides by incident id whether the incident ended long ago.
        """


# The port of the search for transactional ids that have expired; the other ports are above.


class LeaderStamp(NamedTuple):
    """The leader of a partition of the coordinators' log, and the oldest stamp that it has written there as leader."""

    broker: BrokerId
    stamp_ms: TimestampMs


class FormerOwnersRead(NamedTuple):
    """What the coordinators' log shows about the transactional ids of some producer ids.

    Attributes:
        names: the transactional id by producer id; None if the log has no record of it, or records of several ids. A
            producer id that is missing here is being read, and the next call continues; or there is a problem.
        problem: why the log could not be read to its end; None if it could be, or if the read is not finished.
    """

    names: Mapping[ProducerId, str | None]
    problem: str | None = None


class FormerOwners(Protocol):
    """Searches the coordinators' log for transactional ids that no coordinator has any more."""

    def read(self, producer_ids: Collection[ProducerId]) -> FormerOwnersRead:
        """Reads the whole log once for some producer ids, as far as the time budget allows."""
