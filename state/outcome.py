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

from txnwatch.state.ids import TopicPartition
from txnwatch.state.lineage import is_unused
from txnwatch.state.ports import SpanPast
from txnwatch.state.transaction import CoordinatorView, EpochUse

COMMIT, ABORT, NONE, UNKNOWN = "commit", "abort", "none", "unknown"
NO_MARKER_KNOWN = -1
_ITS_OWN = frozenset({EpochUse.FIRST, EpochUse.RAISED})


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
    is_its_own = view.data_epoch == epoch and view.epoch_use in _ITS_OWN
    if not is_its_own or partition not in view.participants:
        return UNKNOWN
    return _of_the_only_owner(view, past, coordinator_epoch) or UNKNOWN


def _of_the_only_owner(view: CoordinatorView, past: SpanPast, coordinator_epoch: int) -> str | None:
    """The outcome of the one transaction that can own the data; None where nothing is known of its marker."""
    outcome, marker = view.state.outcome, past.last_marker
    if marker is None:
        # A leader that knows no marker may have forgotten it, with a log whose beginning is gone. It then also takes
        # a write that comes after the end; but not one under an epoch that the end has raised, while it knew.
        is_raised = view.producer_epoch > view.data_epoch
        is_without = past.is_first or (is_raised and coordinator_epoch == NO_MARKER_KNOWN)
        return outcome if is_without else None
    if marker.producer_epoch != view.producer_epoch:
        return outcome  # that one was of a transaction before
    has_its_own = marker.outcome == outcome and not view.may_have_gone_on
    return NONE if has_its_own else None  # it has its marker, and the data came after it
