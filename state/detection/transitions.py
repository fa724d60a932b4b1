"""The transitions: how one fact changes the state of one producer id.

`apply(producer, fact, barrier) -> Step(producer, emitted)`. Rule 1: every change of a `ProducerState` is made here, in
producer_snapshot.py for what leaders describe, or in evaluate.py for evaluations. Rule 2: facts are merged, not
replayed. A range read twice, or a longer range read after a shorter one, leads to the same state, because a span is
decided by offsets (its start against the markers read) and a coordinator record by its offset in the log. Rule 3: an
end is emitted only if a finding was emitted before.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from txnwatch.state.detection.epoch_lineage import follow
from txnwatch.state.model.facts import (
    Joined,
    NoticeKind,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.findings import (
    Finding,
    Mismatch,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    TransactionMoved,
    ViewHealed,
)
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, ProducerId, TopicPartition
from txnwatch.state.model.transaction import (
    COVER,
    CoordinatorView,
    Emission,
    Marker,
    ProducerState,
    Span,
    TransactionState,
)
from txnwatch.state.model.verdicts import ONGOING, PREPARE, Verdict

ProducerFact = ProducerSeen | TransactionSeen | TransactionalIdGone | PartitionNotice


class Step(NamedTuple):
    """One transition: the new state, and the findings to emit."""

    producer: ProducerState
    emitted: tuple[Finding, ...] = ()


def apply(producer: ProducerState, fact: ProducerFact, barrier_number: int, *, is_consecutive: bool = True) -> Step:
    """The producer's state after one fact that was read in the batch of barrier `barrier_number`.

    `is_consecutive` is False if something before the range was not read or is gone. It may be a marker: then data of a
    newer epoch has joined nothing. Or it may be a whole transaction: then it is not known who used an epoch.
    """
    match fact:
        case ProducerSeen():
            return _apply_producer_seen(producer, fact, barrier_number, is_consecutive=is_consecutive)
        case TransactionSeen():
            return _apply_view(_held_in_between(producer, fact), fact.view, is_consecutive=is_consecutive)
        case TransactionalIdGone():
            return _apply_gone(producer, fact)
        case PartitionNotice():
            return _apply_notice(producer, fact)


def _apply_producer_seen(
    producer: ProducerState, fact: ProducerSeen, barrier_number: int, *, is_consecutive: bool
) -> Step:
    prior = producer.spans.get(fact.partition)
    if prior is not None and prior.topic_id == fact.topic_id and _is_past(prior, fact):
        return Step(producer)
    if prior is not None and prior.topic_id != fact.topic_id:
        # The topic was re-created: spans of the old topic are gone.
        emitted = ended(producer.producer_id, fact.partition, prior, SpanEnd.PARTITION_GONE)
        prior = None
    else:
        emitted = ()
    closing = _closing_marker(prior, fact)
    if prior is not None and closing is None and _begins_anew(prior, fact):
        emitted += _unseen_end(producer.producer_id, fact.partition, prior)
        prior = None
    joined = _joined(
        prior if is_consecutive and prior is not None and prior.census_absent_at is None else None, fact, closing
    )
    is_known = joined is not None and prior is not None and prior.absorbed and joined.start_offset == prior.start_offset
    if joined is not None and not is_known:
        emitted += (_stray(producer, fact, joined, prior),)
        prior = absorbed(prior) if prior is not None and joined.start_offset == prior.start_offset else prior
    if prior is not None and closing is not None:
        how = SpanEnd.ABSORBED if prior.absorbed else SpanEnd.MARKER
        emitted += ended(producer.producer_id, fact.partition, prior, how, closing)
    spans = dict(producer.spans)
    span = _opened(fact, barrier_number) if prior is None or closing is not None else _extended(prior, fact)
    if span is not None and joined is not None and joined.start_offset == span.start_offset:
        span = absorbed(span)
    if span is None:
        spans.pop(fact.partition, None)
    else:
        spans[fact.partition] = span
    return Step(ProducerState(producer.producer_id, spans, producer.view, producer.said), emitted)


def _is_past(prior: Span, fact: ProducerSeen) -> bool:
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
    return (*ended(producer_id, partition, span, SpanEnd.CENSUS), healed)


def _joined(prior: Span | None, fact: ProducerSeen, closing: Marker | None) -> Joined | None:
    """Where the range shows newer data joining older open data: in the range itself, or data open before it."""
    if prior is None or fact.first_offset is None or fact.first_offset <= prior.last_offset:
        return fact.joined
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
    return replace(span, stray=True, absorbed=True, said=span.said or Emission(0, 0))


def _closing_marker(prior: Span | None, fact: ProducerSeen) -> Marker | None:
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
        by_census=False,
        is_ahead_of_scan=False,
        reseen_at=prior.reseen_at if is_same else None,
    )


def _held_in_between(producer: ProducerState, fact: TransactionSeen) -> ProducerState:
    """Restarts the proof on partitions that a live transaction has held since the last look."""
    anew = {
        partition: replace(span, uncovered_at=None, reseen_at=None)
        for partition, span in producer.spans.items()
        if partition in fact.held and span.uncovered_at is not None
    }
    return replace(producer, spans={**producer.spans, **anew}) if anew else producer


def _apply_view(producer: ProducerState, view: CoordinatorView, *, is_consecutive: bool) -> Step:
    prior = producer.view
    if prior is not None and not is_newer(prior, view):
        return Step(producer)
    return _moved(producer, _first_seen(prior, follow(prior, view, is_consecutive=is_consecutive)))


def _first_seen(prior: CoordinatorView | None, view: CoordinatorView) -> CoordinatorView:
    """The view, with the time of the first record that showed its state; later records of the state keep that time.

    Prepare* is one record, which may be read again. An abort of an empty transaction keeps the start of the transaction
    before, so the start alone does not distinguish one Prepare* from the next.
    """
    is_same = prior is not None and prior.is_live and (prior.state, prior.start_ms) == (view.state, view.start_ms)
    if prior is None or not is_same or prior.producer_epoch != view.producer_epoch:
        return view
    if view.state.is_prepare and prior.record_timestamp_ms != view.record_timestamp_ms:
        return view
    return replace(view, since_ms=min(prior.since_ms, view.since_ms))


def is_newer(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record is newer than the known one: it is later in the same log partition, or in another partition."""
    return prior.log_partition != view.log_partition or _place(view) > _place(prior)


def _place(view: CoordinatorView) -> tuple[int, int]:
    """The position of a record: offsets can be compared only within one reading of its log partition."""
    return view.reading, view.log_offset


def _apply_gone(producer: ProducerState, fact: TransactionalIdGone) -> Step:
    view = producer.view
    if view is None or view.transactional_id != fact.transactional_id or fact.log_offset <= view.log_offset:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD, log_offset=fact.log_offset))


def _moved(producer: ProducerState, view: CoordinatorView) -> Step:
    """The producer with a newer view; ends the verdicts that were emitted about an earlier transaction or state."""
    prior = producer.view
    said = dict(producer.said)
    emitted: list[Finding] = []
    for verdict in producer.said:
        if prior is None or (family_of(prior) == family_of(view) and view.start_ms == prior.start_ms):
            continue
        del said[verdict]
        if verdict != COVER:
            emitted.append(TransactionMoved(producer.producer_id, Verdict(verdict), prior, view))
    return Step(ProducerState(producer.producer_id, producer.spans, view, said), tuple(emitted))


def family_of(view: CoordinatorView) -> str | None:
    """The family of time-based verdicts that can apply in this state, None in an idle state."""
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
            return without(producer, notice.partition, span, SpanEnd.PARTITION_GONE)
        case NoticeKind.TRUNCATED if span.start_offset >= notice.from_offset:
            return without(producer, notice.partition, span, SpanEnd.TRUNCATED)
        case NoticeKind.TRUNCATED | NoticeKind.LOST:
            kept = _cut_back(span, notice.kind)
            return Step(replace(producer, spans={**producer.spans, notice.partition: kept}))
        case _:
            return Step(producer)


def _cut_back(span: Span, kind: NoticeKind) -> Span:
    """A span after a truncation or a loss went through it: only its first batch is certain.

    A truncation restarts the proof. After a loss the proof continues: no candidate is emitted before a census has shown
    the span with the same start again, and a partition that is behind may lose a range in every batch.
    """
    kept = replace(span, epoch=span.oldest_epoch, last_offset=span.start_offset, census_absent_at=None, ended_at=None)
    return kept if kind is NoticeKind.LOST else replace(kept, uncovered_at=None, reseen_at=None)


def _reread_from_beginning(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The coordinator's partition is read again: the new reading replaces what is known."""
    view = producer.view
    if notice.kind is NoticeKind.GAP or view is None or view.log_partition != notice.partition.partition:
        return Step(producer)
    return Step(replace(producer, view=replace(view, log_offset=UNSEEN)))


def forget_unseen(producer: ProducerState, log_partition: int, reading: int = 0) -> Step:
    """After a complete new reading of a coordinator partition: an id that it did not show is gone."""
    view = producer.view
    if view is None or view.log_partition != log_partition:
        return Step(producer)
    if view.log_offset != UNSEEN and view.reading >= reading:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD))


UNSEEN = -1


def dropped(producer: ProducerState, partition: TopicPartition) -> Step:
    """Drops a span: the log is read beyond the census that did not show it, and still no marker was read."""
    span = producer.spans[partition]
    step = without(producer, partition, span, SpanEnd.CENSUS)
    return Step(step.producer, _unseen_end(producer.producer_id, partition, span))


def without(producer: ProducerState, partition: TopicPartition, span: Span, how: SpanEnd) -> Step:
    """The producer without a span that ended other than by a marker."""
    spans = {held: kept for held, kept in producer.spans.items() if held != partition}
    return Step(replace(producer, spans=spans), ended(producer.producer_id, partition, span, how))


def ended(
    producer_id: ProducerId,
    partition: TopicPartition,
    span: Span,
    how: SpanEnd,
    marker: Marker | None = None,
) -> tuple[Finding, ...]:
    """The findings about the end of a span: none, unless a finding about the open span was emitted."""
    return (SpanEnded(producer_id, partition, span, how, marker),) if span.said else ()
