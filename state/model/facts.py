"""The input alphabet: what can be observed. A fact is plain data about one range of one log, never a judgement.

A fact folded over a range says as much as all the batches of the range (fold.py proves it by a property test);
facts of one batch may arrive in any order and are sorted before they are applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.model.broker_clocks import Clock, Leader
from txnwatch.state.model.completion_latency import End, Latencies
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import CoordinatorView, Marker


class Joined(NamedTuple):
    """Data that joined an open transaction of an older epoch: the older one had ended without its marker here.

    A newer epoch is handed out only after every marker of the older one was written (or, since KIP-890, a new
    transaction begins only then), so what was still open belongs to no transaction any more (for the leader an
    epoch bump closes nothing, and the next marker closes both). `marker` is that marker, if the same range has it.
    """

    start_offset: int
    start_epoch: int
    offset: int
    epoch: int
    marker: Marker | None = None


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
        joined: the first data in the range that joined an older epoch's open data, both in the range.
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
    joined: Joined | None = None


@dataclass(frozen=True, slots=True)
class TransactionSeen:
    """What the coordinator's log says about a producer id at the end of one read range.

    `view` is the state after the range, `superseded_by` set where the id's record names another producer id now
    (for the old one that record is the completion). A tombstone is not a fact about a producer id: see below.

    Attributes:
        held: partitions that a live transaction held somewhere in the range.
        ended: how long the transactions took that were prepared and completed within the range.
        first_end: the Complete* record that ends what was prepared before the range, if it has one.
        is_past: it was idle before reading of its log began, or began anew: of use only for who is awaited.
    """

    producer_id: int
    view: CoordinatorView
    held: frozenset[TopicPartition] = frozenset()
    ended: tuple[Latencies, ...] = ()
    first_end: End | None = None
    is_past: bool = False


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
    HIDDEN = "hidden"
    LEFT = "left"


READ_LATER = frozenset({NoticeKind.GAP, NoticeKind.LEFT})
KEEPS_WHAT_IS_KNOWN = READ_LATER | {NoticeKind.HIDDEN}  # what was read before stays true
CANNOT_DECODE = "cannot decode"  # how the detail of such a notice begins


@dataclass(frozen=True, slots=True)
class PartitionNotice:
    """Something that concerns every producer of a partition; every bucket gets a copy.

    GAP: offsets [from_offset, to_offset) were listed and could not be read yet. LOST: they never can be, because
    retention or DeleteRecords took them first. TRUNCATED: what was read from `from_offset` on is no longer in
    the log. DELETED: the topic with this id is gone. LEFT: offsets [from_offset, to_offset) were listed and wait for
    the next batch, because this one had read as much as it may; no failure. HIDDEN: a transaction has the partition,
    and its topic is not shown to us.
    """

    kind: NoticeKind
    partition: TopicPartition
    topic_id: str
    from_offset: int
    to_offset: int
    detail: str

    @property
    def is_decode_failure(self) -> bool:
        """Whether bytes were read that we cannot decode."""
        return self.detail.startswith(CANNOT_DECODE)


class Bracket(NamedTuple):
    """One partition in a census: its leader described its producers between two listings under one epoch.

    Attributes:
        below: the census speaks of transactions that begin below this end, listed before.
        stable: the leader's last stable offset, listed after; -1 if it did not say. A marker above the high
            watermark has ended its transaction in the leader's memory, and could still be lost; not below this.
        is_scanned: the partition's log is read as well, and was read to `below` when the census was taken.
        is_first: reading of the partition began in the same batch; what is found was open before we looked.
        is_behind: the log is read as well, but had not been read to `below`: then the census is the reading for now.
    """

    topic_id: str
    below: int
    stable: int
    is_scanned: bool
    is_first: bool = False
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class CensusTaken:
    """Partitions described while a batch was read; every bucket gets a copy, each with its own open transactions.

    A census is an observation, not part of the log: a replay of the batch may lack it, or see a later moment. It is
    later than everything the batch has listed and read, so it is judged at later barriers only.

    Attributes:
        failed: partitions that were asked and did not answer, or not under one leader epoch.
        failed_scanned: those of them whose log is read as well: no round of the census asks for them again.
        is_round: every partition that is watched by census was asked; one that is in neither is gone.
    """

    taken: Mapping[TopicPartition, Bracket]
    failed: frozenset[TopicPartition] = frozenset()
    is_round: bool = False
    failed_scanned: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class OpenDescribed:
    """A transaction that DescribeProducers shows as open on a partition of a census in the same batch.

    Attributes:
        listed_ms: our clock when the ends of the batch were listed. Who describes has a clock of its own.
    """

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp_ms: int
    listed_ms: int


@dataclass(frozen=True, slots=True)
class LastStable:
    """A leader's last stable offset, below the end that was read: something is open there. For one bucket."""

    partition: TopicPartition
    topic_id: str
    offset: int


@dataclass(frozen=True, slots=True)
class Throttled:
    """For how long brokers have throttled a reader of ours, by the kind of request; nothing rests on it."""

    throttled_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LogRead:
    """What tasks that do not bring the barrier have found of the coordinators' log; it belongs to the barrier.

    Attributes:
        holes, clocks: as those of the Barrier, of the partitions that the task has read.
    """

    holes: Mapping[int, int]
    clocks: Mapping[int, Clock]


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
        risen: data partitions whose leader epoch has risen since the last pair: what a census has not shown may be
            in a log again that an election has cut where it was not read yet.
        leaders: who leads the partitions of the coordinator's log that were listed.
        clocks: what this batch's records tell of the brokers' clocks.
        scan_interval_ms: how often coordinators look for expired transactions, None where no broker has said.
        holes: partitions of the coordinator's log of which this batch's ranges lack offsets, by where the last hole
            ended; compaction has been there.
        has_coordinator_log: whether a broker has shown the coordinator's log at all. Without it there is no T: a new
            cluster has none yet, but one that is hidden, or deleted, looks the same.
    """

    number: int
    data_listed_ms: int
    coordinator_listed_ms: int
    stale_data: frozenset[TopicPartition] = frozenset()
    limited_data: frozenset[TopicPartition] = frozenset()
    stale_coordinator: frozenset[int] = frozenset()
    reread: dict[TopicPartition, int] = field(default_factory=dict)
    risen: frozenset[TopicPartition] = frozenset()
    leaders: Mapping[int, Leader] = field(default_factory=dict)
    clocks: Mapping[int, Clock] = field(default_factory=dict)
    scan_interval_ms: int | None = None
    holes: dict[int, int] = field(default_factory=dict)
    has_coordinator_log: bool = True


Fact = (
    ProducerSeen
    | TransactionSeen
    | TransactionalIdGone
    | PartitionNotice
    | CensusTaken
    | OpenDescribed
    | LastStable
    | Throttled
    | LogRead
    | Barrier
)
