"""Which producers a new leader, or a new bound of a broker's clock, concerns.

Apart: it only decides whom a change concerns, and bucket.py has the order of the phases.

The minimum age of a transaction depends on the clock of the broker that leads its log partition. On a cluster of 100
brokers a bound changes every few seconds. Law: the cost of a change depends on the number of transactions that it may
bring to a threshold, not on the number of all.

A due time has a reserve: it is as early as if the lower bound of the clock were RESERVE_MS higher. `Clocks.age_ms`
rises by at most as much as the bound rises, plus the time that passes. So a producer is never evaluated too late while
the bound is at most the one that its due time assumes. `assumed_ms` has the lowest of these for each broker: between
two changes the bound only falls, because clocks drift, so the due times that are set last assume the least. A bound
that is refreshed is usually below it, and then no producer is evaluated.

All producers of a log partition are evaluated if
  * it has a new leader or leader epoch;
  * the bound of its leader's clock is above `assumed_ms`;
  * the clock of its leader was not known before, or was set: then ages depend on other values.
If a bound falls, or a clock is no longer known, ages only fall. A producer is then evaluated too early, which changes
nothing.

Times that are shown depend on the clock, too. So the producers of the open list are evaluated if the shown difference
of the clock has changed, and all of the log partition if it has changed so much that others may belong in the list.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.loaded_producers import LoadedProducers
from txnwatch.state.detection.span import Step
from txnwatch.state.model.clocks import RESERVE_MS, Clock, Clocks
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.transaction import Emission, ProducerState
from txnwatch.state.model.values import AT_ONCE, NO_TIME, BrokerId, DurationMs, TimestampMs


class Concerned(NamedTuple):
    """The partitions of the coordinators' log whose producers a barrier's leaders and clocks concern.

    Attributes:
        to_evaluate: all of their producers must be evaluated.
        to_show: the times of those in the open list may have changed.
    """

    to_evaluate: set[int]
    to_show: set[int]


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
        loaded.take(Step(_moved(loaded.load(producer_id), by_ms)))
    bucket.ages = bucket.holders = None  # they are made again from the producers
    bucket.clocks = _moved_clocks(bucket.clocks, by_ms)
    bucket.assumed_ms = {broker: DurationMs(assumed_ms - by_ms) for broker, assumed_ms in bucket.assumed_ms.items()}
    bucket.readings = {partition: known.with_ours_set(by_ms) for partition, known in bucket.readings.items()}


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
    emissions = {name: _moved_emission(one, by_ms) for name, one in producer.emissions.items()}
    return ProducerState(producer.producer_id, spans, view, emissions)


def _moved_emission(emission: Emission, by_ms: DurationMs) -> Emission:
    return emission if emission.next_ms == AT_ONCE else Emission(emission.times, emission.next_ms + by_ms)


def _moved_clocks(clocks: Clocks, by_ms: DurationMs) -> Clocks:
    return Clocks(
        {broker: clock.with_ours_set(by_ms) for broker, clock in clocks.brokers.items()},
        {log_partition: reign.with_ours_set(by_ms) for log_partition, reign in clocks.reigns.items()},
    )
