"""How a transaction that was live before a range has ended in it, and who ended it, by the coordinators' log alone.

A range may show many transactions of an id, and its last record is of the last one. Only the first record that decides
a transaction (`FirstDecision`) can end one that began before. Law: it ends that transaction if both have the same
start, and

  * no record between the two is missing; or
  * it is a commit, because a coordinator never commits without an Ongoing record with another start; or
  * it is an abort under an epoch that only this transaction can have ended with.

The last condition is for compaction: it may leave nothing but an abort of an empty transaction, which keeps the start
of the transaction before and raises its epoch (transaction.version 2). That transaction may have committed.

Only a client commits. A client of version 0 or 1 aborts under the same epoch, and from version 2 on it raises the epoch
by one. A coordinator that aborts by itself, at the timeout or for a new InitProducerId, raises it in every version. So
a raised epoch proves the coordinator only if the client's version does not raise it.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from txnwatch.state.model.ids import ProducerEpoch
from txnwatch.state.model.incident_payload import EndedBy
from txnwatch.state.model.quantities import elapsed
from txnwatch.state.model.transaction import ITS_OWN, CoordinatorView, TransactionState
from txnwatch.state.model.transaction_end import FirstDecision, TransactionEnd

_RAISES_EPOCH = 2  # the first transaction.version in which the client's EndTxn raises the epoch
_COMMIT = "commit"


def end_of(prior: CoordinatorView, decided: FirstDecision | None, *, is_consecutive: bool) -> TransactionEnd | None:
    """The end of the live transaction in a view, None if what was read does not prove it.

    Args:
        prior: the view before the range.
        decided: the first record of its transactional id in the range that decides a transaction.
        is_consecutive: whether nothing is missing between the view and the range.
    """
    if decided is None or decided.start_ms != prior.start_ms:
        return None
    is_next = is_consecutive if decided.is_next is None else decided.is_next
    if not (is_next or decided.state.outcome == _COMMIT or _is_the_only_abort(prior, decided)):
        return None
    open_for_ms = elapsed(prior.start_ms, decided.record_timestamp_ms) if prior.start_ms is not None else None
    return TransactionEnd(decided.state, _ended_by(prior, decided), decided.log_offset, open_for_ms)


def _is_the_only_abort(prior: CoordinatorView, decided: FirstDecision) -> bool:
    """Whether no abort of a later, empty transaction can look like this one."""
    if prior.state.is_prepare:
        return prior.state.outcome == decided.state.outcome
    if decided.producer_epoch == prior.producer_epoch:
        return True
    raised = prior.producer_epoch + 1
    return decided.producer_epoch == raised and prior.client_transaction_version >= _RAISES_EPOCH


def _ended_by(prior: CoordinatorView, decided: FirstDecision) -> EndedBy:
    if decided.state.outcome == _COMMIT:
        return EndedBy.CLIENT
    is_begun = prior.state is TransactionState.ONGOING
    began_with = prior.producer_epoch if is_begun else _began_with(prior)
    ended_with = decided.producer_epoch if is_begun else prior.producer_epoch
    if began_with is None or ended_with is None:
        return EndedBy.UNKNOWN
    if ended_with == began_with:
        return EndedBy.CLIENT
    may_be_client = prior.client_transaction_version >= _RAISES_EPOCH and ended_with == began_with + 1
    return EndedBy.UNKNOWN if may_be_client else EndedBy.COORDINATOR


def _began_with(prepared: CoordinatorView) -> ProducerEpoch | None:
    """The epoch of the data of a transaction in Prepare*; None if it is not certain (`used_before`)."""
    is_certain = prepared.data_epoch != prepared.producer_epoch or prepared.epoch_use in ITS_OWN
    return prepared.data_epoch if is_certain else None
