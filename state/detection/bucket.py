"""Runs one bucket of producer ids through one batch: facts first, in log order, then the barrier.

A bucket (a hash of the producer id) is the unit by which Spark keys its state: one state key per producer costs twice
the time (docs/decisions/0002). The bucket keeps an agenda of the producers that have something open or live, so a
barrier never visits those that are not due. A new leader, or a new bound of a broker's clock, makes only those
producers due that it can concern (bucket_clocks.py). Only a change of the thresholds makes all of them due.

Law: a barrier evaluates every producer for which it would find something new. So a hang is a candidate at the first
barrier that completes its proof. Only what follows a finding about the same span or transaction waits for a pause
(`repeat_max_ms`, `two_phase_check_ms`). The open list (open_transactions.py) is for users: no evaluation depends on it.

A batch makes at most one read and one write of the store per producer that it touches. Facts about a partition go to
the producers that are open there (`awaited`). This module does not know Spark: the store is a protocol, and the same
code runs in the simulation and in one-shot commands.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from txnwatch.state.detection.bucket_clocks import move_times, take_clocks
from txnwatch.state.detection.bucket_state import BucketState, is_known_by_census
from txnwatch.state.detection.census import described_open, doubted, not_described, not_there
from txnwatch.state.detection.evaluate import at_rest_until, due_ms, judge
from txnwatch.state.detection.loaded_producers import LoadedProducers, ProducerStore
from txnwatch.state.detection.open_transactions import keep_oldest, must_emit, oldest, reportable
from txnwatch.state.detection.proof import BarrierContext
from txnwatch.state.detection.reading import (
    Batch,
    WholeBefore,
    as_read,
    begin_readings,
    blocked_offsets,
    close_gaps,
    finished_readings,
    give_up,
    in_reading,
    is_before_hole,
    note_gaps,
    note_hidden,
    note_holes,
    note_last_stable,
    note_undescribed,
    note_whole,
    pass_over,
    read_again,
    recreated_logs,
    unread_before,
)
from txnwatch.state.detection.view import forget_unseen
from txnwatch.state.model.completion_latency import Tally
from txnwatch.state.model.facts import Barrier, Fact, NoticeKind, ProducerSeen, TransactionSeen
from txnwatch.state.model.findings import (
    BucketCount,
    CensusIncomplete,
    CensusReason,
    CensusRequest,
    Finding,
    OpenTransactions,
    OutstandingGap,
    PartitionAlarm,
    ReadLimitReached,
    RequestsThrottled,
    TransactionsEnded,
    Unproven,
)
from txnwatch.state.model.values import (
    AT_ONCE,
    NEVER_MS,
    NO_BARRIER,
    TRANSACTION_STATE_TOPIC,
    ProducerId,
    TimestampMs,
    TopicPartition,
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
    loaded = LoadedProducers(bucket, store)
    move_times(bucket, loaded, batch.barrier.clock_set_by_ms)
    give_up(bucket, batch, policy)
    begin_readings(bucket, batch)
    _apply_to_awaited(batch, loaded)
    _apply_to_one(batch, loaded)
    loaded.apply_to_concerned(batch.gone, batch.barrier.number)
    loaded.name_strays()
    close_gaps(bucket, batch)
    note_gaps(bucket, batch.notices)
    note_holes(bucket, batch)
    note_whole(bucket, batch)
    _forget_unseen(set(finished_readings(bucket, batch)), loaded)
    _take_census(batch, loaded)
    if reports_partitions:
        note_last_stable(bucket, batch, policy)
        loaded.emitted.extend(_about_partitions(bucket, batch))
    _judge_all(batch.barrier, loaded, policy, reports_partitions=reports_partitions)
    loaded.store_changes()
    return loaded.emitted


def _about_partitions(bucket: BucketState, batch: Batch) -> Iterable[Finding]:
    """Findings about partitions and brokers, which concern no producer."""
    yield from (PartitionAlarm(notice) for notice in batch.notices if notice.kind is not NoticeKind.LEFT)
    yield from (CensusRequest(partition, CensusReason.HIDDEN) for partition in note_hidden(bucket, batch))
    yield from (CensusRequest(partition, CensusReason.FAILED) for partition in note_undescribed(bucket, batch))
    yield from _incomplete(batch)
    yield from (RequestsThrottled(tuple(throttled.throttled_ms.items())) for throttled in batch.throttled)


def _apply_to_awaited(batch: Batch, loaded: LoadedProducers) -> None:
    """Applies facts that name no producer to the producers they concern."""
    if not batch.barrier.risen and not batch.for_awaited:
        return
    for partition in sorted(batch.barrier.risen):
        for producer_id in loaded.awaited.on([partition]):
            loaded.take(doubted(loaded.load(producer_id), partition))
    loaded.apply_to_concerned(batch.for_awaited, batch.barrier.number)


def _apply_to_one(batch: Batch, loaded: LoadedProducers) -> None:
    """Applies each fact that names a producer to that producer."""
    bucket = loaded.bucket
    again = read_again(bucket, batch)
    unread = unread_before(bucket, batch)
    whole = WholeBefore(bucket, batch)
    for seen in batch.for_one:
        if isinstance(seen, TransactionSeen) and seen.is_past and not loaded.awaits(seen.producer_id):
            pass_over(bucket, seen.view)
            continue
        fact = in_reading(seen, bucket, batch.barrier)
        loaded.time(fact, again)
        is_consecutive = _place_of(seen) not in unread and not (
            isinstance(seen, TransactionSeen) and is_before_hole(bucket, loaded.load(seen.producer_id).view)
        )
        read_since = whole.at(seen.partition) if isinstance(seen, ProducerSeen) else NO_BARRIER
        loaded.apply(seen.producer_id, fact, batch.barrier.number, is_consecutive=is_consecutive, read_since=read_since)


def _forget_unseen(log_partitions: set[int], loaded: LoadedProducers) -> None:
    """Removes the ids that complete readings of the coordinators' log did not show again."""
    if not log_partitions:
        return
    for producer_id in sorted({*loaded.awaited.in_logs(log_partitions), *loaded.touched} & loaded.bucket.agenda.keys()):
        view = loaded.known(producer_id).view
        if view is not None and view.log_partition in log_partitions:
            reading = loaded.bucket.readings.get(view.log_partition, 0)
            loaded.take(forget_unseen(loaded.load(producer_id), view.log_partition, reading))


def _place_of(seen: ProducerSeen | TransactionSeen) -> TopicPartition:
    if isinstance(seen, ProducerSeen):
        return seen.partition
    return TopicPartition(TRANSACTION_STATE_TOPIC, seen.view.log_partition)


def _take_census(batch: Batch, loaded: LoadedProducers) -> None:
    """Opens what the batch's census shows as open; ends what it should show and does not."""
    if not batch.censuses:
        return
    brackets = batch.brackets()
    number = batch.barrier.number
    shown: set[tuple[int, TopicPartition]] = set()
    for fact in batch.described:
        bracket = as_read(loaded.bucket, fact.partition, brackets.of(fact.partition))
        if bracket is not None and fact.start_offset < bracket.below:
            shown.add((fact.producer_id, fact.partition))
            step = described_open(loaded.known(fact.producer_id), fact, bracket, number)
            if step.emitted or step.producer is not loaded.known(fact.producer_id):
                loaded.load(fact.producer_id)
                loaded.take(step)
    awaited = loaded.awaited
    looked_at = brackets.described(awaited.partitions) | brackets.missing(awaited.known_by_census)
    for producer_id in sorted({*awaited.on(looked_at), *loaded.touched}):
        for partition, span in loaded.known(producer_id).spans.items():
            bracket = as_read(loaded.bucket, partition, brackets.of(partition))
            if brackets.is_missing(partition):
                if is_known_by_census(span):
                    loaded.take(not_there(loaded.load(producer_id), partition))
            elif bracket is not None and (producer_id, partition) not in shown:
                loaded.take(not_described(loaded.load(producer_id), partition, bracket, number))


def _judge_all(barrier: Barrier, loaded: LoadedProducers, policy: DetectionPolicy, *, reports_partitions: bool) -> None:
    bucket = loaded.bucket
    due = due_producers(barrier, loaded, policy)
    context = BarrierContext(
        barrier,
        policy,
        bucket.gaps,
        bucket.coordinator_gaps,
        bucket.left,
        bucket.clocks,
        recreated_logs=recreated_logs(bucket),
    )
    for producer_id in sorted(due | loaded.touched.keys()):
        producer = loaded.load(producer_id)
        next_ms = at_rest_until(producer, context)
        if next_ms is None:
            loaded.take(judge(producer, context))
            producer = loaded.touched[producer_id]
            next_ms = due_ms(producer, context)
        loaded.follow(producer, context)
        if producer.is_awaited:
            bucket.agenda.put(producer_id, next_ms)
        else:
            bucket.agenda.drop(producer_id)
    loaded.fill_open_list(context)
    loaded.emitted.extend(CensusRequest(partition) for partition in sorted(context.wanted))
    if reports_partitions:
        loaded.emitted.append(_unproven(bucket, barrier))
        loaded.emitted.extend(_outstanding(bucket))
    loaded.emitted.extend(_figures(bucket, context, loaded.ended))


def _figures(bucket: BucketState, context: BarrierContext, ended: Tally) -> Iterable[Finding]:
    keep_oldest(bucket.followed)
    open_list = OpenTransactions(
        bucket.number,
        tuple(reportable(bucket.followed, context)),
        blocked_offsets(bucket, context.now_ms, context.policy),
    )
    oldest_open_ms, oldest_prepared_ms = oldest(open_list.transactions)
    yield BucketCount(
        barrier=context.barrier.number,
        awaited=len(bucket.agenda),
        waiting=tuple(sorted(context.waiting.items())),
        clocks=tuple(sorted(bucket.clocks.brokers.items())),
        data_listed_ms=context.barrier.data_listed_ms,
        behind=len(context.barrier.limited_data | bucket.left.keys()),
        states=tuple(sorted(bucket.states.items())),
        oldest_open_ms=oldest_open_ms,
        oldest_prepared_ms=oldest_prepared_ms,
        due_ms=_due_ms(bucket),
    )
    if must_emit(bucket, open_list, context.barrier.number):
        yield open_list
    latencies = ended.latencies()
    if latencies:
        yield TransactionsEnded(latencies)


def _due_ms(bucket: BucketState) -> TimestampMs:
    """When there is something to evaluate again, even if no fact arrives."""
    unread = (bucket.gaps, bucket.left, bucket.failing, bucket.coordinator_gaps, bucket.rereading)
    if any(unread) or bucket.standing or bucket.hidden or bucket.undescribed:
        return AT_ONCE
    return bucket.agenda.next_ms(NEVER_MS)


def _incomplete(batch: Batch) -> Iterable[CensusIncomplete]:
    failed = {partition for census in batch.censuses for partition in census.failed}
    if failed or any(census.is_round for census in batch.censuses):
        yield CensusIncomplete(tuple(sorted(failed)))


def due_producers(barrier: Barrier, loaded: LoadedProducers, policy: DetectionPolicy) -> set[ProducerId]:
    """Updates clocks and settings from the barrier; returns the producers that must be evaluated."""
    bucket, concerned = loaded.bucket, take_clocks(loaded.bucket, barrier)
    digest = policy.digest(barrier.scan_interval_ms)
    if digest != bucket.policy_digest:
        bucket.policy_digest = digest
        return set(bucket.agenda)
    due = bucket.agenda.due(barrier.coordinator_listed_ms)
    if concerned.to_evaluate:
        due.update(loaded.awaited.in_logs(concerned.to_evaluate))
    if concerned.to_show:
        due.update(one for one in bucket.followed if loaded.awaited.log_of(one) in concerned.to_show)
    return due


def _unproven(bucket: BucketState, barrier: Barrier) -> Unproven:
    logs = barrier.stale_coordinator | bucket.coordinator_gaps.keys() | bucket.rereading.keys()
    log_partitions = {TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in logs}
    return Unproven(tuple(sorted(barrier.stale_data | bucket.gaps.keys() | log_partitions)))


def _outstanding(bucket: BucketState) -> Iterable[OutstandingGap | ReadLimitReached]:
    for partition, gap in sorted(bucket.gaps.items(), key=itemgetter(0)):
        yield OutstandingGap(partition, gap)
    for partition, start in sorted(bucket.left.items()):
        yield ReadLimitReached(partition, start)
    for log_partition, gap in sorted(bucket.coordinator_gaps.items(), key=itemgetter(0)):
        yield OutstandingGap(TopicPartition(TRANSACTION_STATE_TOPIC, log_partition), gap)
