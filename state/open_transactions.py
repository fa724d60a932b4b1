"""What is open, the oldest of it one by one; and of those, what has been open for a while, or is prepared.

Law: following must not cost a look at anybody. A producer is taken in, or let go, when it is looked at anyway; each
bucket keeps the oldest, so one that was squeezed out comes back with its next look. A healthy transaction is over
within moments: one is told from `told_after_ms` on, and Prepare* at once, because it ends by itself or is news. How
many there are in each state is counted exactly beside it. Times are our clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from txnwatch.state.emitted import OpenSpan, OpenTransaction
from txnwatch.state.ids import TopicPartition
from txnwatch.state.judge import Bench
from txnwatch.state.transaction import ProducerState

FOLLOWED = 128  # by each bucket
UNOWNED = "unowned"


def open_transaction_of(raw: Iterable[Any]) -> OpenTransaction:
    """One that went through JSON."""
    producer_id, transactional_id, state, since_ms, prepared_ms, spans = raw
    told = tuple(OpenSpan(TopicPartition(*partition), start, seen) for partition, start, seen in spans)
    return OpenTransaction(producer_id, transactional_id, state, since_ms, prepared_ms, told)


def state_of(producer: ProducerState) -> str | None:
    """What the producer id counts as: the state of its live transaction, UNOWNED, or None if it is idle."""
    if producer.view is not None and producer.view.is_live:
        return str(producer.view.state)
    return UNOWNED if producer.spans else None


def follow(followed: dict[int, OpenTransaction], producer: ProducerState, bench: Bench) -> None:
    """Takes the producer among those that are followed, or out."""
    told = _open(producer, bench)
    if told is not None:
        followed[producer.producer_id] = told
    else:
        followed.pop(producer.producer_id, None)


def keep_oldest(followed: dict[int, OpenTransaction]) -> None:
    """Lets go of those that are too many."""
    if len(followed) > FOLLOWED:
        oldest = heapq.nsmallest(FOLLOWED, followed.values(), key=_since)
        followed.clear()
        followed.update((told.producer_id, told) for told in oldest)


def worth_telling(followed: Mapping[int, OpenTransaction], bench: Bench) -> Iterator[OpenTransaction]:
    """Those that have been open for a while, and those that are prepared, oldest first."""
    latest_ms = bench.now_ms - bench.policy.told_after_ms
    for told in sorted(followed.values(), key=_since):
        if told.since_ms <= latest_ms or told.prepared_ms >= 0:
            yield told


def _since(told: OpenTransaction) -> int:
    return told.since_ms


def _open(producer: ProducerState, bench: Bench) -> OpenTransaction | None:
    state, view = state_of(producer), producer.view
    if state is None:
        return None
    times = [span.first_seen_ms for span in producer.spans.values()]
    prepared_ms = -1
    if view is not None and view.is_live:
        # An aborted transaction that was empty has no start; nor has it any data.
        times.append((view.start_ms if view.start_ms >= 0 else view.record_timestamp_ms) - bench.clock_offset_ms)
        prepared_ms = view.record_timestamp_ms - bench.clock_offset_ms if view.state.is_prepare else -1
    spans = tuple(
        OpenSpan(partition, span.start_offset, span.first_seen_ms) for partition, span in sorted(producer.spans.items())
    )
    name = view.transactional_id if view is not None else None
    return OpenTransaction(producer.producer_id, name, state, min(times), prepared_ms, spans)


def oldest(told: Iterable[OpenTransaction]) -> tuple[int, int]:
    """Since when the oldest has been open, and since when the oldest has been prepared; -1 for none."""
    known = list(told)
    prepared = [one.prepared_ms for one in known if one.prepared_ms >= 0]
    return min((one.since_ms for one in known), default=-1), min(prepared, default=-1)
