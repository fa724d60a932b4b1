"""What a bracketed census makes of one producer's spans: it opens what we missed and closes what is over.

DescribeProducers answers from the leader's memory and names no offset. So it is read between two listings under one
leader epoch: end L before, the last stable offset after. Below L all was committed when the leader answered, hence:
  * what it shows as open and begins below L is open; the log may have lost its beginning, or we its marker;
  * what we hold open below L and it does not show has ended, though perhaps by a marker above the high watermark,
    which may still be lost. It is no candidate from then on. It has surely ended if it begins below the last stable
    offset listed afterwards, or if a second census does not show it either. On a scanned partition it is then
    dropped once the log is read to an end listed later: normally its marker is read on the way and nothing is
    dropped at all. Where there is no scan the census is the reading.

A scanned partition that is behind (a limit has cut its reading, here at P < L) has both. For what is open below L the
census is the reading; what it opens is marked as ahead, because the scan will come to it. What the scan has opened,
below P, it can see again and so help to prove, since a span is known by its start; it can say that it no longer sees
it, and then nothing is told of it; but it cannot drop it: the marker that ended it lies above P, will be read, and says
how. Nothing is decided by the log there until it is read to its end. The hand-over takes no step of its own: a span
that is ahead is the scan's own once the scan has read its beginning, with all looks it had (transitions.py).

What begins at L or above is left to the log, or to the next census. A census is later than all its batch has listed,
so a span it opens is looked at from the next barrier on: T of its own batch is older than the observation.
"""

from __future__ import annotations

from dataclasses import replace

from txnwatch.state.detection.transitions import Step, ended, taken_in, without
from txnwatch.state.model.facts import Bracket, Joined, OpenDescribed
from txnwatch.state.model.findings import Emitted, Mismatch, SpanEnd, StrayWrite, ViewHealed
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.transaction import UNREAD, ProducerState, Span


def described_open(producer: ProducerState, fact: OpenDescribed, bracket: Bracket, number: int) -> Step:
    """The producer after a census of batch `number` showed its transaction as open, beginning below L."""
    prior = producer.spans.get(fact.partition)
    if prior is None or prior.topic_id != bracket.topic_id or _is_another(prior, fact):
        return _opened(producer, prior, fact, bracket, number)
    if bracket.is_scanned and _is_as_read(prior, fact):
        return Step(producer)
    is_another = prior.start_offset != fact.start_offset  # a span is known by its start: the proof begins anew
    is_reading = not bracket.is_scanned  # of a scanned partition that is read so far, the log decides
    seen_again = is_reading and prior.uncovered_at is not None and prior.reseen_at is None
    emitted: tuple[Emitted, ...] = ()
    if fact.producer_epoch > prior.epoch:  # data of a newer epoch, which we have not read, has joined it
        emitted = () if prior.absorbed else (_joined_unseen(producer, fact, bracket, prior),)
        prior = taken_in(prior)
    span = replace(
        prior,
        start_offset=fact.start_offset,
        start_epoch=UNREAD if is_another else prior.start_epoch,
        epoch=fact.producer_epoch,
        by_census=prior.by_census and is_reading,
        is_ahead=prior.is_ahead and is_reading,
        seen_at=number if is_reading else prior.seen_at,
        eligible_from=number + 1 if is_another else prior.eligible_from,
        uncovered_at=None if is_another else prior.uncovered_at,
        reseen_at=number if seen_again and not is_another else prior.reseen_at,
        absent_at=None,
        over_at=None,
    )
    return Step(_with(producer, fact.partition, span), emitted)


def _is_as_read(prior: Span, fact: OpenDescribed) -> bool:
    """Whether a census of a scanned partition only repeats what reading has told: as a rule."""
    is_same = (prior.start_offset, prior.epoch) == (fact.start_offset, fact.producer_epoch)
    return is_same and not prior.by_census and prior.absent_at is None and prior.over_at is None


def _is_another(prior: Span, fact: OpenDescribed) -> bool:
    """A later start is another span. So is an earlier one of a span whose start its leader told before."""
    return prior.start_offset < fact.start_offset or (prior.by_census and prior.start_offset != fact.start_offset)


def _joined_unseen(producer: ProducerState, fact: OpenDescribed, bracket: Bracket, prior: Span) -> StrayWrite:
    return StrayWrite(
        producer_id=producer.producer_id,
        partition=fact.partition,
        topic_id=bracket.topic_id,
        joined=Joined(fact.start_offset, prior.oldest_epoch, -1, fact.producer_epoch),
        view=producer.view,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=prior.first_seen_ms,
    )


def _opened(producer: ProducerState, prior: Span | None, fact: OpenDescribed, bracket: Bracket, number: int) -> Step:
    how = SpanEnd.CENSUS if prior is not None and prior.topic_id == bracket.topic_id else SpanEnd.PARTITION_GONE
    emitted = ended(producer.producer_id, fact.partition, prior, how) if prior is not None else ()
    if bracket.is_scanned and not bracket.is_first:
        healed = ViewHealed(fact.partition, producer.producer_id, fact.start_offset, Mismatch.OPEN)
        emitted = (*emitted, healed)
    span = Span(
        topic_id=bracket.topic_id,
        start_offset=fact.start_offset,
        start_epoch=UNREAD,
        epoch=fact.producer_epoch,
        last_offset=fact.start_offset,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=fact.listed_ms,
        eligible_from=number + 1,
        by_census=not bracket.is_scanned,
        is_ahead=bracket.is_behind,
        seen_at=-1 if bracket.is_scanned else number,
    )
    return Step(_with(producer, fact.partition, span), emitted)


def not_there(producer: ProducerState, partition: TopicPartition) -> Step:
    """The producer after a whole round that knows no such partition."""
    span = producer.spans[partition]
    return (
        without(producer, partition, span, SpanEnd.PARTITION_GONE)
        if span.by_census and not span.is_ahead
        else Step(producer)
    )


def not_described(producer: ProducerState, partition: TopicPartition, bracket: Bracket, number: int) -> Step:
    """The producer after a census of batch `number` that does not show its span."""
    span = producer.spans[partition]
    if span.topic_id != bracket.topic_id:
        return without(producer, partition, span, SpanEnd.PARTITION_GONE)
    if span.start_offset >= bracket.below:
        # The log is shorter than it was. What lies above a scan that went back is read, and opened, again.
        return without(producer, partition, span, SpanEnd.TRUNCATED)
    is_over = span.start_offset < bracket.stable or span.absent_at is not None
    if is_over and span.by_census and not bracket.is_scanned:
        return without(producer, partition, span, SpanEnd.CENSUS)
    span = replace(
        span,
        absent_at=number if span.absent_at is None else span.absent_at,
        over_at=number if is_over and bracket.is_scanned and span.over_at is None else span.over_at,
        by_census=span.by_census and not bracket.is_scanned,
        is_ahead=span.is_ahead and not bracket.is_scanned,
        uncovered_at=None,
        reseen_at=None,
    )
    return Step(_with(producer, partition, span))


def doubted(producer: ProducerState, partition: TopicPartition) -> Step:
    """After an election: what a census did not show may be open again, if the log was cut where nobody had read it.

    It may as well be over: nothing is said of it, and nothing dropped, until another census has told.
    """
    span = producer.spans.get(partition)
    if span is None or span.over_at is None:
        return Step(producer)
    return Step(_with(producer, partition, replace(span, over_at=None)))


def _with(producer: ProducerState, partition: TopicPartition, span: Span) -> ProducerState:
    return replace(producer, spans={**producer.spans, partition: span})
