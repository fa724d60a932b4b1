"""The output alphabet: what the state says. The ledger decides what of it is told to anybody."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.broker_clocks import Clock
from txnwatch.state.model.completion_latency import Latencies
from txnwatch.state.model.facts import Joined, PartitionNotice
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import CoordinatorView, Marker, Span
from txnwatch.state.model.verdicts import Reason, Verdict


class SpanEnd(StrEnum):
    """How a span that was said came to its end."""

    MARKER = "marker"
    ABSORBED = "absorbed"  # by the marker of a later transaction of the same producer
    TRUNCATED = "truncated"
    CENSUS = "census"  # its leader has nothing open there any more; the marker was not seen
    PARTITION_GONE = "partition_gone"


@dataclass(frozen=True, slots=True)
class SpanCandidate:
    """A span proven to be hanging by two barriers; it is confirmed by a fresh read before anyone hears of it.

    `first_barrier` is the look that found it uncovered, `second_barrier` the one that found it still so.
    """

    verdict: Verdict
    reason: Reason
    producer_id: int
    partition: TopicPartition
    span: Span
    view: CoordinatorView | None
    first_barrier: int
    second_barrier: int
    data_listed_ms: int
    coordinator_listed_ms: int


@dataclass(frozen=True, slots=True)
class CoverInDoubt:
    """A span held by a transaction that is older than it should be: is it still, its coordinator is to be asked.

    If not, the log's last word on it is not the coordinator's, and the candidate is to be confirmed at two looks.
    """

    candidate: SpanCandidate


@dataclass(frozen=True, slots=True)
class OwnerInDoubt:
    """Open data of a producer id that the log, as far as it is read, does not name; a part of it is not read.

    Its owner may be named in that part, so the log proves nothing: the coordinators are to be asked, at two looks.
    """

    candidate: SpanCandidate


@dataclass(frozen=True, slots=True)
class TransactionCandidate:
    """A live transaction that a rule resting on time found worth telling.

    `age_ms` is how long it has been in its state, at least (broker_clocks.py); `overdue_ms` what of it is too much.
    """

    verdict: Verdict
    producer_id: int
    view: CoordinatorView
    spans: tuple[tuple[TopicPartition, int], ...]
    overdue_ms: int
    barrier: int
    coordinator_listed_ms: int
    age_ms: int


@dataclass(frozen=True, slots=True)
class SpanEnded:
    """A span that was said is no longer a candidate."""

    producer_id: int
    partition: TopicPartition
    span: Span
    how: SpanEnd
    marker: Marker | None


@dataclass(frozen=True, slots=True)
class TransactionMoved:
    """A transaction that was said has left the state it was said in; `view` is where it is now."""

    producer_id: int
    verdict: Verdict
    said_view: CoordinatorView
    view: CoordinatorView


@dataclass(frozen=True, slots=True)
class PartitionAlarm:
    """A notice about a partition, once per notice and not once per bucket."""

    notice: PartitionNotice


@dataclass(frozen=True, slots=True)
class OutstandingGap:
    """A range that is still unread; repeated at every barrier until a re-read closes it."""

    partition: TopicPartition
    from_offset: int


@dataclass(frozen=True, slots=True)
class LeftUnread:
    """Where reading of a partition stopped because a batch had read as much as it may; repeated until it goes on."""

    partition: TopicPartition
    from_offset: int


class CensusReason(StrEnum):
    """Why the producers of a partition should be described."""

    PROOF = "a proof needs another look"
    GAP = "what could not be read"
    FAILED = "the last census failed"
    HIDDEN = "a transaction names it, and it is not shown"
    STANDING = "its last stable offset stands"
    DOUBT = "its leader contradicts what was read"


@dataclass(frozen=True, slots=True)
class CensusWanted:
    """A partition whose producers should be described soon."""

    partition: TopicPartition
    why: CensusReason = CensusReason.PROOF


@dataclass(frozen=True, slots=True)
class LastStableStands:
    """A last stable offset that has not moved for a while, though data is written behind it: who holds it?"""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class CensusIncomplete:
    """After a census: the partitions whose leaders did not describe them, none if all did."""

    failed: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Unproven:
    """Partitions of which this barrier proves nothing: their leader told no end, or they are not read to it."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RequestsThrottled:
    """For how long brokers have throttled our reading, by the kind of request, since this was said last."""

    throttled_ms: tuple[tuple[str, int], ...]


class Mismatch(StrEnum):
    """What a census found to be otherwise than the log had told us."""

    OPEN = "open"  # open at its leader, unknown to us
    CLOSED = "closed"  # open to us, closed at its leader


@dataclass(frozen=True, slots=True)
class ViewHealed:
    """The view of a scanned partition was wrong and is right again: counted and shown, because it must not happen."""

    partition: TopicPartition
    producer_id: int
    start_offset: int
    mismatch: Mismatch


@dataclass(frozen=True, slots=True)
class StrayWrite:
    """Data that no transaction owned, taken in by a later transaction of its producer.

    `joined` says where, and how it was decided if the log already says so. `first_barrier` and
    `second_barrier` are those of the two looks where barriers have shown it, -1 where two epochs in one span did.
    """

    producer_id: int
    partition: TopicPartition
    topic_id: str
    joined: Joined
    view: CoordinatorView | None
    last_timestamp_ms: int
    first_seen_ms: int
    first_barrier: int = -1
    second_barrier: int = -1


@dataclass(frozen=True, slots=True)
class BucketCount:
    """What one bucket holds at a barrier.

    Attributes:
        awaited: producer ids with something open or live; `states` has them by state.
        waiting: looks that proved nothing, by why.
        behind: data partitions of the whole cluster that were listed and, by a limit, not read to their ends; a census
            tells what is open there.
        clocks: what is known of the brokers' clocks.
        oldest_open_ms, oldest_prepared_ms: since when, on our clock; -1 for none.
        due_ms: when, on our clock, the bucket has to look again if there are no facts before; 0 is at once.
    """

    barrier: int
    awaited: int
    waiting: tuple[tuple[str, int], ...]
    clocks: tuple[tuple[int, Clock], ...]
    data_listed_ms: int
    behind: int
    states: tuple[tuple[str, int], ...]
    oldest_open_ms: int
    oldest_prepared_ms: int
    due_ms: int


class OpenSpan(NamedTuple):
    """Open data on one partition."""

    partition: TopicPartition
    start_offset: int
    first_seen_ms: int


class OpenTransaction(NamedTuple):
    """One producer id with something open; times are our clock.

    Attributes:
        transactional_id: None while the coordinator's log has not named it.
        state: the transaction's, or `unowned` where data is open that no live transaction owns.
        since_ms: when it began, as far as is known.
        prepared_ms: when its outcome was decided, -1 if it was not.
    """

    producer_id: int
    transactional_id: str | None
    state: str
    since_ms: int
    prepared_ms: int
    spans: tuple[OpenSpan, ...]


@dataclass(frozen=True, slots=True)
class OpenTransactions:
    """The oldest of what one bucket has open for a while, all of it; told when it has changed.

    It is told again every 20 barriers (10 s at the default trigger), each bucket in its turn, because the driver may
    forget; and by whoever does not know what was told last, so at the first barrier after a start. A barrier without
    it says that what the bucket told last is still so: `Remembered` of open_transactions.py puts the whole together.
    """

    bucket: int
    transactions: tuple[OpenTransaction, ...]


@dataclass(frozen=True, slots=True)
class TransactionsEnded:
    """How long the transactions took that the coordinator's log has shown to end, summed."""

    latencies: tuple[Latencies, ...]


Emitted = (
    SpanCandidate
    | StrayWrite
    | CoverInDoubt
    | OwnerInDoubt
    | TransactionCandidate
    | SpanEnded
    | TransactionMoved
    | PartitionAlarm
    | OutstandingGap
    | LeftUnread
    | CensusWanted
    | LastStableStands
    | CensusIncomplete
    | Unproven
    | RequestsThrottled
    | ViewHealed
    | BucketCount
    | OpenTransactions
    | TransactionsEnded
)
