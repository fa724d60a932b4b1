"""What the core asks of the outside, as protocols and plain answers; each has one fake and one contract suite.

An answer is never shorter than the question: what could not be learned is there, with the problem in it. A short
list would look like an idle producer, and so like a hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.transaction import UNREAD, Marker, TransactionState

# Brokers learn of changes one after the other, and each look asks another: so many in a row make a topic gone.
ABSENCES_OF_A_DELETED_TOPIC = 3
UNKNOWN_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"  # a broker says that there is none; to be hidden is another answer


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers; `txn_start_offset` and `coordinator_epoch` are -1 for none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    txn_start_offset: int


@dataclass(frozen=True, slots=True)
class PartitionReading:
    """A leader's producers, enclosed by two listings under one leader epoch.

    Attributes:
        problem: why the reading is worth nothing, None if it is whole.
        end_before, end_after: ends listed before and after the producers were described.
        last_stable_offset, high_watermark, log_start_offset: -1 where the leader did not say.
    """

    partition: TopicPartition
    problem: str | None = None
    topic_id: str = ""
    leader: int = -1
    leader_epoch: int = -1
    end_before: int = -1
    end_after: int = -1
    last_stable_offset: int = -1
    high_watermark: int = -1
    log_start_offset: int = -1
    producers: tuple[ActiveProducer, ...] = ()

    def open_transaction(self, producer_id: int) -> ActiveProducer | None:
        """The producer's open transaction on the partition, None if it has none."""
        return next(
            (row for row in self.producers if row.producer_id == producer_id and row.txn_start_offset >= 0), None
        )


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """DescribeTransactions of one id. `state` None means the coordinator does not know the id.

    `partitions` are those that still lack their marker, once the state is Prepare*.
    """

    transactional_id: str
    problem: str | None = None
    state: TransactionState | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    timeout_ms: int = -1
    start_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    coordinator: int = -1

    @property
    def is_live(self) -> bool:
        """Whether the coordinator still owes markers; it does in the moment it fences a transaction, too."""
        return self.state is not None and (self.state.is_live or self.state is TransactionState.PREPARE_EPOCH_FENCE)


class ListedTransaction(NamedTuple):
    """One row of ListTransactions."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """ListTransactions over the whole cluster. It proves absence only if `problems` is empty.

    Attributes:
        problems: what is missing of it, and why.
        silent: those of the problems that are brokers without an answer, or a log of the coordinators that is not
            shown: then another broker may be the coordinator of any id.
        has_ids: whether there may be a transactional id at all. Without one, and without open data, a cluster that
            has no log is merely one in which no transaction was ever begun.
    """

    transactions: tuple[ListedTransaction, ...]
    problems: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    has_ids: bool = True


class MarkerSpec(NamedTuple):
    """One marker an administrator writes to one partition.

    With a leader epoch it is written under that one only: a replica that leads since may have lost a later marker,
    and then the same epoch is open on data that nobody has looked at. -1 writes under any.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool = False
    leader_epoch: int = -1


class SpanStart(NamedTuple):
    """An open span, by where it begins."""

    partition: TopicPartition
    producer_id: int
    start_offset: int


class SpanPast(NamedTuple):
    """What a partition's log tells of an open span and of what lies below it.

    Attributes:
        start_epoch: producer epoch of its first batch; UNREAD where that is not there, or could not be read.
        last_marker: the producer's last marker below it, if nothing that lay between the two is missing.
        is_first: whether the log is there from offset 0 on, whole, and the producer has no marker in it.
        problem: why it could not be read now, or not to its end; None where the log has told all that it has.
    """

    start_epoch: int = UNREAD
    last_marker: Marker | None = None
    is_first: bool = False
    problem: str | None = None


NOT_ASKED = SpanPast(problem="its partition's log was not asked")
STILL_READING = "its partition's log is being read, the rest comes next time"


class TransactionAdmin(Protocol):
    """Fresh reads of both views, and the one write an administrator can make."""

    def within(self, budget_ms: int) -> AbstractContextManager[None]:
        """Bounds everything asked inside; what did not fit comes back as a problem."""

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        """Describes each partition's producers, enclosed by listings."""

    def read_pasts(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanPast]:
        """Reads the batch each open span begins with, and below it, side by side.

        What does not fit into the time budget is STILL_READING; asked for again, it goes on from there.
        """

    def closing_marker(
        self, partition: TopicPartition, producer_id: int, start_offset: int, from_offset: int
    ) -> Marker | None:
        """The marker that closed the span that began at `start_offset`: the producer's first at or above `from_offset`.

        That is an end listed while the span was open, or what lies below. None where none is there, it cannot be
        read, or it is not among the first 1,000,000 offsets.
        """

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Asks each id's coordinator."""

    def list_transactions(self, producer_ids: Iterable[int]) -> TransactionListing:
        """Asks every broker for the transactions of some producer ids."""

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str]:
        """Each topic's `cleanup.policy`; a topic that could not be asked is missing, it is only a detail."""

    def write_marker(self, marker: MarkerSpec) -> str | None:
        """Writes a marker; returns the error, or None for none, which does not prove that anything was open."""


class GroupOffset(NamedTuple):
    """What a consumer group has committed of one partition.

    `has_members` is whether anybody has joined it now. `is_floor` is whether the group may have read farther than this.
    """

    group_id: str
    committed_offset: int
    has_members: bool
    is_floor: bool = False


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Committed offsets of all groups. Whole only if `problems` is empty; a group that has committed none is left out.

    `problems` are few: one for each broker or reason, not one for each group.
    """

    offsets: Mapping[TopicPartition, tuple[GroupOffset, ...]]
    problems: tuple[str, ...] = ()


class ConsumerGroups(Protocol):
    """What consumer groups have committed."""

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """Asks every broker for the groups it coordinates, and for their offsets of some partitions."""


class Lease(Protocol):
    """Which of several instances acts. Whoever cannot tell does not hold it."""

    def is_held(self) -> bool:
        """Whether this instance may act, as far as it knows without asking; called once a batch."""

    def is_held_now(self) -> bool:
        """The same, asked of the group's coordinator at this moment."""

    def close(self) -> None:
        """Lets another instance have it."""


class EventSink(Protocol):
    """Where incidents are told. Delivering the same event twice must leave the sink as delivering it once."""

    @property
    def name(self) -> str:
        """For messages and metrics."""

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        """Delivers events in order, all or none as far as the caller can tell.

        Raises:
            SinkError: it is not known that all arrived; the same events will be delivered again.
        """

    def has_lost_everything(self) -> bool:
        """Whether what was delivered before is gone; true once each time, and False where it cannot be known now."""

    def forget(self, is_past: Callable[[str], bool]) -> None:
        """Shows no incident as open any more that ended long ago, by its id, and whose end it missed; if it can now."""

    def close(self) -> None:
        """Lets go of connections."""
