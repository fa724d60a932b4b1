"""What a coordinator record inherits from the one before it: its participants, and who used its epoch.

A hanging transaction may be aborted only if no committed transaction can own the data, and data has nothing but a
producer id and an epoch. So the state keeps two values for the transaction in view: the epoch of its data
(`data_epoch`, from its Ongoing record, because the end may raise it) and whether another transaction may have used that
epoch (`epoch_use`). Up to transaction.version 1 an epoch is used from one InitProducerId to the next, by any number of
transactions. From version 2 on each end raises it. A client can change the version without a new InitProducerId. Only
consecutive records show which case it is, and two adjacent records need not be consecutive: compaction removes records
between them, including those that ended a transaction. So no offset between them may be missing. Everything else is
SHARED, which proves nothing.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.model.ids import ProducerEpoch
from txnwatch.state.model.transaction import ITS_OWN, UNKNOWN_PREVIOUS, CoordinatorView, EpochUse, TransactionState

_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


def begun(view: CoordinatorView) -> CoordinatorView:
    """Prepares the first record of a range; what it inherits is not known yet."""
    match view.state:
        case TransactionState.EMPTY:
            return replace(view, epoch_use=EpochUse.FIRST)
        case TransactionState.ONGOING:
            return replace(view, data_epoch=view.producer_epoch)
        case _:
            return view


def follow(prior: CoordinatorView | None, view: CoordinatorView, *, is_consecutive: bool = True) -> CoordinatorView:
    """The view after what was known before it; values that its own range has already decided do not change.

    `is_consecutive` is False if something between the two was not read or is no longer there.
    """
    same = prior if prior is not None and is_consecutive and is_same_transaction(prior, view) else None
    if view.state is TransactionState.EMPTY:
        return _after_init(prior, view, is_consecutive=is_consecutive)
    if same is not None and view.state in _COMPLETE and not view.participants:
        # Complete* does not contain its partitions; they are needed for the outcome of a missing marker.
        view = replace(view, participants=same.participants)
    if view.epoch_use is not EpochUse.UNJUDGED and not _was_out_before(prior, view, same):
        return view
    if same is not None:
        return at_its_end(replace(view, data_epoch=same.data_epoch, epoch_use=same.epoch_use))
    use = use_of(prior if is_consecutive else None, view.data_epoch) if view.data_epoch is not None else EpochUse.SHARED
    return at_its_end(replace(view, epoch_use=use))


def used_before(view: CoordinatorView) -> CoordinatorView:
    """The view, if data of an epoch was there before the record that gave it: who else used the epoch is not known.

    A client gets an epoch after the record of it is committed. So an earlier record of the epoch is missing, with what
    followed it: an unclean election has removed it, or it was not read.
    """
    return replace(
        view,
        epoch_use=EpochUse.SHARED,
        data_epoch=view.data_epoch if view.state is TransactionState.EMPTY else view.producer_epoch,
        previous_outcome=UNKNOWN_PREVIOUS if view.previous_outcome is not None else None,
        previous_end_epoch=None,
    )


def is_same_transaction(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record continues the transaction of the one before; Complete* keeps the start of what it ended."""
    if prior.start_ms != view.start_ms or view.start_ms is None:
        return False
    if view.state is TransactionState.ONGOING:
        return prior.state is TransactionState.ONGOING and prior.producer_epoch == view.producer_epoch
    if prior.state in _COMPLETE and view.epoch_use is EpochUse.UNJUDGED and view.data_epoch is not None:
        return False  # its own range has its Ongoing record: another transaction, even if the start is equal
    return prior.state.is_live or (prior.state is view.state and prior.producer_epoch == view.producer_epoch)


def is_unused(view: CoordinatorView, epoch: ProducerEpoch) -> bool:
    """Whether no transaction can have written data of this epoch yet: it was handed out, and none has begun with it."""
    if view.producer_epoch != epoch or view.superseded_by is not None or view.may_lack_later_records:
        return False
    if view.state is TransactionState.EMPTY:
        return view.epoch_use in ITS_OWN and view.data_epoch != epoch
    return view.state in _COMPLETE and view.data_epoch is not None and view.data_epoch < epoch


def _was_out_before(prior: CoordinatorView | None, view: CoordinatorView, same: CoordinatorView | None) -> bool:
    """Whether a range begins with an InitProducerId whose epoch was handed out before, so it is not its first use."""
    if prior is None or same is not None or view.epoch_use is not EpochUse.FIRST:
        return False
    return _has_reached(prior, view.data_epoch)


def _has_reached(prior: CoordinatorView, data_epoch: ProducerEpoch | None) -> bool:
    """Whether the id had this epoch, or a later one, before."""
    return prior.superseded_by is None and (data_epoch is None or prior.producer_epoch >= data_epoch)


def _after_init(prior: CoordinatorView | None, view: CoordinatorView, *, is_consecutive: bool) -> CoordinatorView:
    """The view after an InitProducerId; a repeated one returns the same epoch again, even after a transaction."""
    if prior is None:
        return view if is_consecutive else replace(view, previous_outcome=UNKNOWN_PREVIOUS)
    if prior.producer_epoch == view.producer_epoch and prior.superseded_by is None and view.epoch_use is EpochUse.FIRST:
        view = replace(view, epoch_use=use_of(prior if is_consecutive else None, view.producer_epoch))
    participants = view.participants or prior.participants
    data_epoch = view.data_epoch if view.data_epoch is not None else prior.data_epoch
    view = replace(view, participants=participants, data_epoch=data_epoch)
    if view.previous_outcome is not None:
        was_out = _has_reached(prior, view.data_epoch)  # before its range began
        return replace(view, previous_outcome=UNKNOWN_PREVIOUS, previous_end_epoch=None) if was_out else view
    outcome, end_epoch = _previous_end(prior, view) if is_consecutive else (UNKNOWN_PREVIOUS, None)
    return replace(view, previous_outcome=outcome, previous_end_epoch=end_epoch)


def _previous_end(prior: CoordinatorView, view: CoordinatorView) -> tuple[str | None, ProducerEpoch | None]:
    """How the last transaction before an InitProducerId ended, if no other has used its epoch, or ever will."""
    if prior.state is TransactionState.EMPTY:
        return prior.previous_outcome, prior.previous_end_epoch
    is_raised = prior.data_epoch is None or view.producer_epoch > prior.data_epoch
    is_its_own = prior.state in _COMPLETE and prior.epoch_use in ITS_OWN and is_raised
    if not is_its_own or prior.state.outcome is None or prior.may_lack_later_records:
        return UNKNOWN_PREVIOUS, None
    return prior.state.outcome, prior.producer_epoch


def use_of(prior: CoordinatorView | None, epoch: ProducerEpoch) -> EpochUse:
    """Who may have used the epoch of a transaction that begins after the view `prior`."""
    if prior is None or not is_unused(prior, epoch):
        return EpochUse.SHARED
    return prior.epoch_use if prior.state is TransactionState.EMPTY else EpochUse.RAISED


def at_its_end(view: CoordinatorView) -> CoordinatorView:
    """A RAISED epoch becomes SHARED if the end does not raise it: two transactions then have markers of this epoch."""
    is_left = view.state is not TransactionState.ONGOING and view.producer_epoch == view.data_epoch
    return replace(view, epoch_use=EpochUse.SHARED) if is_left and view.epoch_use is EpochUse.RAISED else view
