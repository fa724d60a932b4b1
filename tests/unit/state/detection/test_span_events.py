"""The table of events: what each does to an open span, to its proof, and to what is published."""

from __future__ import annotations

import pytest

from support.facts import ORDERS, notice
from txnwatch.state.detection.span import EFFECTS, SpanEvent, after_event, event_of_notice
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import SpanEnd, SpanEnded
from txnwatch.state.model.transaction import Emission, ProducerState, Span

E = SpanEvent
SPAN = Span(
    "one", 5, 0, 3, 9, 0, 0, 1, uncovered_at=2, reseen_at=3, census_absent_at=4, ended_at=4, emission=Emission(1, 0)
)
LEFT_OPEN = [event for event in SpanEvent if EFFECTS[event].end is None]


def test_every_event_has_an_effect_and_every_end_an_event() -> None:
    assert EFFECTS.keys() == set(SpanEvent)
    assert {effect.end for effect in EFFECTS.values()} - {None} == set(SpanEnd)


@pytest.mark.parametrize("event", [event for event in SpanEvent if event not in LEFT_OPEN])
def test_an_end_removes_the_span_and_is_emitted_only_if_the_span_was_reported(event: SpanEvent) -> None:
    producer, emitted = after_event(ProducerState(7, {ORDERS: SPAN}), ORDERS, SPAN, event)
    assert producer.spans == {}
    (end,) = emitted
    assert isinstance(end, SpanEnded)
    assert end.how is EFFECTS[event].end
    silent = Span("one", 5, 0, 3, 9, 0, 0, 1)
    assert after_event(ProducerState(7, {ORDERS: silent}), ORDERS, silent, event).emitted == ()


# The end offset, the first look, and whether an end by a census is still noted.
OPEN_STILL = {
    E.TRUNCATED_ABOVE: (5, None, False),
    E.RANGE_LOST: (5, 2, False),
    E.HELD_BETWEEN_BARRIERS: (9, None, True),
    E.SCAN_ENDS: (9, 2, True),
    E.SCAN_BEGINS: (9, 2, True),
}


@pytest.mark.parametrize("event", LEFT_OPEN)
def test_these_events_leave_the_span_open(event: SpanEvent) -> None:
    producer, emitted = after_event(ProducerState(7, {ORDERS: SPAN}), ORDERS, SPAN, event)
    span = producer.spans[ORDERS]
    assert (span.last_offset, span.uncovered_at, span.ended_at is not None) == OPEN_STILL[event]
    assert emitted == ()


NOTICES = {
    "deleted": (notice(NoticeKind.DELETED, 0, topic_id="one"), E.PARTITION_GONE),
    "another topic of the name was deleted": (notice(NoticeKind.DELETED, 0, topic_id="another"), None),
    "truncated below": (notice(NoticeKind.TRUNCATED, 4), E.TRUNCATED_AWAY),
    "truncated at its start": (notice(NoticeKind.TRUNCATED, 5), E.TRUNCATED_AWAY),
    "truncated above": (notice(NoticeKind.TRUNCATED, 6), E.TRUNCATED_ABOVE),
    "a range lost": (notice(NoticeKind.LOST, 7), E.RANGE_LOST),
    "a gap, which is read again": (notice(NoticeKind.GAP, 7), None),
}


@pytest.mark.parametrize(("reported", "event"), NOTICES.values(), ids=NOTICES.keys())
def test_a_notice_causes_the_expected_event_of_a_span(reported: PartitionNotice, event: SpanEvent | None) -> None:
    assert event_of_notice(reported, SPAN) is event
