"""How a hanging transaction would have ended. Pure.

It matters more than the hang: where the client was told that it committed and one partition lost its marker,
aborting that partition destroys acknowledged data. So `none` is said only where no transaction can ever have owned
the data, `commit` and `abort` only where a single transaction can, and its marker is missing there. Data carries a
producer id and an epoch and nothing else, so all of it rests on whose the epoch is (lineage.py). No clock is asked:
the brokers' differ, and the transactions of one client follow each other within milliseconds.

Everything else is `unknown`: an id that expired or was forgotten may have committed; so may the one before it, where
several have had the epoch; so may what stood in a tail that the coordinator's log has lost.
"""

from __future__ import annotations

from txnwatch.state.ids import TopicPartition
from txnwatch.state.lineage import is_unused
from txnwatch.state.transaction import CoordinatorView, EpochUse, Marker, Span

COMMIT, ABORT, NONE, UNKNOWN = "commit", "abort", "none", "unknown"
NO_MARKER_EVER = -1
_ITS_OWN = frozenset({EpochUse.FIRST, EpochUse.RAISED})


def expected_outcome(
    partition: TopicPartition,
    span: Span,
    view: CoordinatorView | None,
    last_marker: Marker | None,
    coordinator_epoch: int | None,
) -> str:
    """`commit`, `abort`, `none` or `unknown` for an open span that no live transaction holds.

    `coordinator_epoch` is what DescribeProducers says: -1 where the producer has never had a marker there.
    """
    if view is None or view.is_live or view.superseded_by >= 0 or view.reading > 0:
        return UNKNOWN
    if span.absorbed or span.start_epoch != span.epoch:
        return UNKNOWN  # data of more than one transaction, or nobody has read of how many
    if is_unused(view, span.epoch):
        return NONE
    is_its_own = view.data_epoch == span.epoch and view.epoch_use in _ITS_OWN
    if not is_its_own or partition not in view.participants:
        return UNKNOWN
    return _of_the_only_owner(span, view, last_marker, coordinator_epoch) or UNKNOWN


def _of_the_only_owner(
    span: Span, view: CoordinatorView, last_marker: Marker | None, coordinator_epoch: int | None
) -> str | None:
    """The outcome of the one transaction that can own the data; None where nothing is known of its marker."""
    outcome = view.state.outcome
    if last_marker is None or last_marker.offset > span.start_offset:
        return outcome if coordinator_epoch == NO_MARKER_EVER else None
    if last_marker.producer_epoch != view.producer_epoch:
        return outcome  # that one was of a transaction before
    return NONE if last_marker.outcome == outcome else None  # it has its marker, and the data came after it
