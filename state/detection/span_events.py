"""What the logs and the censuses can do to an open span: one table, and the function that executes it.

proof.py has the other table: what barriers show about a span that stays open.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.step import Step
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import Finding, SpanEnd, SpanEnded
from txnwatch.state.model.ids import ProducerId, TopicPartition
from txnwatch.state.model.transaction import Marker, ProducerState, Span


class SpanEvent(StrEnum):
    """What happens to an open span; the value is used in the docs."""

    MARKER = "a marker above its start is read"
    MARKER_OF_NEXT = "a marker above its start is read, and a later transaction has absorbed the span"
    PARTITION_GONE = "its partition was deleted, or its topic re-created"
    TRUNCATED_AWAY = "the log is truncated at its start or below"
    TRUNCATED_ABOVE = "the log is truncated above its start"
    RANGE_LOST = "a range of the log is lost"
    CENSUS_WITHOUT_IT = "a census proves that it has ended, and no marker was read"
    HELD_BETWEEN_BARRIERS = "a live transaction has held its partition between two barriers"


class Effect(NamedTuple):
    """One row of the table.

    Attributes:
        end: how the span ends; None if it stays open.
        keeps_first_batch: only its first batch is still certain. No census has shown it or not shown it since.
        restarts_proof: all looks since its last proven beginning are void.
        why: text for the docs.
    """

    end: SpanEnd | None
    why: str
    keeps_first_batch: bool = False
    restarts_proof: bool = False


EFFECTS: dict[SpanEvent, Effect] = {
    SpanEvent.MARKER: Effect(
        SpanEnd.MARKER,
        "the leader compared the epochs before it appended the marker, so the epoch of the marker need not be compared",
    ),
    SpanEvent.MARKER_OF_NEXT: Effect(SpanEnd.ABSORBED, "the marker of the later transaction decides all data below it"),
    SpanEvent.PARTITION_GONE: Effect(SpanEnd.PARTITION_GONE, "its data no longer exists"),
    SpanEvent.TRUNCATED_AWAY: Effect(SpanEnd.TRUNCATED, "its data no longer exists"),
    SpanEvent.TRUNCATED_ABOVE: Effect(
        None,
        "only its first batch is certain, and earlier evaluations used another log",
        keeps_first_batch=True,
        restarts_proof=True,
    ),
    SpanEvent.RANGE_LOST: Effect(
        None,
        "only its first batch is certain, so no candidate is emitted before a census shows the same start again. The "
        "proof continues: with a partition that is behind, a range may be lost in every micro-batch, and a proof that "
        "starts again each time never ends",
        keeps_first_batch=True,
    ),
    SpanEvent.CENSUS_WITHOUT_IT: Effect(
        SpanEnd.CENSUS, "the leader's answer shows that the transaction has ended, although its marker was not read"
    ),
    SpanEvent.HELD_BETWEEN_BARRIERS: Effect(
        None,
        "the marker of that transaction may be above the end offset that the barrier has listed",
        restarts_proof=True,
    ),
}


def event_of_notice(notice: PartitionNotice, span: Span) -> SpanEvent | None:
    """What a notice about the partition means for the span; None if it means nothing."""
    match notice.kind:
        case NoticeKind.DELETED if span.topic_id == notice.topic_id:
            return SpanEvent.PARTITION_GONE
        case NoticeKind.TRUNCATED if span.start_offset >= notice.from_offset:
            return SpanEvent.TRUNCATED_AWAY
        case NoticeKind.TRUNCATED:
            return SpanEvent.TRUNCATED_ABOVE
        case NoticeKind.LOST:
            return SpanEvent.RANGE_LOST
        case _:
            return None


def after_event(producer: ProducerState, partition: TopicPartition, span: Span, event: SpanEvent) -> Step:
    """The producer after an event that no marker causes; `span` is its span on the partition."""
    effect = EFFECTS[event]
    if effect.end is not None:
        spans = {held: kept for held, kept in producer.spans.items() if held != partition}
        return Step(replace(producer, spans=spans), ended(producer.producer_id, partition, span, event))
    return Step(replace(producer, spans={**producer.spans, partition: changed(span, event)}))


def changed(span: Span, event: SpanEvent) -> Span:
    """The span after an event that leaves it open."""
    effect = EFFECTS[event]
    if effect.keeps_first_batch:
        start = span.start_offset
        span = replace(span, epoch=span.oldest_epoch, last_offset=start, census_absent_at=None, ended_at=None)
    return replace(span, uncovered_at=None, reseen_at=None) if effect.restarts_proof else span


def ended(
    producer_id: ProducerId, partition: TopicPartition, span: Span, event: SpanEvent, marker: Marker | None = None
) -> tuple[Finding, ...]:
    """The findings about the end of a span: none, unless a finding about the open span was emitted."""
    how = EFFECTS[event].end
    assert how is not None
    return (SpanEnded(producer_id, partition, span, how, marker),) if span.emission else ()
