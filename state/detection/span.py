"""What the logs and the censuses do to the spans of one producer: a table, the function that executes it, and a census.

proof.py has the other table: what barriers show about a span that stays open.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    Joined,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
)
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
    NOT_LISTED = "a complete round of the census does not have its partition, and only a census knows the span"
    TRUNCATED_AWAY = "the log is truncated at its start or below"
    TRUNCATED_ABOVE = "the log is truncated above its start"
    RANGE_LOST = "a range of the log is lost"
    CENSUS_WITHOUT_IT = "a census proves that it has ended, and no marker was read"
    HELD_BETWEEN_BARRIERS = "a live transaction has held its partition between two barriers"
    SCAN_ENDS = "its partition is no longer scanned"
    SCAN_BEGINS = "the scan of its partition begins at its start or below"
    SCAN_BEGINS_ABOVE = "the scan of its partition begins above its start"


class ShownBy(StrEnum):
    """What shows whether a span is open."""

    CENSUS = "a census, because its partition is not scanned"
    SCAN_AHEAD = "a census, until the scan has read its beginning"


class Effect(NamedTuple):
    """One row of the table.

    Attributes:
        end: how the span ends; None if it stays open.
        keeps_first_batch: only its first batch is still certain. No census has shown it or not shown it since.
        restarts_proof: all looks since its last proven beginning are void.
        shown_by: what shows from now on whether it is open; None if that stays.
        why: text for the docs.
    """

    end: SpanEnd | None
    why: str
    keeps_first_batch: bool = False
    restarts_proof: bool = False
    shown_by: ShownBy | None = None


EFFECTS: dict[SpanEvent, Effect] = {
    SpanEvent.MARKER: Effect(
        SpanEnd.MARKER,
        "the leader compared the epochs before it appended the marker, so the epoch of the marker need not be compared",
    ),
    SpanEvent.MARKER_OF_NEXT: Effect(SpanEnd.ABSORBED, "the marker of the later transaction decides all data below it"),
    SpanEvent.PARTITION_GONE: Effect(SpanEnd.PARTITION_GONE, "its data no longer exists"),
    SpanEvent.NOT_LISTED: Effect(
        SpanEnd.NOT_LISTED,
        "its topic is deleted, or it was hidden when txnwatch started: a fresh read that names it decides about the "
        "incident. A census opens the span again once the topic is shown",
    ),
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
    SpanEvent.SCAN_ENDS: Effect(
        None, "its marker will not be read; a census shows whether it is open. Its looks count", shown_by=ShownBy.CENSUS
    ),
    SpanEvent.SCAN_BEGINS: Effect(
        None, "the scan will read it; until then censuses show it, and its looks count", shown_by=ShownBy.SCAN_AHEAD
    ),
    SpanEvent.SCAN_BEGINS_ABOVE: Effect(
        SpanEnd.CENSUS, "the last stable offset has passed it, so it has ended, and its marker is not read"
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
    if effect.shown_by is not None:
        is_ahead, seen_at = effect.shown_by is ShownBy.SCAN_AHEAD, NO_BARRIER if span.seen_at is None else span.seen_at
        span = replace(span, by_census=True, is_ahead_of_scan=is_ahead, seen_at=seen_at, began_after=NO_BARRIER)
    return replace(span, uncovered_at=None, reseen_at=None) if effect.restarts_proof else span


def ended(
    producer_id: ProducerId, partition: TopicPartition, span: Span, event: SpanEvent, marker: Marker | None = None
) -> tuple[Finding, ...]:
    """The findings about the end of a span: none, unless a finding about the open span was emitted."""
    if not span.emission:
        return ()
    how = EFFECTS[event].end
    assert how is not None
    return (SpanEnded(producer_id, partition, span, how, marker),)


# Applies facts about a partition to the open span of a producer. Pure; the table of events is above.


def leaves_nothing(fact: ProducerSeen) -> bool:
    """Whether a range changes nothing about a producer without a span on its partition: what it has, it also ends."""
    return fact.open_offset is None and fact.joined is None


def after_ranges(
    producer: ProducerState, ranges: Iterable[tuple[ProducerSeen, bool, BarrierNumber]], barrier_number: BarrierNumber
) -> Step:
    """The producer after ranges of partitions' logs that were read in the batch of barrier `barrier_number`.

    Each range has its `is_consecutive` and `read_since` (see `apply` in view.py). It begins at or above the end that
    the barrier `read_since` listed.
    """
    spans, emitted = dict(producer.spans), list[Finding]()
    for fact, is_consecutive, read_since in ranges:
        partition = fact.partition
        prior = spans.get(partition)
        if prior is None and fact.joined is None:  # as usual
            span = _opened(fact, barrier_number, read_since)
        else:
            span, findings = _followed(producer, prior, fact, barrier_number, is_consecutive, read_since)
            emitted.extend(findings)
        if span is not None:
            spans[partition] = span
        elif prior is not None:
            del spans[partition]
    after = ProducerState(producer.producer_id, spans, producer.view, producer.emissions, producer.begun)
    return Step(after, tuple(emitted))


def _followed(
    producer: ProducerState,
    prior: Span | None,
    fact: ProducerSeen,
    barrier_number: BarrierNumber,
    is_consecutive: bool,  # noqa: FBT001 - one call a range
    read_since: BarrierNumber,
) -> tuple[Span | None, tuple[Finding, ...]]:
    """The span after a range, and what the range shows about the one before."""
    if prior is not None and prior.topic_id == fact.topic_id and is_past(prior, fact):
        return prior, ()
    emitted: tuple[Finding, ...] = ()
    if prior is not None and prior.topic_id != fact.topic_id:
        emitted = ended(producer.producer_id, fact.partition, prior, SpanEvent.PARTITION_GONE)
        prior = None
    closed = closed_by(prior, fact)
    if closed is not None and not is_consecutive:
        closed = Closed(None)  # what was not read may have the marker
    if prior is not None and closed is None and _begins_anew(prior, fact):
        emitted += _unseen_end(producer.producer_id, fact.partition, prior)
        prior = None
    can_join = is_consecutive and prior is not None and prior.census_absent_at is None
    joined = _joined(prior if can_join else None, fact, closed)
    is_known = joined is not None and prior is not None and prior.absorbed and joined.start_offset == prior.start_offset
    if joined is not None and not is_known:
        emitted += (_stray(producer, fact, joined, prior),)
        prior = absorbed(prior) if prior is not None and joined.start_offset == prior.start_offset else prior
    if prior is not None and closed is not None:
        event = SpanEvent.MARKER_OF_NEXT if prior.absorbed else SpanEvent.MARKER
        emitted += ended(producer.producer_id, fact.partition, prior, event, closed.marker)
    if prior is None or closed is not None:
        span = _opened(fact, barrier_number, read_since)
    else:
        span = extended(prior, fact, read_since)
    if span is not None and joined is not None and joined.start_offset == span.start_offset:
        span = absorbed(span)
    return span, emitted


def after_notice(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The producer after a notice about a data partition."""
    span = producer.spans.get(notice.partition)
    event = event_of_notice(notice, span) if span is not None else None
    if span is None or event is None:
        return Step(producer)
    return after_event(producer, notice.partition, span, event)


def after_change_of_scan(producer: ProducerState, barrier: Barrier) -> Step:
    """The producer after the scans of some partitions have begun or ended with this barrier.

    A scan that begins again begins at the last stable offset: what is open below it is none. Its first range does not
    follow what was known, so no marker in it is taken for the end of an older span.
    """
    emitted: tuple[Finding, ...] = ()
    for partition, span in producer.spans.items():
        event = SpanEvent.SCAN_ENDS if partition in barrier.looked_at else None
        if partition in barrier.begun:
            is_above = span.start_offset < barrier.begun[partition]
            event = SpanEvent.SCAN_BEGINS_ABOVE if is_above else SpanEvent.SCAN_BEGINS
        if event is not None:
            step = after_event(producer, partition, span, event)
            producer, emitted = step.producer, (*emitted, *step.emitted)
    return Step(producer, emitted)


def held_between_barriers(producer: ProducerState, held: Container[TopicPartition]) -> ProducerState:
    """Restarts the proof on partitions that a live transaction has held since the last look."""
    if not producer.spans:
        return producer
    reopened = {
        partition: changed(span, SpanEvent.HELD_BETWEEN_BARRIERS)
        for partition, span in producer.spans.items()
        if partition in held and span.uncovered_at is not None
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
    return ProducerState(producer.producer_id, spans, producer.view, producer.emissions, producer.begun)


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


def _joined(prior: Span | None, fact: ProducerSeen, closed: Closed | None) -> Joined | None:
    """Where the range shows newer data joining older open data: in the range itself, or data open before it."""
    if prior is None or fact.first_offset is None or fact.first_offset <= prior.last_offset:
        return fact.joined
    assert fact.first_epoch is not None
    if fact.first_epoch > prior.epoch:
        marker = closed.marker if closed is not None else None
        return Joined(prior.start_offset, prior.oldest_epoch, fact.first_offset, fact.first_epoch, marker)
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


class Closed(NamedTuple):
    """The end of a span by a marker of a range; None if the range does not show which of its markers it was."""

    marker: Marker | None


def closed_by(prior: Span | None, fact: ProducerSeen) -> Closed | None:
    """How a range closes the open span: by the first marker above its start; every marker ends the data below it.

    The leader compares epochs before it appends. A marker that is older than the data gets into a log if a leader had
    lost its producer state, and then no leader holds the data open any more (`ProducerAppendInfo`).

    A range names its first and its last marker. Of a span that begins between them, because a census has shown it ahead
    of the scan or it is a re-read, another marker may be the first one above its start. The last marker is that one
    only if the data that it closed begins at the span's start or below.
    """
    first, last, joined = fact.first_marker, fact.last_marker, fact.joined
    if prior is None:
        return None
    start = prior.start_offset
    if first is not None and first.offset > start:
        return Closed(first)
    if last is None or last.offset <= start:
        return None
    if joined is not None and joined.marker is not None and joined.start_offset <= start < joined.marker.offset:
        return Closed(joined.marker)
    return Closed(last if fact.closed_offset is not None and fact.closed_offset <= start else None)


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
        began_after=barrier_before(fact, read_since),
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
        began_after=_began_after(prior, barrier_before(fact, read_since), is_begin=is_begin),
        by_census=False,
        is_ahead_of_scan=False,
        reseen_at=prior.reseen_at if is_same else None,
    )


def barrier_before(fact: ProducerSeen, read_since: BarrierNumber) -> BarrierNumber:
    """After which barrier the open data of a range began: its place alone does not prove that it is that young."""
    return NO_BARRIER if fact.may_be_older else read_since


def _began_after(prior: Span, read_since: BarrierNumber, *, is_begin: bool) -> BarrierNumber:
    """After which barrier the span began, once a range has shown its first batch, or only later ones."""
    if not is_begin:
        return prior.began_after
    return read_since if prior.by_census else min(prior.began_after, read_since)


# What a census means for the spans of one producer: it opens those that we missed and closes those that are over.
#
# A census is DescribeProducers at each leader: a producer snapshot from the leader's memory, without an offset. So it
# is read between two listings under one leader epoch: end L before, the last stable offset after. Everything below L
# was committed when the leader answered, so:
#   * what it shows as open, beginning below L, is open; the log may have lost its beginning, or we may have missed its
#     marker;
#   * a span that is open in our state below L, and that it does not show, has ended, though perhaps by a marker above
#     the high watermark, which can still be lost. From then on the span is no candidate. It has certainly ended if it
#     begins below the last stable offset listed afterwards, or if a second census does not show it either. On a scanned
#     partition it is then dropped once the log is read to an end listed later; normally its marker is read on the way
#     and nothing is dropped. On a partition that is not scanned, the census replaces the log.
#
# A scanned partition that is behind (a limit has stopped its reading, here at P < L) has both. For what is open below
# L, the census replaces the log. A span that it opens is marked as ahead, because the scan will reach it. A span that
# the scan has opened, below P, can be seen again by the census, which helps to prove it, because a span is identified
# by its start. If the census no longer shows it, no candidate is emitted. But the census cannot drop it: the marker
# that ended it is above P, will be read, and shows how it ended. The log decides nothing there until it is read to its
# end. The hand-over needs no step of its own: a span that is ahead belongs to the scan once the scan has read its
# beginning, with all looks that it had.
#
# A span that begins at L or above is left to the log, or to the next census. A census is later than all listings of its
# batch, so a span that it opens is evaluated from the next barrier on: T of its own batch is older than the
# observation.


def described_open(producer: ProducerState, fact: OpenDescribed, listing: CensusListing, number: BarrierNumber) -> Step:
    """The producer after a census of batch `number` showed its transaction as open, beginning below L."""
    prior = producer.spans.get(fact.partition)
    if prior is None or prior.topic_id != listing.topic_id or _is_another(prior, fact):
        return _opened_by_census(producer, prior, fact, listing, number)
    if listing.is_scanned and _is_as_read(prior, fact):
        return Step(producer)
    is_another = prior.start_offset != fact.start_offset  # a span is identified by its start: the proof restarts
    is_reading = not listing.is_scanned  # if the partition is scanned and read this far, the log decides
    seen_again = is_reading and prior.uncovered_at is not None and prior.reseen_at is None
    emitted: tuple[Finding, ...] = ()
    if fact.producer_epoch > prior.epoch:  # data of a newer epoch, which we have not read, has joined it
        emitted = () if prior.absorbed else (_joined_unseen(producer, fact, listing, prior),)
        prior = absorbed(prior)
    span = replace(
        prior,
        start_offset=fact.start_offset,
        start_epoch=None if is_another else prior.start_epoch,
        epoch=fact.producer_epoch,
        began_after=NO_BARRIER if is_another else prior.began_after,
        by_census=prior.by_census and is_reading,
        is_ahead_of_scan=prior.is_ahead_of_scan and is_reading,
        seen_at=number if is_reading else prior.seen_at,
        eligible_from=number + 1 if is_another else prior.eligible_from,
        uncovered_at=None if is_another else prior.uncovered_at,
        reseen_at=number if seen_again and not is_another else prior.reseen_at,
        census_absent_at=None,
        ended_at=None,
    )
    return Step(_with_span(producer, fact.partition, span), emitted)


def _is_as_read(prior: Span, fact: OpenDescribed) -> bool:
    """Whether a census of a scanned partition only repeats what the log has shown; this is the usual case."""
    is_same = (prior.start_offset, prior.epoch) == (fact.start_offset, fact.producer_epoch)
    return is_same and not prior.by_census and prior.census_absent_at is None and prior.ended_at is None


def _is_another(prior: Span, fact: OpenDescribed) -> bool:
    """Whether this is another span: one with a later start, or with another start than an earlier census gave."""
    return prior.start_offset < fact.start_offset or (prior.by_census and prior.start_offset != fact.start_offset)


def _joined_unseen(producer: ProducerState, fact: OpenDescribed, listing: CensusListing, prior: Span) -> StrayWrite:
    return StrayWrite(
        producer_id=producer.producer_id,
        partition=fact.partition,
        topic_id=listing.topic_id,
        joined=Joined(fact.start_offset, prior.oldest_epoch, None, fact.producer_epoch),
        view=producer.view,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=prior.first_seen_ms,
    )


def _opened_by_census(
    producer: ProducerState, prior: Span | None, fact: OpenDescribed, listing: CensusListing, number: BarrierNumber
) -> Step:
    is_same_topic = prior is not None and prior.topic_id == listing.topic_id
    event = SpanEvent.CENSUS_WITHOUT_IT if is_same_topic else SpanEvent.PARTITION_GONE
    emitted = ended(producer.producer_id, fact.partition, prior, event) if prior is not None else ()
    if listing.is_scanned and not listing.is_first:
        healed = ViewHealed(fact.partition, producer.producer_id, fact.start_offset, Mismatch.OPEN)
        emitted = (*emitted, healed)
    span = Span(
        topic_id=listing.topic_id,
        start_offset=fact.start_offset,
        start_epoch=None,
        epoch=fact.producer_epoch,
        last_offset=fact.start_offset,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=fact.listed_ms,
        eligible_from=number if fact.start_offset == listing.stands_at else BarrierNumber(number + 1),
        by_census=not listing.is_scanned,
        is_ahead_of_scan=listing.is_behind,
        seen_at=None if listing.is_scanned else number,
    )
    return Step(_with_span(producer, fact.partition, span), emitted)


def not_there(producer: ProducerState, partition: TopicPartition) -> Step:
    """The producer after a complete round of the census that does not have the partition of its span."""
    return after_event(producer, partition, producer.spans[partition], SpanEvent.NOT_LISTED)


def not_described(
    producer: ProducerState, partition: TopicPartition, listing: CensusListing, number: BarrierNumber
) -> Step:
    """The producer after a census of batch `number` that does not show its span."""
    span = producer.spans[partition]
    if span.topic_id != listing.topic_id:
        return after_event(producer, partition, span, SpanEvent.PARTITION_GONE)
    if span.start_offset >= listing.below:
        # The log was truncated. The scan goes back, and opens again what it reads above that point.
        return after_event(producer, partition, span, SpanEvent.TRUNCATED_AWAY)
    is_below_stable = listing.stable is not None and span.start_offset < listing.stable
    is_over = is_below_stable or span.census_absent_at is not None
    if is_over and span.by_census and not listing.is_scanned:
        return after_event(producer, partition, span, SpanEvent.CENSUS_WITHOUT_IT)
    span = replace(
        span,
        census_absent_at=number if span.census_absent_at is None else span.census_absent_at,
        ended_at=number if is_over and listing.is_scanned and span.ended_at is None else span.ended_at,
        by_census=span.by_census and not listing.is_scanned,
        is_ahead_of_scan=span.is_ahead_of_scan and not listing.is_scanned,
        uncovered_at=None,
        reseen_at=None,
    )
    return Step(_with_span(producer, partition, span))


def doubted(producer: ProducerState, partition: TopicPartition) -> Step:
    """The producer after an election: its span may be open again, if the log was truncated where it was unread.

    The span may also be over: no candidate is emitted, and nothing is dropped, until another census.
    """
    span = producer.spans.get(partition)
    if span is None or span.ended_at is None:
        return Step(producer)
    return Step(_with_span(producer, partition, replace(span, ended_at=None)))
