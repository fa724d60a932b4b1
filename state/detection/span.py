"""What the logs and the censuses can do to an open span: one table, and the function that executes it.

proof.py has the other table: what barriers show about a span that stays open.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.model.facts import Joined, NoticeKind, PartitionNotice, ProducerSeen, TransactionSeen
from txnwatch.state.model.findings import Finding, Mismatch, SpanEnd, SpanEnded, StrayWrite, ViewHealed
from txnwatch.state.model.transaction import Emission, Marker, ProducerState, Span
from txnwatch.state.model.values import AT_ONCE, NO_BARRIER, BarrierNumber, ProducerId, TopicPartition

# The result of one transition of a producer's state.


class Step(NamedTuple):
    """One transition: the new state, and the findings to emit."""

    producer: ProducerState
    emitted: tuple[Finding, ...] = ()


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


# Applies facts about a partition to the open span of a producer. Pure; the table of events is above.


def after_range(
    producer: ProducerState,
    fact: ProducerSeen,
    barrier_number: BarrierNumber,
    *,
    is_consecutive: bool,
    read_since: BarrierNumber = NO_BARRIER,
) -> Step:
    """The producer after a range of a partition's log that was read in the batch of barrier `barrier_number`.

    The range begins at or above the end that the barrier `read_since` listed.
    """
    prior = producer.spans.get(fact.partition)
    if prior is not None and prior.topic_id == fact.topic_id and is_past(prior, fact):
        return Step(producer)
    emitted: tuple[Finding, ...] = ()
    if prior is not None and prior.topic_id != fact.topic_id:
        emitted = ended(producer.producer_id, fact.partition, prior, SpanEvent.PARTITION_GONE)
        prior = None
    closing = closing_marker(prior, fact)
    if prior is not None and closing is None and _begins_anew(prior, fact):
        emitted += _unseen_end(producer.producer_id, fact.partition, prior)
        prior = None
    can_join = is_consecutive and prior is not None and prior.census_absent_at is None
    joined = _joined(prior if can_join else None, fact, closing)
    is_known = joined is not None and prior is not None and prior.absorbed and joined.start_offset == prior.start_offset
    if joined is not None and not is_known:
        emitted += (_stray(producer, fact, joined, prior),)
        prior = absorbed(prior) if prior is not None and joined.start_offset == prior.start_offset else prior
    if prior is not None and closing is not None:
        event = SpanEvent.MARKER_OF_NEXT if prior.absorbed else SpanEvent.MARKER
        emitted += ended(producer.producer_id, fact.partition, prior, event, closing)
    if prior is None or closing is not None:
        span = _opened(fact, barrier_number, read_since)
    else:
        span = extended(prior, fact, read_since)
    if span is not None and joined is not None and joined.start_offset == span.start_offset:
        span = absorbed(span)
    return Step(_with_span(producer, fact.partition, span), emitted)


def after_notice(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The producer after a notice about a data partition."""
    span = producer.spans.get(notice.partition)
    event = event_of_notice(notice, span) if span is not None else None
    if span is None or event is None:
        return Step(producer)
    return after_event(producer, notice.partition, span, event)


def held_between_barriers(producer: ProducerState, fact: TransactionSeen) -> ProducerState:
    """Restarts the proof on partitions that a live transaction has held since the last look."""
    reopened = {
        partition: changed(span, SpanEvent.HELD_BETWEEN_BARRIERS)
        for partition, span in producer.spans.items()
        if partition in fact.held and span.uncovered_at is not None
    }
    return replace(producer, spans={**producer.spans, **reopened}) if reopened else producer


def dropped(producer: ProducerState, partition: TopicPartition) -> Step:
    """Drops a span: the log is read beyond the census that did not show it, and still no marker was read."""
    span = producer.spans[partition]
    step = after_event(producer, partition, span, SpanEvent.CENSUS_WITHOUT_IT)
    return Step(step.producer, _unseen_end(producer.producer_id, partition, span))


def _with_span(producer: ProducerState, partition: TopicPartition, span: Span | None) -> ProducerState:
    spans = dict(producer.spans)
    if span is None:
        spans.pop(partition, None)
    else:
        spans[partition] = span
    return ProducerState(producer.producer_id, spans, producer.view, producer.emissions)


def is_past(prior: Span, fact: ProducerSeen) -> bool:
    """Whether a range is completely below a span: a census showed the span before the scan, or it is a re-read.

    What the producer had open there has ended, or a census will show that the span begins there. The range may show it
    without its marker, which is in a later range; it must not count as the beginning of what is open now.
    """
    return prior.start_offset >= fact.range_end


def _begins_anew(prior: Span, fact: ProducerSeen) -> bool:
    """Whether new data joins nothing: a census no longer showed the span, and no marker came before the data."""
    return prior.ended_at is not None and fact.first_offset is not None and fact.first_offset > prior.last_offset


def _unseen_end(producer_id: ProducerId, partition: TopicPartition, span: Span) -> tuple[Finding, ...]:
    healed = ViewHealed(partition, producer_id, span.start_offset, Mismatch.CLOSED)
    return (*ended(producer_id, partition, span, SpanEvent.CENSUS_WITHOUT_IT), healed)


def _joined(prior: Span | None, fact: ProducerSeen, closing: Marker | None) -> Joined | None:
    """Where the range shows newer data joining older open data: in the range itself, or data open before it."""
    if prior is None or fact.first_offset is None or fact.first_offset <= prior.last_offset:
        return fact.joined
    assert fact.first_epoch is not None
    if fact.first_epoch > prior.epoch:
        return Joined(prior.start_offset, prior.oldest_epoch, fact.first_offset, fact.first_epoch, closing)
    if fact.joined is not None and fact.joined.start_offset == fact.first_offset:
        return fact.joined._replace(start_offset=prior.start_offset, start_epoch=prior.oldest_epoch)
    return fact.joined


def _stray(producer: ProducerState, fact: ProducerSeen, joined: Joined, prior: Span | None) -> StrayWrite:
    return StrayWrite(
        producer_id=producer.producer_id,
        partition=fact.partition,
        topic_id=fact.topic_id,
        joined=joined,
        view=producer.view,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=prior.first_seen_ms if prior is not None else fact.listed_ms,
    )


def absorbed(span: Span) -> Span:
    """A span whose old data a later transaction has absorbed; a finding is emitted, so its end will be too."""
    return replace(span, was_proven_unowned=True, absorbed=True, emission=span.emission or Emission(0, AT_ONCE))


def closing_marker(prior: Span | None, fact: ProducerSeen) -> Marker | None:
    """The first marker read that ends the open span: every marker ends the data below it.

    The leader compares epochs before it appends. A marker that is older than the data gets into a log if a leader had
    lost its producer state, and then no leader holds the data open any more (`ProducerAppendInfo`).
    """
    if prior is None:
        return None
    for marker in (fact.first_marker, fact.last_marker):
        if marker is not None and marker.offset > prior.start_offset:
            return marker
    return None


def _opened(fact: ProducerSeen, barrier_number: BarrierNumber, read_since: BarrierNumber) -> Span | None:
    if fact.open_offset is None:
        return None
    assert fact.last_offset is not None
    return Span(
        topic_id=fact.topic_id,
        start_offset=fact.open_offset,
        start_epoch=fact.open_epoch,
        epoch=fact.epoch,
        last_offset=fact.last_offset,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=fact.listed_ms,
        eligible_from=barrier_number,
        began_after=read_since,
    )


def extended(prior: Span, fact: ProducerSeen, read_since: BarrierNumber = NO_BARRIER) -> Span:
    """The open span after a range without a marker that ends it."""
    if fact.open_offset is None:
        return prior
    assert fact.last_offset is not None
    is_begin = fact.open_offset <= prior.start_offset  # also if a census found the span, or on a re-read
    is_same = fact.open_offset >= prior.start_offset  # identified by its start: earlier censuses still count
    later = fact.last_offset >= prior.last_offset  # the last batch decides, as at the leader: epochs can go back
    return replace(
        prior,
        start_offset=min(prior.start_offset, fact.open_offset),
        start_epoch=fact.open_epoch if is_begin else prior.start_epoch,
        epoch=fact.epoch if later else prior.epoch,
        last_offset=max(prior.last_offset, fact.last_offset),
        last_timestamp_ms=fact.last_timestamp_ms if later else prior.last_timestamp_ms,
        began_after=_began_after(prior, read_since, is_begin=is_begin),
        by_census=False,
        is_ahead_of_scan=False,
        reseen_at=prior.reseen_at if is_same else None,
    )


def _began_after(prior: Span, read_since: BarrierNumber, *, is_begin: bool) -> BarrierNumber:
    """After which barrier the span began, once a range has shown its first batch, or only later ones."""
    if not is_begin:
        return prior.began_after
    return read_since if prior.by_census else min(prior.began_after, read_since)
