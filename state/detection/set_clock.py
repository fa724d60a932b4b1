"""Our own clock was set: every stored time of our clock moves with it. Pure.

Ages are differences of two times of our clock. If it is set forward by an hour between two listings, each transaction
would be an hour older, and a healthy one would be late. If it is set back, what is due in a moment would be due in an
hour. So the barrier names by how much the clock was set, and all times from before are moved by as much. Law: what a
bucket finds does not depend on where our clock stands, or on when it is set.

The times of producers that await nothing are not moved, because nothing depends on them.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.bucket_state import BucketState, Failing, Standing
from txnwatch.state.detection.loaded_producers import LoadedProducers
from txnwatch.state.detection.step import Step
from txnwatch.state.model.broker_clocks import Clocks
from txnwatch.state.model.quantities import AT_ONCE, DurationMs
from txnwatch.state.model.transaction import Emission, ProducerState


def move_times(bucket: BucketState, loaded: LoadedProducers, by_ms: DurationMs) -> None:
    """Moves the times of a bucket and of its awaited producers, before anything of the batch is applied."""
    if not by_ms:
        return
    for producer_id in sorted(bucket.agenda):
        loaded.take(Step(_moved(loaded.load(producer_id), by_ms)))
    bucket.ages = None  # it is made again from the producers
    bucket.clocks = _moved_clocks(bucket.clocks, by_ms)
    bucket.assumed_ms = {broker: DurationMs(assumed_ms - by_ms) for broker, assumed_ms in bucket.assumed_ms.items()}
    bucket.failing = {
        partition: Failing(known.times, known.since_ms + by_ms) for partition, known in bucket.failing.items()
    }
    bucket.standing = {
        partition: Standing(
            known.offset,
            known.since_ms + by_ms,
            known.is_repeated,
            None if known.silent_ms is None else known.silent_ms + by_ms,
        )
        for partition, known in bucket.standing.items()
    }


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
