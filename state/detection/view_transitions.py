"""Applies records of `__transaction_state` to the coordinator's view of a producer. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.detection.epoch_lineage import follow, used_before
from txnwatch.state.detection.shared_ids import is_of_another_id, view_of_two
from txnwatch.state.detection.step import Step
from txnwatch.state.detection.transaction_end import end_of
from txnwatch.state.model.facts import NoticeKind, PartitionNotice, TransactionalIdGone
from txnwatch.state.model.findings import Finding, TransactionMoved
from txnwatch.state.model.ids import BarrierNumber
from txnwatch.state.model.transaction import COVER, CoordinatorView, ProducerState, TransactionState
from txnwatch.state.model.transaction_end import FirstDecision, TransactionEnd
from txnwatch.state.model.verdicts import Verdict, family_of


def after_record(
    producer: ProducerState,
    view: CoordinatorView,
    barrier_number: BarrierNumber,
    decided: FirstDecision | None = None,
    *,
    is_consecutive: bool,
) -> Step:
    """The producer after a record about its transactional id that was read in the batch of barrier `barrier_number`.

    `decided` is the first record of the id in the range that decides a transaction.
    """
    prior = producer.view
    if prior is not None and is_of_another_id(prior, view):
        return _moved(producer, view_of_two(prior, view, is_newer=is_newer(prior, view)))
    if prior is not None and not is_newer(prior, view):
        return Step(producer)
    followed = follow(prior, view, decided, is_consecutive=is_consecutive)
    if prior is not None and prior.also_used_by is not None:
        followed = replace(followed, also_used_by=prior.also_used_by)
    if _has_older_data(producer, view, barrier_number):
        followed = used_before(followed)
    end = end_of(prior, decided, is_consecutive=is_consecutive) if prior is not None else None
    return _moved(producer, _first_seen(prior, followed), end)


def _has_older_data(producer: ProducerState, view: CoordinatorView, barrier_number: BarrierNumber) -> bool:
    """Whether data of an epoch that the record gives was seen in an earlier batch.

    Each batch lists the coordinators' log after the data. So this record was not in the log when the data was.
    """
    known = producer.view.producer_epoch if producer.view is not None else -1
    lowest = view.data_epoch if view.data_epoch is not None else view.producer_epoch
    return any(
        span.eligible_from < barrier_number and span.epoch > known and span.epoch >= lowest
        for span in producer.spans.values()
    )


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
    listed = [since_ms for since_ms in (prior.since_ms, view.since_ms) if since_ms is not None]
    return replace(view, since_ms=min(listed, default=None))


def is_newer(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record is newer than the known one: it is later in the same log partition, or in another partition."""
    if prior.log_partition != view.log_partition:
        return True
    if prior.reading != view.reading:  # offsets can be compared only within one reading of a log partition
        return view.reading > prior.reading
    return prior.is_unseen or view.log_offset > prior.log_offset


def after_tombstone(producer: ProducerState, fact: TransactionalIdGone) -> Step:
    """The producer after a tombstone: the coordinator has forgotten the id."""
    view = producer.view
    if view is None or view.transactional_id != fact.transactional_id:
        return Step(producer)
    if fact.log_offset <= view.log_offset and not view.is_unseen:
        return Step(producer)
    dead = replace(view, state=TransactionState.DEAD, log_offset=fact.log_offset, is_unseen=False)
    return _moved(producer, dead)


def _moved(producer: ProducerState, view: CoordinatorView, end: TransactionEnd | None = None) -> Step:
    """The producer with a newer view; ends the verdicts that were emitted about an earlier transaction or state.

    `end` is how the transaction of the view before has ended, if that is known.
    """
    prior = producer.view
    emissions = dict(producer.emissions)
    emitted: list[Finding] = []
    for verdict in producer.emissions:
        if prior is None or (family_of(prior) == family_of(view) and view.start_ms == prior.start_ms):
            continue
        del emissions[verdict]
        if verdict != COVER:
            emitted.append(TransactionMoved(producer.producer_id, Verdict(verdict), prior, view, end))
    return Step(ProducerState(producer.producer_id, producer.spans, view, emissions), tuple(emitted))


def after_log_notice(producer: ProducerState, notice: PartitionNotice) -> Step:
    """The coordinator's partition is read again: the new reading replaces what is known."""
    view = producer.view
    if notice.kind is NoticeKind.GAP or view is None or view.log_partition != notice.partition.partition:
        return Step(producer)
    return Step(replace(producer, view=replace(view, is_unseen=True)))


def forget_unseen(producer: ProducerState, log_partition: int, reading: int = 0) -> Step:
    """After a complete new reading of a coordinator partition: an id that it did not show is gone."""
    view = producer.view
    if view is None or view.log_partition != log_partition:
        return Step(producer)
    if not view.is_unseen and view.reading >= reading:
        return Step(producer)
    return _moved(producer, replace(view, state=TransactionState.DEAD))
