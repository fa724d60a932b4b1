"""What a coordinator record inherits from the one before it: its participants, and who used its epoch.

A hanging transaction may be aborted only if no committed transaction can own the data, and data has nothing but a
producer id and an epoch. So the state keeps two values for the transaction in view: the epoch of its data
(`data_epoch`, from its Ongoing record, because the end may raise it) and whether another transaction may have used that
epoch (`epoch_use`). Up to transaction.version 1 an epoch is used from one InitProducerId to the next, by any number of
transactions. From version 2 on each end raises it. A client can change the version without a new InitProducerId. Only
consecutive records show which case it is, and two adjacent records need not be consecutive. Compaction removes records
between them, including those that ended a transaction: so no offset between them may be missing. An election can remove
records that nobody has read: so both must have been appended under one leader epoch. Everything else is SHARED, which
proves nothing.

A range may begin within a transaction, and have the next one as well. The fold of the range cannot judge the epoch of
the next one (NEXT): the state does, which has the Ongoing record of the first.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from msgspec.structs import replace

from txnwatch.state.model.ids import CoordinatorEpoch, ProducerEpoch
from txnwatch.state.model.transaction import ITS_OWN, UNKNOWN_PREVIOUS, CoordinatorView, EpochUse, TransactionState
from txnwatch.state.model.transaction_end import FirstDecision

_COMPLETED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}
_COMPLETE = frozenset(_COMPLETED.values())
_OPEN = frozenset({EpochUse.UNJUDGED, EpochUse.NEXT})  # the views of earlier ranges decide


def begun(view: CoordinatorView) -> CoordinatorView:
    """Prepares the first record of a range; what it inherits is not known yet."""
    match view.state:
        case TransactionState.EMPTY:
            return replace(view, epoch_use=EpochUse.FIRST, first_unused=view.producer_epoch)
        case TransactionState.ONGOING:
            return replace(view, data_epoch=view.producer_epoch)
        case _:
            return view


def follow(
    prior: CoordinatorView | None,
    view: CoordinatorView,
    decided: FirstDecision | None = None,
    *,
    is_consecutive: bool = True,
) -> CoordinatorView:
    """The view after what was known before it; values that its own range has already decided do not change.

    Args:
        prior: the view before: in the same range, or of the ranges before.
        view: what the newer record shows.
        decided: the first record of the id in the range that decides a transaction.
        is_consecutive: False if something between the two was not read or is no longer there.
    """
    same = prior if prior is not None and is_consecutive and is_same_transaction(prior, view) else None
    if same is not None and view.state in _COMPLETE and not view.participants:
        # Complete* does not contain its partitions; they are needed for the reason of a hang, and for its outcome.
        view = replace(view, participants=same.participants)
    if prior is not None and _leader_of(prior) != _leader_of(view):
        is_consecutive, same = False, None  # the election between them may have removed records that were never read
    if view.state is TransactionState.EMPTY:
        return _after_init(prior, view, is_consecutive=is_consecutive)
    if view.epoch_use not in _OPEN and not _was_out_before(prior, view, same):
        return view
    if same is not None:
        return at_its_end(replace(view, data_epoch=same.data_epoch, epoch_use=same.epoch_use))
    before = _after_end(prior, decided) if prior is not None and is_consecutive else None
    if before is not None and _began_before_its_range(before) and _has_reached(before, view.data_epoch):
        return replace(view, epoch_use=EpochUse.NEXT)
    use = use_of(before, view.data_epoch) if view.data_epoch is not None else EpochUse.SHARED
    return at_its_end(replace(view, epoch_use=use))


def _began_before_its_range(ended: CoordinatorView) -> bool:
    """Whether a range has the end of a transaction and not its beginning: only the state can judge what follows it."""
    return ended.state in _COMPLETE and ended.epoch_use is EpochUse.UNJUDGED and ended.data_epoch is None


def _after_end(prior: CoordinatorView, decided: FirstDecision | None) -> CoordinatorView:
    """The view before a range once its transaction has ended, if the first record of the range ends it."""
    if decided is None or decided.is_next is not None or decided.producer_epoch is None:
        return prior
    if not prior.is_live or decided.start_ms != prior.start_ms:
        return prior
    state = _COMPLETED.get(decided.state, decided.state)
    return replace(prior, state=state, producer_epoch=decided.producer_epoch)


def _leader_of(view: CoordinatorView) -> tuple[int, CoordinatorEpoch | None]:
    """Under whom a record was appended: its log partition, and the leader epoch."""
    return view.log_partition, view.coordinator_epoch


def used_before(view: CoordinatorView) -> CoordinatorView:
    """The view, if data of an epoch was there before the record that gave it: who else used the epoch is not known.

    A client gets an epoch after the record of it is committed. So an earlier record of the epoch is missing, with what
    followed it: an unclean election has removed it, or it was not read.
    """
    return replace(
        view,
        epoch_use=EpochUse.SHARED,
        first_unused=None,
        data_epoch=view.data_epoch if view.state is TransactionState.EMPTY else view.producer_epoch,
        previous_outcome=UNKNOWN_PREVIOUS if view.previous_outcome is not None else None,
        previous_end_epoch=None,
    )


def is_same_transaction(prior: CoordinatorView, view: CoordinatorView) -> bool:
    """Whether a record continues the transaction of the one before; Complete* keeps the start of what it ended."""
    if prior.start_ms != view.start_ms or view.start_ms is None or view.epoch_use is EpochUse.NEXT:
        return False
    if view.state is TransactionState.ONGOING:
        return prior.state is TransactionState.ONGOING and prior.producer_epoch == view.producer_epoch
    if prior.state in _COMPLETE and view.epoch_use is EpochUse.UNJUDGED and view.data_epoch is not None:
        return False  # its own range has its Ongoing record: another transaction, even if the start is equal
    return prior.state.is_live or (prior.state is view.state and prior.producer_epoch == view.producer_epoch)


def is_unused(view: CoordinatorView, epoch: ProducerEpoch) -> bool:
    """Whether no transaction can have written data of this epoch: it was handed out, and none has begun under it."""
    lowest = _lowest_unused(view)
    return lowest is not None and view.superseded_by is None and lowest <= epoch <= view.producer_epoch


def _lowest_unused(view: CoordinatorView) -> ProducerEpoch | None:
    """The epoch from which on no transaction has begun; it may be above that of the view. None if it is not known."""
    if view.state is TransactionState.EMPTY:
        return view.first_unused
    if view.state in _COMPLETE and view.data_epoch is not None:
        return ProducerEpoch(view.data_epoch + 1)
    return None


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
        return view if is_consecutive else replace(view, previous_outcome=UNKNOWN_PREVIOUS, previous_end_epoch=None)
    is_first_of_range = view.previous_outcome is None
    first_unused = _first_unused(prior, view, is_extended=is_consecutive and is_first_of_range)
    view = replace(
        view,
        epoch_use=_use_after_init(prior, view) if first_unused is not None else EpochUse.SHARED,
        first_unused=first_unused,
        participants=view.participants or prior.participants,
        data_epoch=view.data_epoch if view.data_epoch is not None else prior.data_epoch,
    )
    if not is_first_of_range:
        was_out = _has_reached(prior, view.data_epoch)  # before its range began
        return replace(view, previous_outcome=UNKNOWN_PREVIOUS, previous_end_epoch=None) if was_out else view
    outcome, end_epoch = _previous_end(prior, view) if is_consecutive else (UNKNOWN_PREVIOUS, None)
    return replace(view, previous_outcome=outcome, previous_end_epoch=end_epoch)


def _first_unused(prior: CoordinatorView, view: CoordinatorView, *, is_extended: bool) -> ProducerEpoch | None:
    """The lowest unused epoch after an InitProducerId; None if transactions may have used the epoch of the record.

    Epochs that the record before it left unused will never be used: `is_extended` is True if no record between the two
    can be missing.
    """
    if view.first_unused is None or prior.superseded_by is not None:
        return view.first_unused
    lowest = _lowest_unused(prior)
    if is_extended and lowest is not None and lowest <= prior.producer_epoch:
        return lowest
    first = max(view.first_unused, ProducerEpoch(prior.producer_epoch + 1))
    return first if first <= view.producer_epoch else None


def _use_after_init(prior: CoordinatorView, view: CoordinatorView) -> EpochUse:
    """Who uses the unused epoch of an InitProducerId; a repeated one can return the epoch that an end has raised."""
    is_repeated = prior.producer_epoch == view.producer_epoch and prior.superseded_by is None
    return use_of(prior, view.producer_epoch) if is_repeated and view.epoch_use is EpochUse.FIRST else view.epoch_use


def _previous_end(prior: CoordinatorView, view: CoordinatorView) -> tuple[str | None, ProducerEpoch | None]:
    """How the last transaction before an InitProducerId ended, if no other has used its epoch, or ever will."""
    if prior.state is TransactionState.EMPTY:
        return prior.previous_outcome, prior.previous_end_epoch
    is_raised = prior.data_epoch is None or view.producer_epoch > prior.data_epoch
    is_its_own = prior.state in _COMPLETE and prior.epoch_use in ITS_OWN and is_raised
    if not is_its_own or prior.state.outcome is None:
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
