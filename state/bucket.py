"""One bucket of producer ids through one batch: facts first, in log order, then the barrier.

A bucket (a hash of the producer id) is the unit Spark keys its state by: one state key per producer costs twice
the time (docs/decisions/0002). The bucket keeps an agenda of the producers that have something open or live, so
a barrier never walks the idle ones; at most one read and one write of the store per producer a batch touches.
Nothing here knows Spark: the store is a protocol, and the same code runs in the simulation and in one-shot
commands.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from typing import Protocol

from txnwatch.state.batch import Batch
from txnwatch.state.bucket_state import BucketState, Standing
from txnwatch.state.census import described_open, doubted, not_described, not_there
from txnwatch.state.emitted import (
    BucketCount,
    CensusIncomplete,
    CensusWanted,
    Emitted,
    OpenTransactions,
    OutstandingGap,
    PartitionAlarm,
    StrayWrite,
    TransactionsEnded,
    Unproven,
)
from txnwatch.state.facts import Barrier, Fact, ProducerSeen, TransactionSeen
from txnwatch.state.gaps import (
    begin_readings,
    close_gaps,
    finished_readings,
    in_reading,
    is_before_hole,
    note_gaps,
    note_holes,
    read_again,
)
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.judge import Bench, due_ms, judge
from txnwatch.state.latency import Tally
from txnwatch.state.machine import ProducerFact, Step, apply, forget_unseen, is_news
from txnwatch.state.open_transactions import follow, keep_oldest, oldest, state_of, worth_telling
from txnwatch.state.policy import DetectionPolicy
from txnwatch.state.transaction import ProducerState


class ProducerStore(Protocol):
    """Where producers are kept between batches."""

    def get(self, producer_id: int) -> ProducerState | None:
        """The producer as it was put last, or None."""

    def put(self, producer: ProducerState) -> None:
        """Keeps the producer."""


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
    begin_readings(bucket, batch)
    for partition in batch.barrier.risen:
        for producer_id in list(bucket.agenda):
            desk.take(doubted(desk.load(producer_id), partition))
    for fact in batch.for_awaited:
        for producer_id in list(bucket.agenda):
            desk.apply(producer_id, fact, number)
    again = read_again(bucket, batch)
    unread = bucket.gaps.keys() | {notice.partition for notice in batch.notices} | _unread_logs(bucket)
    for seen in batch.for_one:
        told = in_reading(seen, bucket)
        desk.time(told, again)
        follows_on = _place_of(seen) not in unread and not (
            isinstance(seen, TransactionSeen) and is_before_hole(bucket, desk.load(seen.producer_id).view)
        )
        desk.apply(seen.producer_id, told, number, follows_on=follows_on)
    desk.name_strays()
    close_gaps(bucket, batch)
    note_gaps(bucket, batch.notices)
    note_holes(bucket, batch)
    for log_partition in finished_readings(bucket, batch):
        reading = bucket.readings.get(log_partition, 0)
        for producer_id in list(bucket.agenda):
            desk.take(forget_unseen(desk.load(producer_id), log_partition, reading))
    _take_census(batch, desk)
    if speaks_for_partitions:
        desk.emitted.extend(PartitionAlarm(notice) for notice in batch.notices)
        desk.emitted.extend(_standing_still(bucket, batch, policy))
        desk.emitted.extend(_incomplete(batch))
    _judge_all(batch.barrier, desk, policy, speaks_for_partitions=speaks_for_partitions)
    desk.store_changes()
    return desk.emitted


def _place_of(seen: ProducerSeen | TransactionSeen) -> TopicPartition:
    if isinstance(seen, ProducerSeen):
        return seen.partition
    return TopicPartition(TRANSACTION_STATE_TOPIC, seen.view.log_partition)


def _unread_logs(bucket: BucketState) -> set[TopicPartition]:
    logs = bucket.coordinator_gaps.keys() | bucket.rereading.keys()
    return {TopicPartition(TRANSACTION_STATE_TOPIC, log_partition) for log_partition in logs}


class _Desk:
    """The producers taken out of the store for one batch; each is read once and written once."""

    def __init__(self, bucket: BucketState, store: ProducerStore) -> None:
        self.bucket = bucket
        self.emitted: list[Emitted] = []
        self._store = store
        self._stored: dict[int, ProducerState] = {}
        self.touched: dict[int, ProducerState] = {}
        self.ended = Tally()

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

    def apply(self, producer_id: int, fact: ProducerFact, barrier_number: int, *, follows_on: bool = True) -> None:
        self.take(apply(self.load(producer_id), fact, barrier_number, follows_on=follows_on))

    def time(self, fact: ProducerSeen | TransactionSeen, again: Container[int]) -> None:
        """Takes how long transactions took, before the fact is applied; not in logs that are read `again`."""
        if not isinstance(fact, TransactionSeen) or fact.view.log_partition in again:
            return
        prior = self.load(fact.producer_id).view
        if prior is None or (is_news(prior, fact.view) and prior.reading == fact.view.reading):
            self.ended.add(fact.ended)
            if prior is not None and fact.first_end is not None:
                self.ended.finish(prior, fact.first_end)

    def follow(self, producer: ProducerState, bench: Bench) -> None:
        """Counts the producer by its state, and follows it while it has something open."""
        was, now_is = state_of(self._stored[producer.producer_id]), state_of(producer)
        for state, change in ((was, -1), (now_is, 1)):
            if state is not None and was != now_is:
                self.bucket.states[state] += change
        follow(self.bucket.followed, producer, bench)

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


CLOCK_STEP_MS = 1_000


def _take_census(batch: Batch, desk: _Desk) -> None:
    """What the batch's census shows as open is opened; what it should show and does not is over."""
    if not batch.censuses:
        return
    brackets = dict(batch.brackets())
    number = batch.barrier.number
    shown: set[tuple[int, TopicPartition]] = set()
    for fact in batch.described:
        bracket = brackets.get(fact.partition)
        if bracket is not None and fact.start_offset < bracket.below:
            shown.add((fact.producer_id, fact.partition))
            desk.take(described_open(desk.load(fact.producer_id), fact, bracket, number))
    known = batch.known_to_round()
    for producer_id in desk.awaited:
        for partition in desk.load(producer_id).spans:
            bracket = brackets.get(partition)
            if bracket is None and known is not None and partition not in known:
                desk.take(not_there(desk.load(producer_id), partition))
            elif bracket is not None and (producer_id, partition) not in shown:
                desk.take(not_described(desk.load(producer_id), partition, bracket, number))


def _judge_all(barrier: Barrier, desk: _Desk, policy: DetectionPolicy, *, speaks_for_partitions: bool) -> None:
    bucket = desk.bucket
    clock_moved = _set_clock(bucket, barrier)
    bench = Bench(barrier, policy, bucket.gaps, bucket.coordinator_gaps, bucket.clock_offset_ms)
    due = {producer_id for producer_id, when in bucket.agenda.items() if clock_moved or when <= bench.now_ms}
    for producer_id in sorted(due | desk.touched.keys()):
        desk.take(judge(desk.load(producer_id), bench))
        producer = desk.touched[producer_id]
        desk.follow(producer, bench)
        if producer.is_awaited:
            bucket.agenda[producer_id] = due_ms(producer, bench)
        else:
            bucket.agenda.pop(producer_id, None)
    desk.emitted.extend(CensusWanted(partition) for partition in sorted(bench.wanted))
    if speaks_for_partitions:
        desk.emitted.append(_unproven(bucket, barrier))
        desk.emitted.extend(_outstanding(bucket))
    desk.emitted.extend(_figures(bucket, bench, desk.ended))


def _figures(bucket: BucketState, bench: Bench, ended: Tally) -> Iterable[Emitted]:
    keep_oldest(bucket.followed)
    told = tuple(worth_telling(bucket.followed, bench))
    oldest_open_ms, oldest_prepared_ms = oldest(told)
    yield BucketCount(
        barrier=bench.barrier.number,
        awaited=len(bucket.agenda),
        waiting=tuple(sorted(bench.waiting.items())),
        clock_offset_ms=bucket.clock_offset_ms,
        data_listed_ms=bench.barrier.data_listed_ms,
        behind=len(bench.barrier.limited_data),
        states=tuple(sorted(bucket.states.items())),
        oldest_open_ms=oldest_open_ms,
        oldest_prepared_ms=oldest_prepared_ms,
    )
    if told:
        yield OpenTransactions(told)
    latencies = ended.latencies()
    if latencies:
        yield TransactionsEnded(latencies)


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


def _unproven(bucket: BucketState, barrier: Barrier) -> Unproven:
    logs = barrier.stale_coordinator | bucket.coordinator_gaps.keys() | bucket.rereading.keys()
    log_partitions = {TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in logs}
    return Unproven(tuple(sorted(barrier.stale_data | bucket.gaps.keys() | log_partitions)))


def _outstanding(bucket: BucketState) -> Iterable[OutstandingGap]:
    for partition, start in sorted(bucket.gaps.items()):
        yield OutstandingGap(partition, start)
    for log_partition, start in sorted(bucket.coordinator_gaps.items()):
        yield OutstandingGap(TopicPartition(TRANSACTION_STATE_TOPIC, log_partition), start)
