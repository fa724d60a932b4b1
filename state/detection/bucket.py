"""Runs one bucket of producer ids through one batch: facts first, in log order, then the barrier.

Apart: it does not know Spark, and its store is a protocol. So the simulation and the tests run it without Spark;
bucket_step.py knows Spark's rows.

A bucket (producer id modulo the number of buckets) is the unit by which Spark keys its state: one state key per
producer costs twice the time (docs/decisions/0002). The bucket keeps an agenda of the producers that have something
open or live, so a barrier never visits those that are not due. A new leader, or a new bound of a broker's clock, makes
only those producers due that it can concern (`take_clocks`). Only a change of the thresholds makes all of them due.

Law: a barrier evaluates every producer for which it would find something new. So a hang is a candidate at the first
barrier that completes its proof. Only what follows a finding about the same span or transaction waits for a pause
(`repeat_max_ms`, `two_phase_check_ms`). The open list (open_transactions.py) is for users: no finding depends on it.

A batch makes at most one read and one write of the store per producer that it touches. Facts about a partition go to
the producers that are open there (`awaited`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.batch import (
    Batch,
    LogReadings,
    ReadBefore,
    blocked_offsets,
    follow,
    give_up,
    note_last_batches,
    note_last_stable,
    note_whole,
    notice_other_logs,
)
from txnwatch.state.detection.broker_clocks import RESERVE_MS, Clocks, dated
from txnwatch.state.detection.bucket_indexes import is_known_by_census
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.evaluate import at_rest_until, due_ms, judge
from txnwatch.state.detection.loaded_producers import LoadedProducers, ProducerStore
from txnwatch.state.detection.open_transactions import UNOWNED, ends_to_emit, must_emit, oldest, reportable
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.detection.reading import UNREAD, Lack, unread_in
from txnwatch.state.detection.span import (
    Step,
    after_change_of_scan,
    after_ranges,
    described_open,
    doubted,
    leaves_nothing,
    not_described,
    not_there,
)
from txnwatch.state.detection.view import after_records, forget_unseen
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.facts import Barrier, Fact, NoticeKind
from txnwatch.state.model.findings import (
    BucketCount,
    CensusReason,
    CensusRequest,
    CensusResult,
    Finding,
    OpenTransactions,
    OutstandingGap,
    PartitionAlarm,
    ReadLimitReached,
    RequestsThrottled,
    TransactionsEnded,
    Unproven,
)
from txnwatch.state.model.transaction import Emission, ProducerState
from txnwatch.state.model.values import (
    AT_ONCE,
    NEVER_MS,
    NO_TIME,
    BrokerId,
    DurationMs,
    ProducerId,
    Remedy,
    TimestampMs,
    TopicPartition,
    elapsed,
)
from txnwatch.state.model.verdicts import DetectionPolicy


def process(
    bucket: BucketState,
    store: ProducerStore,
    facts: Iterable[Fact],
    policy: DetectionPolicy,
    *,
    reports_partitions: bool,
) -> list[Finding]:
    """Runs one batch of facts through a bucket, changing `bucket` and `store`; returns the findings.

    `reports_partitions` is True for one bucket only: notices reach every bucket and are reported once.

    Raises:
        ValueError: the batch does not have exactly one barrier fact.
    """
    batch = Batch(facts)
    run = BucketBatch(bucket, batch, LoadedProducers(bucket, store, batch.barrier), policy, reports_partitions)
    for phase in PHASES:
        phase(run)
    return run.loaded.emitted


@dataclass(slots=True)
class BucketBatch:
    """One batch in one bucket; the first phases set what the later ones need.

    Attributes:
        before: what was known about the readings of partitions before the batch.
        logs: the readings of the coordinators' log, as they are for the facts of the batch.
        complete: partitions of the coordinators' log of which a new reading is complete with this batch.
        due: the producers that the barrier must evaluate, besides those that the batch has loaded.
        context: what every producer is evaluated with.
    """

    bucket: BucketState
    batch: Batch
    loaded: LoadedProducers
    policy: DetectionPolicy
    reports_partitions: bool
    before: ReadBefore = field(init=False)
    logs: LogReadings = field(init=False)
    complete: set[TopicPartition] = field(init=False)
    due: set[ProducerId] = field(init=False)
    context: BarrierContext = field(init=False)


def move_clock(run: BucketBatch) -> None:
    """Moves all stored times if our clock was set. Assumes that nothing has compared a stored time with the batch."""
    move_times(run.bucket, run.loaded, run.batch.barrier.clock_set_by_ms)


def follow_readings(run: BucketBatch) -> None:
    """Changes what is known about the readings of partitions.

    Assumes that stored times are by our present clock, and that no fact is applied: the facts follow what was known
    before, and have the number of the reading that begins with this batch.
    """
    give_up(run.bucket, run.batch, run.policy)
    notice_other_logs(run.bucket, run.batch)
    run.before = ReadBefore(run.bucket, run.batch)
    run.complete = follow(run.bucket, run.batch, reports_partitions=run.reports_partitions)
    run.logs = LogReadings(run.bucket, run.batch.barrier)


def apply_to_awaited(run: BucketBatch) -> None:
    """Applies elections, notices, and changes of what is scanned, which name no producer.

    Assumes that a range that is given up counts as lost already, and that no other fact is applied: a truncated log
    begins again below what this batch has read of it.
    """
    barrier, loaded = run.batch.barrier, run.loaded
    changed = [*barrier.begun, *barrier.looked_at]
    if not barrier.risen and not run.batch.for_awaited and not changed:
        return
    for partition in sorted(barrier.risen):
        for producer_id in loaded.awaited.on([partition]):
            loaded.take(doubted(loaded.load(producer_id), partition))
    loaded.apply_to_concerned(run.batch.for_awaited, barrier.number)
    for producer_id in loaded.awaited.on(changed):
        loaded.take(after_change_of_scan(loaded.load(producer_id), barrier))


def apply_to_one(run: BucketBatch) -> None:
    """Applies each fact that names a producer: the data, then the coordinators' log, each in the order of its log.

    Assumes that notices are applied, and that `before` and `logs` are those of this batch.
    """
    _apply_ranges(run)
    _apply_records(run)


def _apply_ranges(run: BucketBatch) -> None:
    """What has begun and ended in the ranges of a batch leaves nothing, and its producer is not loaded for it."""
    number, loaded, before = run.batch.barrier.number, run.loaded, run.before
    for producer_id, ranges in run.batch.ranges.items():
        if loaded.awaits(producer_id) or not all(map(leaves_nothing, ranges)):
            read = [(seen, seen.partition not in before.unread, before.whole_at(seen.partition)) for seen in ranges]
            loaded.take(after_ranges(loaded.load(producer_id), read, number))


def _apply_records(run: BucketBatch) -> None:
    barrier, loaded, before, logs = run.batch.barrier, run.loaded, run.before, run.logs
    for times in run.batch.completion_times:
        if times.log not in before.again:
            loaded.ended.add(times.latencies)
    for seen in run.batch.records:
        if seen.is_past and not loaded.awaits(seen.producer_id):
            logs.pass_over(seen.view)
            continue
        log, producer = seen.view.log, loaded.load(seen.producer_id)
        view = logs.in_reading(seen.view, log, barrier)
        if log not in before.again:
            loaded.time(producer.view, view, seen)
        is_consecutive = log not in before.unread and not logs.is_before_hole(producer.view)
        loaded.take(after_records(producer, seen, view, barrier.number, is_consecutive=is_consecutive))


def end_ids(run: BucketBatch) -> None:
    """Applies the tombstones, and names the owners of stray writes.

    Assumes that all other records of the batch are applied: a tombstone is the last record of an id.
    """
    run.loaded.apply_to_concerned(run.batch.gone, run.batch.barrier.number)
    run.loaded.name_strays()


def end_readings(run: BucketBatch) -> None:
    """Notes how far the partitions are read, and removes the ids that a complete new reading did not show again.

    Assumes that all records of the batch are applied: an id that they show is not gone.
    """
    run.logs.keep(run.bucket, run.batch.barrier)
    note_last_batches(run.bucket, run.batch.barrier)
    note_whole(run.bucket, run.batch)
    if run.reports_partitions:
        note_last_stable(run.bucket, run.batch, run.policy)
    loaded, complete = run.loaded, run.complete
    if not complete:
        return
    for producer_id in sorted({*loaded.awaited.on(complete), *loaded.touched} & run.bucket.agenda.keys()):
        view = loaded.known(producer_id).view
        if view is not None and view.log in complete:
            reading = run.logs.number(view.log)
            loaded.take(forget_unseen(loaded.load(producer_id), view.log, reading))


def take_census(run: BucketBatch) -> None:
    """Opens what the batch's census shows as open; ends what it should show and does not.

    Assumes that all logs of the batch are applied: a census is later than everything that the batch has read.
    """
    batch, loaded = run.batch, run.loaded
    if not batch.censuses:
        return
    valid_listings = batch.valid_listings(run.bucket.lacking(Lack.REST, Lack.RANGE))
    number = batch.barrier.number
    shown: set[tuple[int, TopicPartition]] = set()
    for fact in batch.described:
        listing = valid_listings.of(fact.partition)
        if listing is not None and fact.start_offset < listing.below:
            shown.add((fact.producer_id, fact.partition))
            step = described_open(loaded.known(fact.producer_id), fact, listing, number)
            if step.emitted or step.producer is not loaded.known(fact.producer_id):
                loaded.load(fact.producer_id)
                loaded.take(step)
    awaited = loaded.awaited
    looked_at = valid_listings.described(awaited.partitions) | valid_listings.missing(awaited.known_by_census)
    for producer_id in sorted({*awaited.on(looked_at), *loaded.touched}):
        for partition, span in loaded.known(producer_id).spans.items():
            listing = valid_listings.of(partition)
            if valid_listings.is_missing(partition):
                if is_known_by_census(span):
                    loaded.take(not_there(loaded.load(producer_id), partition))
            elif listing is not None and (producer_id, partition) not in shown:
                loaded.take(not_described(loaded.load(producer_id), partition, listing, number))


def take_clocks_and_settings(run: BucketBatch) -> None:
    """Takes the clocks of the barrier and the settings of the run, and sets which producers they make due.

    Assumes that the readings are those after the batch, and that no producer is evaluated: the evaluation moves the
    times at which producers are due.
    """
    bucket, barrier = run.bucket, run.batch.barrier
    concerned, digest = take_clocks(bucket, barrier), run.policy.digest(barrier.scan_interval_ms)
    is_changed, bucket.policy_digest = digest != bucket.policy_digest, digest
    run.due = set(bucket.agenda) if is_changed else due_producers(barrier, run.loaded, concerned)
    run.context = BarrierContext(barrier, run.policy, unread_in(bucket.readings), bucket.clocks)


def evaluate(run: BucketBatch) -> None:
    """Evaluates every producer that is due or has changed: its findings, its place, and when it is due next.

    Assumes that everything of the batch is applied, because the barrier counts last, and that `due` and `context` are
    those of this barrier.
    """
    agenda, loaded, context = run.bucket.agenda, run.loaded, run.context
    for producer_id in sorted(run.due | loaded.touched.keys()):
        producer = loaded.load(producer_id)
        next_ms = at_rest_until(producer, context)
        if next_ms is None:
            loaded.take(judge(producer, context))
            producer = loaded.touched[producer_id]
            next_ms = due_ms(producer, context)
        listable_ms = loaded.follow(producer, context)
        if producer.is_awaited:
            agenda.put(producer_id, min(next_ms, listable_ms))
        else:
            agenda.drop(producer_id)


def fill_open_list(run: BucketBatch) -> None:
    """Gives the free places of the open list to producers without one.

    Assumes that everybody is evaluated: who has nothing open any more has left its place.
    """
    run.loaded.fill_open_list(run.context)


def report(run: BucketBatch) -> None:
    """Emits what concerns partitions, in the one bucket that reports them; the censuses wanted; and the figures.

    Assumes that the open list is filled, and that the evaluation has collected in `context` what it waits for.
    """
    emitted = run.loaded.emitted
    if run.reports_partitions:
        emitted.extend(_about_partitions(run.bucket, run.batch))
    emitted.extend(CensusRequest(partition) for partition in sorted(run.context.wanted))
    emitted.extend(_figures(run))


def keep_changes(run: BucketBatch) -> None:
    """Writes the producers that have changed. Assumes that nothing changes them any more."""
    run.loaded.store_changes()


PHASES: tuple[Callable[[BucketBatch], None], ...] = (
    move_clock,
    follow_readings,
    apply_to_awaited,
    apply_to_one,
    end_ids,
    end_readings,
    take_census,
    take_clocks_and_settings,
    evaluate,
    fill_open_list,
    report,
    keep_changes,
)


def _about_partitions(bucket: BucketState, batch: Batch) -> Iterable[Finding]:
    """Findings about partitions and brokers, which concern no producer."""
    yield from (PartitionAlarm(notice) for notice in batch.notices if notice.kind is not NoticeKind.LEFT)
    yield from (CensusRequest(partition, CensusReason.HIDDEN) for partition in bucket.lacking(Lack.NAME))
    yield from (CensusRequest(partition, CensusReason.FAILED) for partition in bucket.lacking(Lack.DESCRIPTION))
    yield from _taken(batch)
    yield from (RequestsThrottled(tuple(throttled.throttled_ms.items())) for throttled in batch.throttled)
    yield from batch.data_read
    yield _unproven(bucket, batch.barrier)
    yield from _outstanding(bucket)


def _taken(batch: Batch) -> Iterable[CensusResult]:
    failed = {partition for census in batch.censuses for partition in census.failed}
    described = {at for census in batch.censuses for at, listing in census.taken.items() if not listing.is_scanned}
    is_round = any(census.is_round for census in batch.censuses)
    if failed or described or is_round:
        yield CensusResult(tuple(sorted(failed)), tuple(sorted(described)), is_round)


def _unproven(bucket: BucketState, barrier: Barrier) -> Unproven:
    unread = {partition for partition, reading in bucket.readings.items() if reading.is_unproven}
    return Unproven(tuple(sorted(unread | barrier.stale_data | barrier.stale_coordinator)))


_CLOSED_BY: dict[Lack, Remedy] = {Lack.CENSUS: Remedy.CENSUS, Lack.NEW_READING: Remedy.NEW_READING}


def _outstanding(bucket: BucketState) -> Iterable[OutstandingGap | ReadLimitReached]:
    for partition in bucket.lacking(*UNREAD, Lack.REST):
        for lack, lack_since in bucket.readings[partition].lacks.items():
            if lack is Lack.REST:
                yield ReadLimitReached(partition, lack_since.from_offset)
            elif lack in UNREAD:
                yield OutstandingGap(partition, _CLOSED_BY.get(lack, lack_since.from_offset))


def _figures(run: BucketBatch) -> Iterable[Finding]:
    bucket, context, placed = run.bucket, run.context, run.bucket.followed | run.bucket.holding
    open_list = OpenTransactions(
        bucket.number,
        tuple(reportable(placed, context)),
        blocked_offsets(bucket, context.now_ms, context.policy),
    )
    oldest_open_ms, oldest_prepared_ms = oldest(open_list.transactions)
    yield BucketCount(
        barrier=context.barrier.number,
        awaited=len(bucket.agenda),
        waiting=tuple(sorted(context.waiting.items())),
        clocks=tuple(sorted(bucket.clocks.brokers.items())),
        data_listed_ms=context.barrier.data_listed_ms,
        behind=len(context.barrier.limited_data | context.unread.rests),
        states=tuple(sorted(bucket.states.items())),
        oldest_open_ms=oldest_open_ms,
        oldest_prepared_ms=oldest_prepared_ms,
        due_ms=_due_ms(bucket),
        log_after_ms=elapsed(context.barrier.data_listed_ms, context.barrier.coordinator_listed_ms),
    )
    ends = ends_to_emit(bucket, run.batch, reportable(placed, context, at_once={UNOWNED}))
    if ends is not None:
        yield ends
    if must_emit(bucket, open_list, context.barrier.number):
        yield open_list
    latencies = run.loaded.ended.latencies()
    if latencies:
        yield TransactionsEnded(latencies)


def _due_ms(bucket: BucketState) -> TimestampMs:
    """When there is something to evaluate again, even if no fact arrives."""
    is_incomplete = any(reading.lacks or reading.standing is not None for reading in bucket.readings.values())
    if is_incomplete or bucket.clocks.held:
        return AT_ONCE
    return bucket.agenda.next_ms(NEVER_MS)


# Which producers a new leader, or a new bound of a broker's clock, concerns.
#
# The minimum age of a transaction depends on the clock of the broker that leads its log partition. On a cluster of
# 100 brokers a bound changes every few seconds. Law: the cost of a change depends on the number of transactions that
# it may bring to a threshold, not on the number of all.
#
# A due time has a reserve: it is as early as if the lower bound of the clock were RESERVE_MS higher. `Clocks.age_ms`
# rises by at most as much as the bound rises, plus the time that passes. So a producer is never evaluated too late
# while the bound is at most the one that its due time assumes. `assumed_ms` has the lowest of these for each broker:
# between two changes the bound only falls, because clocks drift, so the due times that are set last assume the least.
# A bound that is refreshed is usually below it, and then no producer is evaluated.
#
# All producers of a log partition are evaluated if
#   * it has a new leader, leader epoch or reign;
#   * the bound of its leader's clock is above `assumed_ms`;
#   * the clock of its leader was not known before, or was set: then ages depend on other values.
# If a bound falls, or a clock is no longer known, ages only fall. A producer is then evaluated too early, which
# changes nothing.
#
# Times that are shown depend on the clock, too. So the producers of the open list are evaluated if the shown
# difference of the clock has changed, and all of the log partition if it has changed so much that others may belong
# in the list.


class Concerned(NamedTuple):
    """The partitions of the coordinators' log whose producers a barrier's leaders and clocks concern.

    Attributes:
        to_evaluate: all of their producers must be evaluated.
        to_show: the times of those in the open list may have changed.
    """

    to_evaluate: set[TopicPartition]
    to_show: set[TopicPartition]


def due_producers(barrier: Barrier, loaded: LoadedProducers, concerned: Concerned) -> set[ProducerId]:
    """The producers that are due at the barrier, or that its leaders and clocks concern."""
    bucket = loaded.bucket
    due = bucket.agenda.due(barrier.coordinator_listed_ms)
    if concerned.to_evaluate:
        due.update(loaded.awaited.on(concerned.to_evaluate))
    if concerned.to_show:
        shown = bucket.followed.keys() | bucket.holding.keys()
        due.update(producer_id for producer_id in shown if loaded.awaited.log_of(producer_id) in concerned.to_show)
    return due


def take_clocks(bucket: BucketState, barrier: Barrier) -> Concerned:
    """Updates the clocks from the barrier; returns which log partitions this concerns."""
    clocks, now_ms = bucket.clocks, barrier.coordinator_listed_ms
    before = clocks.brokers
    elected = clocks.take(barrier)
    if clocks.brokers == before:
        return Concerned(elected, set())
    raised, shown = set(), set()
    for broker in before.keys() | clocks.brokers.keys():
        was, now_is = before.get(broker), clocks.brokers.get(broker)
        if was == now_is:
            continue
        moved_ms = abs(_shown_ms(now_is, now_ms) - _shown_ms(was, now_ms))
        if moved_ms:
            shown.add(broker)
        if not is_assumed(bucket, broker, was, now_is, now_ms) or moved_ms > RESERVE_MS:
            raised.add(broker)
    return Concerned(elected | clocks.led_by(raised), clocks.led_by(shown))


def is_assumed(
    bucket: BucketState, broker: BrokerId, was: Clock | None, now_is: Clock | None, now_ms: TimestampMs
) -> bool:
    """Whether the due times of the broker's transactions are right with its new clock; updates what they assume."""
    if now_is is None:
        bucket.assumed_ms.pop(broker, None)
        return True
    lowest_ms, known_ms = now_is.now(now_ms).lowest_ms, bucket.assumed_ms.get(broker)
    if was is not None and known_ms is not None and was.set_ms == now_is.set_ms:
        assumed_ms = min(known_ms, DurationMs(was.now(now_ms).lowest_ms + RESERVE_MS))
        if lowest_ms <= assumed_ms:
            bucket.assumed_ms[broker] = assumed_ms
            return True
    bucket.assumed_ms[broker] = DurationMs(lowest_ms + RESERVE_MS)
    return False


def _shown_ms(clock: Clock | None, now_ms: TimestampMs) -> DurationMs:
    return NO_TIME if clock is None else clock.now(now_ms).presumed_ms


# Our own clock was set: every stored time of our clock moves with it. Pure.
#
# Ages are differences of two times of our clock. If it is set forward by an hour between two listings, each transaction
# would be an hour older, and a healthy one would be late. If it is set back, what is due in a moment would be due in an
# hour. So the barrier names by how much the clock was set, and all times from before are moved by as much. Law: what a
# bucket finds does not depend on where our clock stands, or on when it is set.
#
# The times of producers that await nothing are not moved, because nothing depends on them.


def move_times(bucket: BucketState, loaded: LoadedProducers, by_ms: DurationMs) -> None:
    """Moves the times of a bucket and of its awaited producers, before anything of the batch is applied."""
    if not by_ms:
        return
    for producer_id in sorted(bucket.agenda):
        moved = _moved(loaded.stored(producer_id), by_ms)
        loaded.take(Step(dated(moved, loaded.barrier)))
    bucket.ages = bucket.holders = None  # they are made again from the producers
    bucket.clocks = _moved_clocks(bucket.clocks, by_ms)
    bucket.assumed_ms = {broker: DurationMs(assumed_ms - by_ms) for broker, assumed_ms in bucket.assumed_ms.items()}
    bucket.readings = {partition: reading.with_ours_set(by_ms) for partition, reading in bucket.readings.items()}


def _moved(producer: ProducerState, by_ms: DurationMs) -> ProducerState:
    view = producer.view
    if view is not None and view.since_ms is not None:
        view = replace(view, since_ms=view.since_ms + by_ms)
    spans = {
        partition: replace(
            span,
            first_seen_ms=span.first_seen_ms + by_ms,
            emission=None if span.emission is None else _moved_emission(span.emission, by_ms),
        )
        for partition, span in producer.spans.items()
    }
    emissions = {name: _moved_emission(emission, by_ms) for name, emission in producer.emissions.items()}
    return ProducerState(producer.producer_id, spans, view, emissions, producer.begun)


def _moved_emission(emission: Emission, by_ms: DurationMs) -> Emission:
    return emission if emission.next_ms == AT_ONCE else Emission(emission.times, emission.next_ms + by_ms)


def _moved_clocks(clocks: Clocks, by_ms: DurationMs) -> Clocks:
    return Clocks(
        {broker: clock.with_ours_set(by_ms) for broker, clock in clocks.brokers.items()},
        {log: reign.with_ours_set(by_ms) for log, reign in clocks.reigns.items()},
        {broker: clock.with_ours_set(by_ms) for broker, clock in clocks.held.items()},
    )
