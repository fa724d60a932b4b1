"""What a census means for one producer's spans: it opens those that we missed and closes those that are over.

Apart: it is about one producer, and bucket.py about all producers of a bucket.

A census is DescribeProducers at each leader: a producer snapshot from the leader's memory, without an offset. So it is
read between two listings under one leader epoch: end L before, the last stable offset after. Everything below L was
committed when the leader answered, so:
  * what it shows as open, beginning below L, is open; the log may have lost its beginning, or we may have missed its
  marker;
  * a span that is open in our state below L, and that it does not show, has ended, though perhaps by a marker above the
    high watermark, which can still be lost. From then on the span is no candidate. It has certainly ended if it begins
    below the last stable offset listed afterwards, or if a second census does not show it either. On a scanned
    partition it is then dropped once the log is read to an end listed later; normally its marker is read on the way and
    nothing is dropped. On a partition that is not scanned, the census replaces the log.

A scanned partition that is behind (a limit has stopped its reading, here at P < L) has both. For what is open below L,
the census replaces the log. A span that it opens is marked as ahead, because the scan will reach it. A span that the
scan has opened, below P, can be seen again by the census, which helps to prove it, because a span is identified by its
start. If the census no longer shows it, no candidate is emitted. But the census cannot drop it: the marker that ended
it is above P, will be read, and shows how it ended. The log decides nothing there until it is read to its end. The
hand-over needs no step of its own: a span that is ahead belongs to the scan once the scan has read its beginning, with
all looks that it had (span.py).

A span that begins at L or above is left to the log, or to the next census. A census is later than all listings of its
batch, so a span that it opens is evaluated from the next barrier on: T of its own batch is older than the observation.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.span import SpanEvent, Step, absorbed, after_event, ended
from txnwatch.state.model.facts import CensusListing, Joined, OpenDescribed
from txnwatch.state.model.findings import Finding, Mismatch, StrayWrite, ViewHealed
from txnwatch.state.model.transaction import ProducerState, Span
from txnwatch.state.model.values import NO_BARRIER, BarrierNumber, TopicPartition


def described_open(producer: ProducerState, fact: OpenDescribed, bracket: CensusListing, number: BarrierNumber) -> Step:
    """The producer after a census of batch `number` showed its transaction as open, beginning below L."""
    prior = producer.spans.get(fact.partition)
    if prior is None or prior.topic_id != bracket.topic_id or _is_another(prior, fact):
        return _opened(producer, prior, fact, bracket, number)
    if bracket.is_scanned and _is_as_read(prior, fact):
        return Step(producer)
    is_another = prior.start_offset != fact.start_offset  # a span is identified by its start: the proof restarts
    is_reading = not bracket.is_scanned  # if the partition is scanned and read this far, the log decides
    seen_again = is_reading and prior.uncovered_at is not None and prior.reseen_at is None
    emitted: tuple[Finding, ...] = ()
    if fact.producer_epoch > prior.epoch:  # data of a newer epoch, which we have not read, has joined it
        emitted = () if prior.absorbed else (_joined_unseen(producer, fact, bracket, prior),)
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
    return Step(_with(producer, fact.partition, span), emitted)


def _is_as_read(prior: Span, fact: OpenDescribed) -> bool:
    """Whether a census of a scanned partition only repeats what the log has shown; this is the usual case."""
    is_same = (prior.start_offset, prior.epoch) == (fact.start_offset, fact.producer_epoch)
    return is_same and not prior.by_census and prior.census_absent_at is None and prior.ended_at is None


def _is_another(prior: Span, fact: OpenDescribed) -> bool:
    """Whether this is another span: one with a later start, or with another start than an earlier census gave."""
    return prior.start_offset < fact.start_offset or (prior.by_census and prior.start_offset != fact.start_offset)


def _joined_unseen(producer: ProducerState, fact: OpenDescribed, bracket: CensusListing, prior: Span) -> StrayWrite:
    return StrayWrite(
        producer_id=producer.producer_id,
        partition=fact.partition,
        topic_id=bracket.topic_id,
        joined=Joined(fact.start_offset, prior.oldest_epoch, None, fact.producer_epoch),
        view=producer.view,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=prior.first_seen_ms,
    )


def _opened(
    producer: ProducerState, prior: Span | None, fact: OpenDescribed, bracket: CensusListing, number: BarrierNumber
) -> Step:
    is_same_topic = prior is not None and prior.topic_id == bracket.topic_id
    event = SpanEvent.CENSUS_WITHOUT_IT if is_same_topic else SpanEvent.PARTITION_GONE
    emitted = ended(producer.producer_id, fact.partition, prior, event) if prior is not None else ()
    if bracket.is_scanned and not bracket.is_first:
        healed = ViewHealed(fact.partition, producer.producer_id, fact.start_offset, Mismatch.OPEN)
        emitted = (*emitted, healed)
    span = Span(
        topic_id=bracket.topic_id,
        start_offset=fact.start_offset,
        start_epoch=None,
        epoch=fact.producer_epoch,
        last_offset=fact.start_offset,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=fact.listed_ms,
        eligible_from=BarrierNumber(number + 1),
        by_census=not bracket.is_scanned,
        is_ahead_of_scan=bracket.is_behind,
        seen_at=None if bracket.is_scanned else number,
    )
    return Step(_with(producer, fact.partition, span), emitted)


def not_there(producer: ProducerState, partition: TopicPartition) -> Step:
    """The producer after a complete round of the census that found no such partition; only a census knows its span."""
    return after_event(producer, partition, producer.spans[partition], SpanEvent.PARTITION_GONE)


def not_described(
    producer: ProducerState, partition: TopicPartition, bracket: CensusListing, number: BarrierNumber
) -> Step:
    """The producer after a census of batch `number` that does not show its span."""
    span = producer.spans[partition]
    if span.topic_id != bracket.topic_id:
        return after_event(producer, partition, span, SpanEvent.PARTITION_GONE)
    if span.start_offset >= bracket.below:
        # The log was truncated. The scan goes back, and opens again what it reads above that point.
        return after_event(producer, partition, span, SpanEvent.TRUNCATED_AWAY)
    is_below_stable = bracket.stable is not None and span.start_offset < bracket.stable
    is_over = is_below_stable or span.census_absent_at is not None
    if is_over and span.by_census and not bracket.is_scanned:
        return after_event(producer, partition, span, SpanEvent.CENSUS_WITHOUT_IT)
    span = replace(
        span,
        census_absent_at=number if span.census_absent_at is None else span.census_absent_at,
        ended_at=number if is_over and bracket.is_scanned and span.ended_at is None else span.ended_at,
        by_census=span.by_census and not bracket.is_scanned,
        is_ahead_of_scan=span.is_ahead_of_scan and not bracket.is_scanned,
        uncovered_at=None,
        reseen_at=None,
    )
    return Step(_with(producer, partition, span))


def doubted(producer: ProducerState, partition: TopicPartition) -> Step:
    """The producer after an election: its span may be open again, if the log was truncated where it was unread.

    The span may also be over: no candidate is emitted, and nothing is dropped, until another census.
    """
    span = producer.spans.get(partition)
    if span is None or span.ended_at is None:
        return Step(producer)
    return Step(_with(producer, partition, replace(span, ended_at=None)))


def _with(producer: ProducerState, partition: TopicPartition, span: Span) -> ProducerState:
    return replace(producer, spans={**producer.spans, partition: span})
