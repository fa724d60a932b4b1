"""Builders of facts, and a bucket to run them through: a value that a case does not set has a harmless default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_indexes import Agenda
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.reading import Reading
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.findings import (
    BucketCount,
    Finding,
    ListedOffsets,
    OpenTransaction,
    OpenTransactions,
    TransactionsEnded,
    Unproven,
)
from txnwatch.state.model.serializer import PartSerializer
from txnwatch.state.model.transaction import CoordinatorView, Marker, ProducerState, TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import decode_producer, decode_shared, encode_producer, encode_shared

ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 1)
TOPIC_IDS = {"orders": "orders-id", "payments": "payments-id"}
PRODUCER, OTHER = 7, 8
NAME = "checkout-1"
START_MS = 1_000_000
TIMEOUT_MS = 60_000


def a_marker(offset: int, *, epoch: int = 0, commit: bool = False, timestamp_ms: int = START_MS) -> Marker:
    return Marker(offset, epoch, commit, 0, timestamp_ms)


def seen(
    start: int,
    end: int,
    *,
    data: int | None = None,
    marker: Marker | None = None,
    data_after: int | None = None,
    epoch: int = 0,
    last_epoch: int | None = None,
    partition: TopicPartition = ORDERS,
    producer_id: int = PRODUCER,
    topic_id: str | None = None,
    first_marker: Marker | None = None,
    listed_ms: int = START_MS,
    last_timestamp_ms: int | None = START_MS,
) -> ProducerSeen:
    """A range [start, end) with data at `data`, then a marker, then data at `data_after`; each may be absent."""
    open_offset = data_after if marker is not None else data
    last_data = data_after if data_after is not None else data
    return ProducerSeen(
        partition=partition,
        topic_id=topic_id if topic_id is not None else TOPIC_IDS[partition.topic],
        producer_id=producer_id,
        range_start=start,
        range_end=end,
        first_offset=data,
        first_epoch=epoch if data is not None else None,
        first_marker=first_marker if first_marker is not None else marker,
        last_marker=marker,
        open_offset=open_offset,
        open_epoch=epoch if open_offset is not None else None,
        epoch=last_epoch if last_epoch is not None else (marker.producer_epoch if marker is not None else epoch),
        last_offset=last_data,
        last_timestamp_ms=last_timestamp_ms,
        listed_ms=listed_ms,
    )


def transaction(
    offset: int,
    state: TransactionState = TransactionState.ONGOING,
    *held: TopicPartition,
    producer_id: int = PRODUCER,
    **changes: Any,
) -> TransactionSeen:
    """The coordinator's record at `offset` of its log partition 0."""
    view = CoordinatorView(
        transactional_id=NAME,
        log_partition=0,
        log_offset=offset,
        state=state,
        producer_epoch=0,
        timeout_ms=TIMEOUT_MS,
        start_ms=START_MS,
        last_update_ms=START_MS,
        record_timestamp_ms=START_MS,
        participants=frozenset(held),
    )
    return TransactionSeen(producer_id, replace(view, **changes))


def gone(offset: int, transactional_id: str = NAME, log_partition: int = 0) -> TransactionalIdGone:
    return TransactionalIdGone(transactional_id, log_partition, offset)


def notice(
    kind: NoticeKind,
    start: int,
    *,
    partition: TopicPartition = ORDERS,
    topic_id: str | None = None,
    end: int = 10**6,
) -> PartitionNotice:
    known = topic_id if topic_id is not None else TOPIC_IDS.get(partition.topic, "")
    return PartitionNotice(kind, partition, known, start, end, "made by a test")


def log_notice(kind: NoticeKind, start: int, log_partition: int = 0) -> PartitionNotice:
    return notice(kind, start, partition=TopicPartition(TRANSACTION_STATE_TOPIC, log_partition))


def census(
    *open_at: int,
    below: int = 100,
    stable: int | None = None,
    scanned: bool = True,
    first: bool = False,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    partition: TopicPartition = ORDERS,
    topic_id: str | None = None,
    is_round: bool = False,
) -> list[Fact]:
    """A census of one partition that shows the producer's transaction open at `open_at`, or nothing open."""
    if stable is None:
        stable = min(open_at, default=below)
    known = topic_id if topic_id is not None else TOPIC_IDS[partition.topic]
    return [
        CensusTaken({partition: CensusListing(known, below, stable, scanned, first)}, is_round=is_round),
        *(OpenDescribed(partition, producer_id, epoch, start, START_MS, START_MS) for start in open_at),
    ]


class DictStore:
    """A ProducerStore that encodes and decodes, as the real one does."""

    def __init__(self) -> None:
        self.rows: dict[int, bytes] = {}
        self.reads = 0
        self.writes = 0

    def get(self, producer_id: int) -> ProducerState | None:
        self.reads += 1
        row = self.rows.get(producer_id)
        return decode_producer(row) if row is not None else None

    def put(self, producer: ProducerState) -> None:
        self.writes += 1
        self.rows[producer.producer_id] = encode_producer(producer)


_Listed = dict[int, OpenTransaction]
Whole = tuple[dict[int, int], _Listed, _Listed, dict[TopicPartition, Reading], dict[str, bytes]]
_WHOLE = PartSerializer[Whole](Whole)


def encode_bucket(bucket: BucketState) -> bytes:
    """All of a bucket that is stored."""
    return _WHOLE.encode((dict(bucket.agenda), bucket.followed, bucket.holding, bucket.readings, encode_shared(bucket)))


def decode_bucket(row: bytes) -> BucketState:
    """The bucket as one finds it who has not seen it before."""
    agenda, followed, holding, readings, shared = _WHOLE.decode(row)
    bucket = BucketState(agenda=Agenda(agenda), followed=followed, holding=holding, readings=readings)
    decode_shared(bucket, shared)
    bucket.forget_emitted()
    return bucket


@dataclass
class BucketRun:
    """One bucket over many batches, half a second apart; each batch has its barrier."""

    policy: DetectionPolicy = field(default_factory=DetectionPolicy)
    store: DictStore = field(default_factory=DictStore)
    number: int = 0
    now_ms: int = START_MS
    step_ms: int = 500
    _bucket: bytes = field(default_factory=lambda: encode_bucket(BucketState()))

    @property
    def bucket(self) -> BucketState:
        return decode_bucket(self._bucket)

    def batch(self, *facts: Fact, **exceptions: Any) -> list[Finding]:
        """Runs one batch and returns its findings, without those that every batch has."""
        self.number += 1
        self.now_ms += self.step_ms
        barrier = Barrier(self.number, self.now_ms - 1, self.now_ms, **exceptions)
        bucket = self.bucket
        emitted = process(bucket, self.store, [*facts, barrier], self.policy, reports_partitions=True)
        self._bucket = encode_bucket(bucket)
        self.everything = emitted
        self.counts = [finding for finding in emitted if isinstance(finding, BucketCount)]
        self.unproven = [finding for finding in emitted if isinstance(finding, Unproven)]
        self.followed = [
            one for finding in emitted if isinstance(finding, OpenTransactions) for one in finding.transactions
        ]
        self.ended = [one for finding in emitted if isinstance(finding, TransactionsEnded) for one in finding.latencies]
        figures = BucketCount | Unproven | OpenTransactions | ListedOffsets | TransactionsEnded
        return [finding for finding in emitted if not isinstance(finding, figures)]

    def pass_time(self, milliseconds: int) -> None:
        """Lets time pass without a batch."""
        self.now_ms += milliseconds

    def producer(self, producer_id: int = PRODUCER) -> ProducerState:
        return self.store.get(producer_id) or ProducerState(producer_id)


@dataclass
class Kept:
    """A bucket that stays in memory from batch to batch."""

    bucket: BucketState = field(default_factory=BucketState)
    store: DictStore = field(default_factory=DictStore)
    number: int = 0
    step_ms: int = 500

    def batch(self, *facts: Fact, **changes: Any) -> list[Finding]:
        self.number += 1
        now_ms = START_MS + self.step_ms * self.number
        barrier = Barrier(self.number, now_ms - 1, now_ms, **changes)
        return process(self.bucket, self.store, [*facts, barrier], DetectionPolicy(), reports_partitions=True)
