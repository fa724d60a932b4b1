"""The scan of a partition ends, or begins again: what is open stays open, and nothing is proven by it."""

from __future__ import annotations

from support.facts import ORDERS, PAYMENTS
from txnwatch.state.detection.span import after_change_of_scan
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import SpanEnd, SpanEnded
from txnwatch.state.model.transaction import Emission, ProducerState, Span
from txnwatch.state.model.values import AT_ONCE, NO_BARRIER, Offset

READ = Span("id", 5, 0, 3, 9, 0, 0, 1, began_after=4, uncovered_at=6, emission=Emission(0, AT_ONCE))


def producer(span: Span) -> ProducerState:
    return ProducerState(7, {ORDERS: span, PAYMENTS: READ})


def test_what_was_read_belongs_to_the_census_when_the_scan_ends() -> None:
    step = after_change_of_scan(producer(READ), Barrier(8, 0, 0, looked_at=frozenset({ORDERS})))
    span = step.producer.spans[ORDERS]
    assert (span.by_census, span.is_ahead_of_scan, span.seen_at) == (True, False, NO_BARRIER)
    assert (span.start_offset, span.uncovered_at, span.emission) == (5, 6, READ.emission), "its looks count"
    assert span.began_after == NO_BARRIER, "what another leader has there is not read"
    assert step.producer.spans[PAYMENTS] == READ
    assert step.emitted == ()


def test_what_is_above_the_beginning_is_left_to_the_scan_and_what_is_below_is_over() -> None:
    looked = after_change_of_scan(producer(READ), Barrier(8, 0, 0, looked_at=frozenset({ORDERS}))).producer
    at = after_change_of_scan(looked, Barrier(9, 0, 0, begun={ORDERS: Offset(5)}))
    span = at.producer.spans[ORDERS]
    assert (span.by_census, span.is_ahead_of_scan, span.uncovered_at) == (True, True, 6)
    above = after_change_of_scan(looked, Barrier(9, 0, 0, begun={ORDERS: Offset(6)}))
    assert above.producer.spans == {PAYMENTS: READ}
    (ended,) = above.emitted
    assert isinstance(ended, SpanEnded)
    assert (ended.how, ended.marker) == (SpanEnd.CENSUS, None)


def test_nothing_else_changes() -> None:
    before = producer(READ)
    assert after_change_of_scan(before, Barrier(8, 0, 0)).producer is before
