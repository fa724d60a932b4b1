"""The input alphabet: what can be observed. A fact is plain data about one range of one log, never a judgement.

A fact folded over a range says as much as all the batches of the range (fold.py proves it by a property test);
facts of one batch may arrive in any order and are sorted before they are applied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from txnwatch.state.ids import TopicPartition
from txnwatch.state.transaction import CoordinatorView, Marker


@dataclass(frozen=True, slots=True)
class ProducerSeen:
    """What one producer did transactionally on one partition in one read range [range_start, range_end).

    Attributes:
        first_offset: first transactional data before any marker of the range, or None.
        first_epoch: its producer epoch.
        first_marker, last_marker: the first and the last marker in the range.
        open_offset: first transactional data after the last marker, None if nothing is open at the end. Equals
            `first_offset` where the range has no marker.
        open_epoch: its producer epoch.
        epoch: the producer epoch at the end of the range.
        last_offset, last_timestamp_ms: of the last data batch in the range (-1 if it has markers only).
        listed_ms: our clock when the range's end had been listed.
    """

    partition: TopicPartition
    topic_id: str
    producer_id: int
    range_start: int
    range_end: int
    first_offset: int | None
    first_epoch: int
    first_marker: Marker | None
    last_marker: Marker | None
    open_offset: int | None
    open_epoch: int
    epoch: int
    last_offset: int
    last_timestamp_ms: int
    listed_ms: int


@dataclass(frozen=True, slots=True)
class TransactionSeen:
    """What the coordinator's log says about a producer id at the end of one read range.

    `view` is the state after the range, `superseded_by` set where the id's record names another producer id now
    (for the old one that record is the completion). A tombstone is not a fact about a producer id: see below.
    """

    producer_id: int
    view: CoordinatorView


@dataclass(frozen=True, slots=True)
class TransactionalIdGone:
    """A tombstone in the coordinator's log; it names no producer id, so every bucket gets it."""

    transactional_id: str
    log_partition: int
    log_offset: int


class NoticeKind(StrEnum):
    """What can happen to a partition as a whole."""

    GAP = "gap"
    LOST = "lost"
    TRUNCATED = "truncated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class PartitionNotice:
    """Something that concerns every producer of a partition; every bucket gets a copy.

    GAP: offsets [from_offset, to_offset) were listed and could not be read yet. LOST: they never can be, because
    retention or DeleteRecords took them first. TRUNCATED: what was read from `from_offset` on is no longer in
    the log. DELETED: the topic with this id is gone.
    """

    kind: NoticeKind
    partition: TopicPartition
    topic_id: str
    from_offset: int
    to_offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class Barrier:
    """One pair (D, T): every end of the data partitions was in hand before the first end of T was asked for.

    The exceptions say where the pair proves nothing.

    Attributes:
        stale_data, stale_coordinator: not answered this time, the old value is carried; for the coordinator's
            log also: not read to its listed end yet.
        limited_data: answered, but a limit made reading stop short of it.
        reread: ranges that went back, by the offset they began at; that closes an earlier gap there unless the
            same batch reports a new one.
        healed: partitions re-read from their last stable offset, by that offset: no open transaction of the
            leader begins below it.
        clock_offset_ms: broker clock minus ours, where this batch had fresh broker-stamped records.
    """

    number: int
    data_listed_ms: int
    coordinator_listed_ms: int
    stale_data: frozenset[TopicPartition] = frozenset()
    limited_data: frozenset[TopicPartition] = frozenset()
    stale_coordinator: frozenset[int] = frozenset()
    reread: dict[TopicPartition, int] = field(default_factory=dict)
    healed: dict[TopicPartition, int] = field(default_factory=dict)
    clock_offset_ms: int | None = None


Fact = ProducerSeen | TransactionSeen | TransactionalIdGone | PartitionNotice | Barrier
