"""How a hanging transaction would have ended. Pure.

It matters more than the hang: where the client was told that it committed and one partition lost its marker,
aborting that partition destroys acknowledged data. So `none` is said only where no transaction can ever have owned
the data, `commit` and `abort` only where a single transaction can, and its marker is missing there. Data carries a
producer id and an epoch and nothing else, so all of it rests on whose the epoch is (lineage.py). No clock is asked:
the brokers' differ, and the transactions of one client follow each other within milliseconds.

Everything else is `unknown`: an id that expired or was forgotten may have committed; so may the one before it, where
several have had the epoch; so may what stood in a tail that the coordinator's log has lost. Of its marker only the
partition's own log tells, read once the hang is confirmed: a leader forgets, and so would we.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.detection.epoch_lineage import is_unused
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import SpanPast
from txnwatch.state.model.transaction import ITS_OWN, CoordinatorView, TransactionState

COMMIT, ABORT, NONE, UNKNOWN = "commit", "abort", "none", "unknown"
NO_MARKER_KNOWN = -1


class _End(NamedTuple):
    """How the one transaction ended that can have written the data; the epoch is that of its markers."""

    outcome: str
    producer_epoch: int


def expected_outcome(
    partition: TopicPartition, epoch: int, view: CoordinatorView | None, past: SpanPast, coordinator_epoch: int
) -> str:
    """`commit`, `abort`, `none` or `unknown` for an open span that no live transaction holds.

    Args:
        partition: where the span is.
        epoch: producer epoch of its last batch, as DescribeProducers tells.
        view: the coordinator's last word on the producer id.
        past: what the partition's log tells of the span's beginning.
        coordinator_epoch: as DescribeProducers tells; -1 where the leader knows of no marker of the producer.
    """
    if view is None or view.is_live or view.superseded_by >= 0 or view.reading > 0:
        return UNKNOWN
    if past.start_epoch != epoch:
        return UNKNOWN  # data of more than one transaction, or nobody has read of how many
    if is_unused(view, epoch):
        return UNKNOWN if view.may_have_gone_on else NONE
    end = _end_of_the_only_owner(view)
    if end is None or view.data_epoch != epoch or partition not in view.participants:
        return UNKNOWN
    return _where_its_marker_is_missing(end, view, past, coordinator_epoch) or UNKNOWN


def _end_of_the_only_owner(view: CoordinatorView) -> _End | None:
    """Of the transaction in view, or of the last one before an InitProducerId."""
    if view.state is TransactionState.EMPTY:
        return _End(view.past_outcome, view.past_end_epoch) if view.past_outcome in {COMMIT, ABORT} else None
    outcome = view.state.outcome
    return _End(outcome, view.producer_epoch) if outcome is not None and view.epoch_use in ITS_OWN else None


def _where_its_marker_is_missing(
    end: _End, view: CoordinatorView, past: SpanPast, coordinator_epoch: int
) -> str | None:
    """The outcome of the one transaction that can own the data; None where nothing is known of its marker."""
    outcome, marker = end.outcome, past.last_marker
    if marker is None:
        # A leader that knows no marker may have forgotten it, with a log whose beginning is gone. It then also takes
        # a write that comes after the end; but not one under an epoch that the end has raised, while it knew. That it
        # has forgotten that as well cannot be told, so what would publish data has to be seen in the log.
        is_raised = end.producer_epoch > view.data_epoch
        is_forgotten = is_raised and coordinator_epoch == NO_MARKER_KNOWN and outcome == ABORT
        is_without = past.is_first or is_forgotten
        return outcome if is_without else None
    if marker.producer_epoch != end.producer_epoch:
        return outcome  # that one was of a transaction before
    has_its_own = marker.outcome == outcome and not view.may_have_gone_on
    return NONE if has_its_own else None  # it has its marker, and the data came after it
