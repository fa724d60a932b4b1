"""Transitions of one producer: what a fact opens, extends, closes and forgets."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import (
    NAME,
    ORDERS,
    OTHER,
    PAYMENTS,
    PRODUCER,
    START_MS,
    a_marker,
    gone,
    log_notice,
    notice,
    seen,
    transaction,
)
from txnwatch.state.detection.view import ProducerFact, apply, forget_unseen
from txnwatch.state.model.facts import NoticeKind, ProducerSeen
from txnwatch.state.model.findings import SpanEnd, SpanEnded
from txnwatch.state.model.transaction import Emission, ProducerState, Span
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered

BARRIER = 5
EMISSION = Emission(1, START_MS)


def after(*facts: ProducerFact, producer: ProducerState | None = None) -> ProducerState:
    state = producer or ProducerState(PRODUCER)
    for fact in facts:
        state = apply(state, fact, BARRIER).producer
    return state


def span_start(*facts: ProducerSeen) -> int | None:
    span = after(*facts).spans.get(ORDERS)
    return span.start_offset if span is not None else None


RANGES: dict[str, tuple[tuple[ProducerSeen, ...], int | None]] = {
    "data opens": ((seen(0, 10, data=5),), 5),
    "a marker closes": ((seen(0, 10, data=5), seen(10, 20, marker=a_marker(12))), None),
    "a marker alone opens nothing": ((seen(0, 10, marker=a_marker(5)),), None),
    "later data extends": ((seen(0, 10, data=5), seen(10, 20, data=11)), 5),
    "data after the marker opens anew": ((seen(0, 10, data=5), seen(10, 20, marker=a_marker(12), data_after=15)), 15),
    "a newer epoch in data closes nothing": ((seen(0, 10, data=5), seen(10, 20, data=11, epoch=1)), 5),
    "a marker of the next epoch closes": ((seen(0, 10, data=5), seen(10, 20, marker=a_marker(12, epoch=1))), None),
    "a marker of the same epoch closes": (
        (seen(0, 10, data=5, epoch=3), seen(10, 20, marker=a_marker(12, epoch=3))),
        None,
    ),
    "a marker of an older epoch closes, or the leader would have refused it": (
        (seen(0, 10, data=5, epoch=3), seen(10, 20, marker=a_marker(12, epoch=2))),
        None,
    ),
    "a range read twice": ((seen(0, 10, data=5), seen(0, 10, data=5)), 5),
    "a longer range after a shorter one": ((seen(4, 10, data=5), seen(0, 20, data=2, marker=a_marker(15))), None),
    "a re-read from further back shows the true start": ((seen(4, 10, data=5), seen(0, 10, data=2)), 2),
    "a re-read brings a marker from before the span": (
        (seen(10, 20, data=15), seen(0, 20, data=3, marker=a_marker(8), data_after=15)),
        15,
    ),
    "a re-read that repeats the marker that closed": (
        (seen(0, 10, data=5), seen(10, 20, marker=a_marker(12)), seen(0, 20, data=5, marker=a_marker(12))),
        None,
    ),
}


@pytest.mark.parametrize(("facts", "start"), RANGES.values(), ids=RANGES.keys())
def test_ranges_of_one_partition(facts: tuple[ProducerSeen, ...], start: int | None) -> None:
    assert span_start(*facts) == start


def test_the_first_marker_after_the_span_is_the_one_that_closed_it() -> None:
    emitted = replace(after(seen(0, 10, data=5)).spans[ORDERS], emission=EMISSION)
    fact = seen(10, 30, first_marker=a_marker(12, commit=True), marker=a_marker(25))
    (ended,) = apply(ProducerState(PRODUCER, {ORDERS: emitted}), fact, BARRIER).emitted
    assert isinstance(ended, SpanEnded)
    assert ended.marker == a_marker(12, commit=True)


def test_a_span_remembers_both_ends_and_epochs() -> None:
    span = after(seen(0, 10, data=5, epoch=1, listed_ms=7), seen(10, 20, data=15, epoch=2, listed_ms=9)).spans[ORDERS]
    assert span == Span(
        "orders-id", 5, 1, 2, 15, START_MS, 7, BARRIER, was_proven_unowned=True, absorbed=True, emission=Emission(0, 0)
    )


def test_the_last_batch_has_the_epoch_whether_it_rose_or_fell() -> None:
    later = seen(10, 20, data=15, epoch=1)
    span = after(seen(0, 10, data=5, epoch=2), later).spans[ORDERS]
    assert (span.epoch, span.last_offset) == (1, 15)
    assert after(seen(0, 10, data=5, epoch=2), producer=after(later)).spans[ORDERS].epoch == 1, "read in this order too"


def test_partitions_are_kept_apart() -> None:
    state = after(seen(0, 10, data=5), seen(0, 10, data=6, partition=PAYMENTS), seen(10, 20, marker=a_marker(12)))
    assert state.spans.keys() == {PAYMENTS}


def test_a_recreated_topic_ends_what_was_open_in_the_old_one() -> None:
    state = after(seen(0, 10, data=5))
    state = replace(state, spans={ORDERS: replace(state.spans[ORDERS], emission=EMISSION)})
    step = apply(state, seen(0, 4, data=1, topic_id="another"), BARRIER)
    assert step.producer.spans[ORDERS].topic_id == "another"
    assert step.producer.spans[ORDERS].emission is None
    assert [ended.how for ended in step.emitted if isinstance(ended, SpanEnded)] == [SpanEnd.PARTITION_GONE]


def test_the_coordinators_record_with_the_highest_offset_wins() -> None:
    state = after(transaction(5, S.PREPARE_COMMIT, ORDERS), transaction(4, S.ONGOING, ORDERS))
    assert state.view is not None
    assert state.view.state is S.PREPARE_COMMIT


def test_a_complete_record_keeps_the_partitions_of_the_transaction() -> None:
    view = after(transaction(4, S.ONGOING, ORDERS, PAYMENTS), transaction(5, S.COMPLETE_COMMIT)).view
    assert view is not None
    assert view.participants == {ORDERS, PAYMENTS}
    assert not view.holds(ORDERS), "remembered, not held"


def test_the_next_transaction_forgets_what_the_last_one_held() -> None:
    view = after(transaction(4, S.COMPLETE_COMMIT, ORDERS), transaction(5, S.ONGOING, PAYMENTS)).view
    assert view is not None
    assert view.participants == {PAYMENTS}


def test_a_superseded_producer_id_is_not_live_whatever_its_successor_does() -> None:
    view = after(transaction(4, S.ONGOING, ORDERS), transaction(5, S.ONGOING, ORDERS, superseded_by=OTHER)).view
    assert view is not None
    assert not view.is_live


@pytest.mark.parametrize(
    ("tombstone", "is_live"),
    [(gone(5), False), (gone(3), True), (gone(5, "another id"), True)],
    ids=["later", "earlier", "of another id"],
)
def test_a_tombstone_ends_the_id_it_names_from_its_offset_on(tombstone: ProducerFact, *, is_live: bool) -> None:
    assert after(transaction(4, S.ONGOING, ORDERS), tombstone).is_awaited is is_live


NOTICES = {
    "truncated below the span": (notice(NoticeKind.TRUNCATED, 5), None, SpanEnd.TRUNCATED),
    "truncated above the span": (notice(NoticeKind.TRUNCATED, 6), 5, None),
    "deleted": (notice(NoticeKind.DELETED, 0), None, SpanEnd.PARTITION_GONE),
    "an older topic deleted": (notice(NoticeKind.DELETED, 0, topic_id="older"), 5, None),
    "another partition": (notice(NoticeKind.DELETED, 0, partition=PAYMENTS), 5, None),
    "gap": (notice(NoticeKind.GAP, 0), 5, None),
    "lost to retention": (notice(NoticeKind.LOST, 0), 5, None),
}


@pytest.mark.parametrize(("fact", "start", "how"), NOTICES.values(), ids=NOTICES.keys())
def test_notices(fact: ProducerFact, start: int | None, how: SpanEnd | None) -> None:
    state = after(seen(0, 10, data=5))
    state = replace(state, spans={ORDERS: replace(state.spans[ORDERS], emission=EMISSION, uncovered_at=4)})
    step = apply(state, fact, BARRIER)
    span = step.producer.spans.get(ORDERS)
    assert (span.start_offset if span is not None else None) == start
    assert [ended.how for ended in step.emitted if isinstance(ended, SpanEnded)] == ([how] if how is not None else [])


def test_a_truncation_starts_the_proof_again_for_the_rest_of_the_span() -> None:
    state = after(seen(0, 10, data=5))
    state = replace(state, spans={ORDERS: replace(state.spans[ORDERS], uncovered_at=4)})
    assert after(notice(NoticeKind.TRUNCATED, 8), producer=state).spans[ORDERS].uncovered_at is None


def test_a_truncation_takes_back_the_epoch_of_the_batches_that_it_took() -> None:
    state = after(seen(0, 10, data=5), seen(10, 20, data=15, epoch=2), notice(NoticeKind.TRUNCATED, 12))
    assert (state.spans[ORDERS].epoch, state.spans[ORDERS].last_offset) == (0, 5)
    state = after(seen(5, 12, data=5, epoch=0, last_epoch=1), producer=state)
    assert state.spans[ORDERS].epoch == 1, "what is left is read again"


def test_a_truncated_log_partition_is_read_again_and_the_new_reading_wins() -> None:
    state = after(transaction(9, S.ONGOING, ORDERS), log_notice(NoticeKind.TRUNCATED, 4))
    assert after(transaction(2, S.COMPLETE_ABORT), producer=state).view != state.view
    forgotten = forget_unseen(state, log_numbered(0)).producer
    assert forgotten.view is not None
    assert forgotten.view.state is S.DEAD
    assert forgotten.view.transactional_id == NAME
    seen_again = after(transaction(3, S.ONGOING, ORDERS), producer=state)
    assert forget_unseen(seen_again, log_numbered(0)).producer == seen_again
    assert forget_unseen(state, log_numbered(1)).producer == state
