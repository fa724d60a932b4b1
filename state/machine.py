"""The transition table: how one fact changes what is known about one producer id.

`apply(producer, fact) -> Step(producer, emitted)`. Rule 1: every change of a `ProducerState` is made here or, for
judgements, in judge.py. Rule 2: facts are joined, not replayed: a range read twice, or a longer range read after
a shorter one, leads to the same state, because a span is decided by offsets (its start against the markers read)
and a coordinator record by its offset in the log. Rule 3: only what was said is reported when it ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from txnwatch.state.emitted import Emitted, SpanEnd, SpanEnded, TransactionMoved
from txnwatch.state.facts import NoticeKind, PartitionNotice, ProducerSeen, TransactionalIdGone, TransactionSeen
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.transaction import CoordinatorView, Marker, ProducerState, Span, TransactionState
from txnwatch.state.verdict import ONGOING, PREPARE, RULE_OF, Verdict

ProducerFact = ProducerSeen | TransactionSeen | TransactionalIdGone | PartitionNotice


class Step(NamedTuple):
    """One transition: the new state and what it makes worth saying."""

    producer: ProducerState
    emitted: tuple[Emitted, ...] = ()


def apply(producer: ProducerState, fact: ProducerFact, barrier_number: int) -> Step:
    """The producer's state after one fact that was read in the batch of barrier `barrier_number`."""
    match fact:
        case ProducerSeen():
            return _apply_producer_seen(producer, fact, barrier_number)
        case TransactionSeen():
            return _apply_view(producer, fact.view)
        case TransactionalIdGone():
            return _apply_gone(producer, fact)
        case PartitionNotice():
            return _apply_notice(producer, fact)


def _apply_producer_seen(producer: ProducerState, fact: ProducerSeen, barrier_number: int) -> Step:
    prior = producer.spans.get(fact.partition)
    if prior is not None and prior.topic_id != fact.topic_id:
        # The topic was re-created: what was open in the old one is gone with it.
        ended = _ended(producer.producer_id, fact.partition, prior, SpanEnd.PARTITION_GONE)
        prior = None
    else:
        ended = ()
    closing = _closing_marker(prior, fact)
    if prior is not None and closing is not None:
        how = SpanEnd.ABSORBED if prior.absorbed else SpanEnd.MARKER
        ended += _ended(producer.producer_id, fact.partition, prior, how, closing)
    spans = dict(producer.spans)
    span = _opened(fact, barrier_number) if prior is None or closing is not None else _extended(prior, fact)
    if span is None:
        spans.pop(fact.partition, None)
    else:
        spans[fact.partition] = span
    markers = producer.markers
    if fact.last_marker is not None:
        markers = {**markers, fact.partition: fact.last_marker}
    return Step(replace(producer, spans=spans, markers=markers), ended)


def _closing_marker(prior: Span | None, fact: ProducerSeen) -> Marker | None:
    """The first marker read that ends the open span.

    A marker closes what lies below it if its epoch is not older than the span's (`ProducerAppendInfo`): the
    client's own markers carry the data's epoch up to transaction.version 1, one more from 2 on and for fences.
    """
    if prior is None:
        return None
    for marker in (fact.first_marker, fact.last_marker):
        if marker is not None and marker.offset > prior.start_offset and marker.producer_epoch >= prior.epoch:
            return marker
    return None


def _opened(fact: ProducerSeen, barrier_number: int) -> Span | None:
    if fact.open_offset is None:
        return None
    return Span(
        topic_id=fact.topic_id,
        start_offset=fact.open_offset,
        start_epoch=fact.open_epoch,
        epoch=fact.epoch,
        last_offset=fact.last_offset,
        last_timestamp_ms=fact.last_timestamp_ms,
        first_seen_ms=fact.listed_ms,
        eligible_from=barrier_number,
    )


def _extended(prior: Span, fact: ProducerSeen) -> Span:
    if fact.open_offset is None:
        return prior
    earlier = fact.open_offset < prior.start_offset  # a re-read from further back shows more of the same span
    return replace(
        prior,
        start_offset=min(prior.start_offset, fact.open_offset),
        start_epoch=fact.open_epoch if earlier else prior.start_epoch,
        epoch=max(prior.epoch, fact.epoch),
        last_offset=max(prior.last_offset, fact.last_offset),
        last_timestamp_ms=fact.last_timestamp_ms,
    )


def _apply_view(producer: ProducerState, view: CoordinatorView) -> Step:
    prior = producer.view
    if prior is not None and prior.log_partition == view.log_partition and _place(view) <= _place(prior):
        return Step(producer)
    if prior is not None and not view.is_live and not view.participants:
        # Complete* has forgotten its partitions; what they were says what became of a marker that never came.
        view = replace(view, participants=prior.participants)
    return _moved(producer, view)


def _place(view: CoordinatorView) -> tuple[int, int]:
    """Where a record stands: offsets are only comparable within one reading of its log partition."""
    return view.reading, view.log_offset


def _apply_gone(producer: ProducerState, fact: TransactionalIdGone) -> Step:
    view = producer.view
    if view is None or view.transactional_id != fact.transactional_id or fact.log_offset <= view.log_offset:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD, log_offset=fact.log_offset))


def _moved(producer: ProducerState, view: CoordinatorView) -> Step:
    """The producer with a newer view; what was said of a transaction or state that has ended is taken back."""
    prior = producer.view
    said = dict(producer.said)
    emitted: list[Emitted] = []
    for verdict in producer.said:
        if prior is not None and (
            RULE_OF[Verdict(verdict)].family != family_of(view) or view.start_ms != prior.start_ms
        ):
            del said[verdict]
            emitted.append(TransactionMoved(producer.producer_id, Verdict(verdict), prior, view))
    return Step(replace(producer, view=view, said=said), tuple(emitted))


def family_of(view: CoordinatorView) -> str | None:
    """The family of time-based verdicts that can apply in this state, None in an idle one."""
    if not view.is_live:
        return None
    return PREPARE if view.state.is_prepare else ONGOING


def _apply_notice(producer: ProducerState, notice: PartitionNotice) -> Step:
    if notice.partition.topic == TRANSACTION_STATE_TOPIC:
        return _reread_from_beginning(producer, notice)
    span = producer.spans.get(notice.partition)
    if span is None:
        return Step(producer)
    match notice.kind:
        case NoticeKind.DELETED if span.topic_id == notice.topic_id:
            return _without(producer, notice.partition, span, SpanEnd.PARTITION_GONE)
        case NoticeKind.TRUNCATED if span.start_offset >= notice.from_offset:
            return _without(producer, notice.partition, span, SpanEnd.TRUNCATED)
        case NoticeKind.TRUNCATED:
            return Step(replace(producer, spans={**producer.spans, notice.partition: replace(span, uncovered_at=None)}))
        case _:
            return Step(producer)


def _reread_from_beginning(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The coordinator's partition is read again: whatever the new reading says wins over what is known."""
    view = producer.view
    if notice.kind is NoticeKind.GAP or view is None or view.log_partition != notice.partition.partition:
        return Step(producer)
    return Step(replace(producer, view=replace(view, log_offset=UNSEEN)))


def forget_unseen(producer: ProducerState, log_partition: int, reading: int = 0) -> Step:
    """After a whole new reading of a coordinator partition: an id it did not show again is gone."""
    view = producer.view
    if view is None or view.log_partition != log_partition:
        return Step(producer)
    if view.log_offset != UNSEEN and view.reading >= reading:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD))


def drop_below(producer: ProducerState, partition: TopicPartition, last_stable_offset: int) -> Step:
    """After a healing read: no open transaction of the leader begins below its last stable offset."""
    span = producer.spans.get(partition)
    if span is None or span.start_offset >= last_stable_offset:
        return Step(producer)
    return _without(producer, partition, span, SpanEnd.BELOW_LAST_STABLE)


def drop_unseen(producer: ProducerState, partition: TopicPartition, shown: ProducerSeen | None) -> Step:
    """Before a healing read is applied: a span that it neither shows as open nor closes is no longer in the log."""
    span = producer.spans.get(partition)
    if span is None:
        return Step(producer)
    if shown is not None and (shown.open_offset == span.start_offset or _closing_marker(span, shown) is not None):
        return Step(producer)
    return _without(producer, partition, span, SpanEnd.TRUNCATED)


UNSEEN = -1


def _without(producer: ProducerState, partition: TopicPartition, span: Span, how: SpanEnd) -> Step:
    spans = {held: kept for held, kept in producer.spans.items() if held != partition}
    return Step(replace(producer, spans=spans), _ended(producer.producer_id, partition, span, how))


def _ended(
    producer_id: int,
    partition: TopicPartition,
    span: Span,
    how: SpanEnd,
    marker: Marker | None = None,
) -> tuple[Emitted, ...]:
    return (SpanEnded(producer_id, partition, span, how, marker),) if span.said else ()
