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
from typing import NamedTuple, Protocol

from txnwatch.state.batch import Batch
from txnwatch.state.census import described_open, not_described
from txnwatch.state.emitted import (
    BucketCount,
    CensusIncomplete,
    CensusWanted,
    Emitted,
    OutstandingGap,
    PartitionAlarm,
    SpanEnd,
    StrayWrite,
)
from txnwatch.state.facts import (
    Barrier,
    Fact,
    NoticeKind,
)
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.judge import Bench, due_ms, judge
from txnwatch.state.machine import ProducerFact, Step, apply, forget_unseen, without
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import ProducerState


class ProducerStore(Protocol):
    """Where producers are kept between batches."""

    def get(self, producer_id: int) -> ProducerState | None:
        """The producer as it was put last, or None."""

    def put(self, producer: ProducerState) -> None:
        """Keeps the producer."""


class Standing(NamedTuple):
    """A last stable offset, and since when (our clock) it has been the same; `seen_ms` is when it was told last."""

    offset: int
    since_ms: int
    seen_ms: int


@dataclass(slots=True)
class BucketState:
    """What a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with something open or live -> when (our clock, ms) the next look is due.
        gaps, coordinator_gaps: lowest offset of an unread range, kept until a re-read from there, or NEEDS_CENSUS.
        standing: last stable offsets below their partition's end, in the one bucket that speaks for partitions.
        rereading: coordinator partitions whose re-read has begun and has not reached the listed end yet, with
            the gap it is for; until then they count as stale anyway.
        clock_offset_ms: the broker's clock minus ours, latest estimate.
        generation: the retention period the store was last turned to.
    """

    agenda: dict[int, int] = field(default_factory=dict)
    gaps: dict[TopicPartition, int] = field(default_factory=dict)
    standing: dict[TopicPartition, Standing] = field(default_factory=dict)
    coordinator_gaps: dict[int, int] = field(default_factory=dict)
    rereading: dict[int, int] = field(default_factory=dict)
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
    batch = Batch(facts)
    desk = _Desk(bucket, store)
    number = batch.barrier.number
    for fact in batch.for_awaited:
        for producer_id in list(bucket.agenda):
            desk.apply(producer_id, fact, number)
    for seen in batch.for_one:
        desk.apply(seen.producer_id, seen, number)
    desk.name_strays()
    _note_gaps(bucket, batch, desk)
    _take_census(batch, desk)
    if speaks_for_partitions:
        desk.emitted.extend(PartitionAlarm(notice) for notice in batch.notices)
        desk.emitted.extend(_standing_still(bucket, batch, policy))
        desk.emitted.extend(_incomplete(batch))
    _judge_all(batch.barrier, desk, policy, speaks_for_partitions=speaks_for_partitions)
    desk.store_changes()
    return desk.emitted


class _Desk:
    """The producers taken out of the store for one batch; each is read once and written once."""

    def __init__(self, bucket: BucketState, store: ProducerStore) -> None:
        self.bucket = bucket
        self.emitted: list[Emitted] = []
        self._store = store
        self._stored: dict[int, ProducerState] = {}
        self.touched: dict[int, ProducerState] = {}

    @property
    def awaited(self) -> list[int]:
        """Every producer id that may have something open."""
        return sorted(self.bucket.agenda.keys() | self.touched.keys())

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

    def name_strays(self) -> None:
        """The data of a batch is applied before the coordinator's records, which say whose it is."""
        self.emitted = [
            replace(said, view=self.touched[said.producer_id].view)
            if isinstance(said, StrayWrite) and said.view is None
            else said
            for said in self.emitted
        ]

    def store_changes(self) -> None:
        for producer_id, producer in self.touched.items():
            if producer != self._stored[producer_id]:
                self._store.put(producer)


NEEDS_CENSUS = -1  # a gap that no reading can close, only the leader's own word on what is open
CLOCK_STEP_MS = 1_000
FROM_BEGINNING = -1  # a coordinator partition that is read again as a new generation


def _note_gaps(bucket: BucketState, batch: Batch, desk: _Desk) -> None:
    """Gaps that this batch closes go, then those it reports come: a re-read that failed again stays a gap."""
    for partition, start in batch.barrier.reread.items():
        if partition.topic == TRANSACTION_STATE_TOPIC:
            gap = bucket.coordinator_gaps.pop(partition.partition, None)
            if gap is not None:
                bucket.rereading[partition.partition] = min(gap, bucket.rereading.get(partition.partition, gap))
        elif start <= bucket.gaps.get(partition, start) and bucket.gaps.get(partition) != NEEDS_CENSUS:
            bucket.gaps.pop(partition, None)
    for partition, bracket in batch.brackets():
        if bracket.is_scanned and bucket.gaps.get(partition) == NEEDS_CENSUS:
            del bucket.gaps[partition]
    for notice in batch.notices:
        partition = notice.partition
        if notice.kind is NoticeKind.DELETED:
            bucket.gaps.pop(partition, None)
        elif partition.topic == TRANSACTION_STATE_TOPIC:
            wanted = notice.from_offset if notice.kind is NoticeKind.GAP else FROM_BEGINNING
            bucket.coordinator_gaps[partition.partition] = min(
                wanted, bucket.coordinator_gaps.get(partition.partition, wanted)
            )
        else:
            wanted = notice.from_offset if notice.kind is NoticeKind.GAP else NEEDS_CENSUS
            bucket.gaps[partition] = min(wanted, bucket.gaps.get(partition, wanted))
    _finish_rereads(bucket, batch.barrier.stale_coordinator, desk)


def _finish_rereads(bucket: BucketState, stale_coordinator: Container[int], desk: _Desk) -> None:
    for log_partition, gap in list(bucket.rereading.items()):
        if log_partition in stale_coordinator or log_partition in bucket.coordinator_gaps:
            continue
        del bucket.rereading[log_partition]
        if gap == FROM_BEGINNING:
            for producer_id in list(bucket.agenda):
                desk.take(forget_unseen(desk.load(producer_id), log_partition))


def _take_census(batch: Batch, desk: _Desk) -> None:
    """What the batch's census shows as open is opened; what it should show and does not is over."""
    brackets = dict(batch.brackets())
    if not brackets and not batch.censuses:
        return
    number = batch.barrier.number
    shown: set[tuple[int, TopicPartition]] = set()
    for fact in batch.described:
        bracket = brackets.get(fact.partition)
        if bracket is not None and fact.start_offset < bracket.below:
            shown.add((fact.producer_id, fact.partition))
            desk.take(described_open(desk.load(fact.producer_id), fact, bracket, number))
    known = batch.known_to_round()
    for producer_id in desk.awaited:
        for partition, span in desk.load(producer_id).spans.items():
            bracket = brackets.get(partition)
            if bracket is None:
                if span.by_census and known is not None and partition not in known:
                    desk.take(without(desk.load(producer_id), partition, span, SpanEnd.PARTITION_GONE))
            elif span.topic_id != bracket.topic_id:
                desk.take(without(desk.load(producer_id), partition, span, SpanEnd.PARTITION_GONE))
            elif (producer_id, partition) not in shown and span.start_offset < bracket.below:
                desk.take(not_described(desk.load(producer_id), partition, bracket, number))


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
    desk.emitted.extend(CensusWanted(partition) for partition in sorted(bench.wanted))
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


def _standing_still(bucket: BucketState, batch: Batch, policy: DetectionPolicy) -> Iterable[CensusWanted]:
    """Partitions whose last stable offset has stood for a while: the leader is asked what it waits for there."""
    now_ms = batch.barrier.coordinator_listed_ms
    for told in batch.last_stable:
        known = bucket.standing.get(told.partition)
        since_ms = known.since_ms if known is not None and known.offset == told.offset else now_ms
        bucket.standing[told.partition] = Standing(told.offset, since_ms, now_ms)
    for partition, standing in list(bucket.standing.items()):
        if now_ms - standing.seen_ms > policy.standing_still_ms:
            del bucket.standing[partition]  # it has moved, or nothing is written behind it
        elif now_ms - standing.since_ms >= policy.standing_still_ms:
            yield CensusWanted(partition)


def _incomplete(batch: Batch) -> Iterable[CensusIncomplete]:
    failed = {partition for census in batch.censuses for partition in census.failed}
    if failed or any(census.is_round for census in batch.censuses):
        yield CensusIncomplete(tuple(sorted(failed)))


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
