"""What has been open for a while, and what is prepared and not complete: the few that are followed one by one.

Law: a healthy transaction is over within moments, and following each would cost a row for each at every barrier. So
one is followed from `followed_after_ms` on, and Prepare* from its first look, because it ends by itself or is news.
Each bucket keeps the oldest; how many there are in each state is counted exactly beside it. Times are our clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from txnwatch.state.emitted import OpenSpan, OpenTransaction
from txnwatch.state.ids import TopicPartition
from txnwatch.state.judge import Bench
from txnwatch.state.transaction import ProducerState

FOLLOWED = 128  # by each bucket
UNOWNED = "unowned"


def open_transaction_of(raw: Iterable[Any]) -> OpenTransaction:
    """One that went through JSON."""
    *values, spans = raw
    return OpenTransaction(
        *values, tuple(OpenSpan(TopicPartition(*partition), start, seen) for partition, start, seen in spans)
    )


def state_of(producer: ProducerState) -> str | None:
    """What the producer id counts as: the state of its live transaction, UNOWNED, or None if it is idle."""
    if producer.view is not None and producer.view.is_live:
        return str(producer.view.state)
    return UNOWNED if producer.spans else None


def follow(followed: dict[int, OpenTransaction], producer: ProducerState, bench: Bench) -> int | None:
    """Takes the producer among those followed, or out; returns when it must be looked at to be taken in, if ever."""
    followed.pop(producer.producer_id, None)
    told = _told(producer, bench)
    if told is None:
        return None
    due_ms = told.since_ms + bench.policy.followed_after_ms
    if told.prepared_ms < 0 and bench.now_ms < due_ms:
        return due_ms
    followed[producer.producer_id] = told
    if len(followed) > FOLLOWED:
        del followed[max(followed.values(), key=lambda one: one.since_ms).producer_id]
    return None


def _told(producer: ProducerState, bench: Bench) -> OpenTransaction | None:
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


def oldest(followed: Mapping[int, OpenTransaction]) -> tuple[int, int]:
    """Since when the oldest has been open, and since when the oldest has been prepared; -1 for none."""
    since = [told.since_ms for told in followed.values()]
    prepared = [told.prepared_ms for told in followed.values() if told.prepared_ms >= 0]
    return min(since, default=-1), min(prepared, default=-1)
