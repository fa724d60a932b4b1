"""One bucket of producer ids through one batch: facts first, in log order, then the barrier.

A bucket (a hash of the producer id) is the unit Spark keys its state by: one state key per producer costs twice
the time (docs/decisions/0002). The bucket keeps an agenda of the producers that have something open or live, so
a barrier never walks the idle ones; at most one read and one write of the store per producer a batch touches.
Nothing here knows Spark: the store is a protocol, and the same code runs in the simulation and in one-shot
commands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from txnwatch.state.emitted import BucketCount, Emitted, OutstandingGap, PartitionAlarm
from txnwatch.state.facts import (
    Barrier,
    Fact,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.judge import Bench, due_ms, judge
from txnwatch.state.machine import ProducerFact, Step, apply, drop_below, drop_unseen, forget_unseen
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import ProducerState


class ProducerStore(Protocol):
    """Where producers are kept between batches."""

    def get(self, producer_id: int) -> ProducerState | None:
        """The producer as it was put last, or None."""

    def put(self, producer: ProducerState) -> None:
        """Keeps the producer."""


@dataclass(slots=True)
class BucketState:
    """What a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with something open or live -> when (our clock, ms) the next look is due.
        gaps, coordinator_gaps: lowest offset of an unread range, kept until a re-read from there.
        rereading: coordinator partitions whose re-read has begun and has not reached the listed end yet, with
            the gap it is for; until then they count as stale anyway.
        readings: how often a coordinator partition has been found truncated: records of a later reading win
            over those of an earlier one, whatever their offsets, of idle producer ids too.
        clock_offset_ms: the broker's clock minus ours, latest estimate.
        generation: the retention period the store was last turned to.
    """

    agenda: dict[int, int] = field(default_factory=dict)
    gaps: dict[TopicPartition, int] = field(default_factory=dict)
    coordinator_gaps: dict[int, int] = field(default_factory=dict)
    rereading: dict[int, int] = field(default_factory=dict)
    readings: dict[int, int] = field(default_factory=dict)
    clock_offset_ms: int = 0
    generation: int = -1


def process(
    bucket: BucketState,
    store: ProducerStore,
    facts: Iterable[Fact],
    policy: DetectionPolicy,
    *,
    speaks_for_partitions: bool,
) -> list[Emitted]:
    """Runs one batch of facts through a bucket, changing `bucket` and `store`; returns what there is to say.

    `speaks_for_partitions` is true for one bucket only: notices reach every bucket and are reported once.

    Raises:
        ValueError: the batch does not carry exactly one barrier fact.
    """
    batch = _Batch(facts)
    desk = _Desk(bucket, store)
    number = batch.barrier.number
    _begin_readings(bucket, batch)
    for fact in batch.for_awaited:
        for producer_id in list(bucket.agenda):
            desk.apply(producer_id, fact, number)
    _forget_unhealed(batch, desk)
    for seen in batch.for_one:
        desk.apply(seen.producer_id, _in_reading(seen, bucket), number)
    _note_gaps(bucket, batch, desk)
    if speaks_for_partitions:
        desk.emitted.extend(PartitionAlarm(notice) for notice in batch.notices)
    _judge_all(batch.barrier, desk, policy, speaks_for_partitions=speaks_for_partitions)
    desk.store_changes()
    return desk.emitted


class _Batch:
    """The facts of one batch, in the order they are applied: partition-wide first, then by log offset."""

    def __init__(self, facts: Iterable[Fact]) -> None:
        self.notices: list[PartitionNotice] = []
        gone: list[TransactionalIdGone] = []
        seen: list[ProducerSeen] = []
        transactions: list[TransactionSeen] = []
        barriers: list[Barrier] = []
        for fact in facts:
            match fact:
                case PartitionNotice():
                    self.notices.append(fact)
                case TransactionalIdGone():
                    gone.append(fact)
                case ProducerSeen():
                    seen.append(fact)
                case TransactionSeen():
                    transactions.append(fact)
                case Barrier():
                    barriers.append(fact)
        if len(barriers) != 1:
            raise ValueError(f"expected one barrier fact in a batch, found {len(barriers)}")
        self.barrier = barriers[0]
        self.seen = seen
        cut = {notice.partition for notice in self.notices if notice.kind is not NoticeKind.DELETED}
        self.healed = {at: stable for at, stable in self.barrier.healed.items() if at not in cut}
        self.for_awaited: tuple[PartitionNotice | TransactionalIdGone, ...] = (
            *(notice for notice in self.notices if notice.kind is not NoticeKind.GAP),
            *gone,
        )
        self.for_one: tuple[ProducerSeen | TransactionSeen, ...] = (
            *sorted(seen, key=lambda fact: (fact.partition, fact.range_start)),
            *sorted(transactions, key=lambda fact: (fact.view.log_partition, fact.view.log_offset)),
        )


class _Desk:
    """The producers taken out of the store for one batch; each is read once and written once."""

    def __init__(self, bucket: BucketState, store: ProducerStore) -> None:
        self.bucket = bucket
        self.emitted: list[Emitted] = []
        self._store = store
        self._stored: dict[int, ProducerState] = {}
        self.touched: dict[int, ProducerState] = {}

    def load(self, producer_id: int) -> ProducerState:
        if producer_id not in self.touched:
            found = self._store.get(producer_id) or ProducerState(producer_id)
            self._stored[producer_id] = self.touched[producer_id] = found
        return self.touched[producer_id]

    def take(self, step: Step) -> None:
        self.touched[step.producer.producer_id] = step.producer
        self.emitted.extend(step.emitted)

    def apply(self, producer_id: int, fact: ProducerFact, barrier_number: int) -> None:
        self.take(apply(self.load(producer_id), fact, barrier_number))

    def store_changes(self) -> None:
        for producer_id, producer in self.touched.items():
            if producer != self._stored[producer_id]:
                self._store.put(producer)


def _forget_unhealed(batch: _Batch, desk: _Desk) -> None:
    """A healing read is the whole truth: an open span that it neither shows nor closes is not in the log.

    The log may have been cut and have grown again since the span was read. What a limit keeps for a later batch is
    opened again then. A read that was itself cut short by a gap or a truncation heals nothing.
    """
    for partition in batch.healed:
        shown = {seen.producer_id: seen for seen in batch.seen if seen.partition == partition}
        for producer_id in list(desk.bucket.agenda):
            desk.take(drop_unseen(desk.load(producer_id), partition, shown.get(producer_id)))


def _begin_readings(bucket: BucketState, batch: _Batch) -> None:
    """What a truncated partition of the log shows from now on is another reading of it, this batch's included.

    So is a re-read from the beginning: what was read in the batch that told of the loss may be from before it.
    """
    for partition, start in batch.barrier.reread.items():
        log_partition = partition.partition
        is_log = partition.topic == TRANSACTION_STATE_TOPIC
        if is_log and start <= 0 and bucket.coordinator_gaps.get(log_partition) == FROM_BEGINNING:
            bucket.readings[log_partition] = bucket.readings.get(log_partition, 0) + 1
    for notice in batch.notices:
        log_partition = notice.partition.partition
        if notice.partition.topic == TRANSACTION_STATE_TOPIC and notice.kind is not NoticeKind.GAP:
            bucket.readings[log_partition] = bucket.readings.get(log_partition, 0) + 1


def _in_reading(seen: ProducerSeen | TransactionSeen, bucket: BucketState) -> ProducerSeen | TransactionSeen:
    if isinstance(seen, ProducerSeen):
        return seen
    reading = bucket.readings.get(seen.view.log_partition, 0)
    return replace(seen, view=replace(seen.view, reading=reading)) if reading else seen


FROM_LAST_STABLE = -1  # a gap that only a read from the last stable offset can close
CLOCK_STEP_MS = 1_000
FROM_BEGINNING = -1  # a coordinator partition that is read again as a new generation


def _note_gaps(bucket: BucketState, batch: _Batch, desk: _Desk) -> None:
    """Gaps that this batch closes go, then those it reports come: a re-read that failed again stays a gap."""
    for partition, start in batch.barrier.reread.items():
        if partition.topic == TRANSACTION_STATE_TOPIC:
            gap = bucket.coordinator_gaps.get(partition.partition)
            if gap is not None and start <= max(gap, 0):  # a wish may be older than the gap: then it does not reach it
                del bucket.coordinator_gaps[partition.partition]
                bucket.rereading[partition.partition] = min(gap, bucket.rereading.get(partition.partition, gap))
        elif start <= bucket.gaps.get(partition, start) and bucket.gaps.get(partition) != FROM_LAST_STABLE:
            bucket.gaps.pop(partition, None)
    for partition, stable in batch.healed.items():
        bucket.gaps.pop(partition, None)
        _drop_below(partition, stable, desk)
    gone = {(notice.partition, notice.topic_id) for notice in batch.notices if notice.kind is NoticeKind.DELETED}
    for partition, _ in gone:
        bucket.gaps.pop(partition, None)
    for notice in batch.notices:
        partition = notice.partition
        if (partition, notice.topic_id) in gone:
            continue  # a topic of the same name may have come since: its gaps are its own, whatever the order
        if partition.topic == TRANSACTION_STATE_TOPIC:
            wanted = notice.from_offset if notice.kind is NoticeKind.GAP else FROM_BEGINNING
            bucket.coordinator_gaps[partition.partition] = min(
                wanted, bucket.coordinator_gaps.get(partition.partition, wanted)
            )
        else:
            wanted = notice.from_offset if notice.kind is NoticeKind.GAP else FROM_LAST_STABLE
            bucket.gaps[partition] = min(wanted, bucket.gaps.get(partition, wanted))
    _finish_rereads(bucket, batch.barrier.stale_coordinator, desk)


def _finish_rereads(bucket: BucketState, stale_coordinator: Container[int], desk: _Desk) -> None:
    for log_partition, gap in list(bucket.rereading.items()):
        if log_partition in stale_coordinator or log_partition in bucket.coordinator_gaps:
            continue
        del bucket.rereading[log_partition]
        if gap == FROM_BEGINNING:
            for producer_id in list(bucket.agenda):
                reading = bucket.readings.get(log_partition, 0)
                desk.take(forget_unseen(desk.load(producer_id), log_partition, reading))


def _drop_below(partition: TopicPartition, stable: int, desk: _Desk) -> None:
    for producer_id in list(desk.bucket.agenda):
        desk.take(drop_below(desk.load(producer_id), partition, stable))


def _judge_all(barrier: Barrier, desk: _Desk, policy: DetectionPolicy, *, speaks_for_partitions: bool) -> None:
    bucket = desk.bucket
    clock_moved = _set_clock(bucket, barrier)
    bench = Bench(barrier, policy, bucket.gaps, bucket.coordinator_gaps, bucket.clock_offset_ms)
    due = {producer_id for producer_id, when in bucket.agenda.items() if clock_moved or when <= bench.now_ms}
    for producer_id in sorted(due | desk.touched.keys()):
        desk.take(judge(desk.load(producer_id), bench))
        producer = desk.touched[producer_id]
        if producer.is_awaited:
            bucket.agenda[producer_id] = due_ms(producer, bench)
        else:
            bucket.agenda.pop(producer_id, None)
    if speaks_for_partitions:
        desk.emitted.extend(_outstanding(bucket))
    desk.emitted.append(
        BucketCount(
            barrier=barrier.number,
            awaited=len(bucket.agenda),
            waiting=tuple(sorted(bench.waiting.items())),
            clock_offset_ms=bucket.clock_offset_ms,
        )
    )


def _set_clock(bucket: BucketState, barrier: Barrier) -> bool:
    """Takes a new estimate of the broker's clock; whether it moved so much that the agenda must be made anew.

    Estimates differ by as much as a trigger interval; following each would rewrite every bucket in every batch.
    """
    told = barrier.clock_offset_ms
    if told is None or abs(told - bucket.clock_offset_ms) < CLOCK_STEP_MS:
        return False
    bucket.clock_offset_ms = told
    return True


def _outstanding(bucket: BucketState) -> Iterable[OutstandingGap]:
    for partition, start in sorted(bucket.gaps.items()):
        yield OutstandingGap(partition, start)
    for log_partition, start in sorted(bucket.coordinator_gaps.items()):
        yield OutstandingGap(TopicPartition(TRANSACTION_STATE_TOPIC, log_partition), start)
