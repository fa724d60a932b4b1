"""How a hanging transaction would have ended. Pure.

It matters more than the hang: where the client was told that it committed and one partition lost its marker,
aborting that partition destroys acknowledged data. So an outcome is said only where the last Prepare*/Complete*
that held the partition is known to lack its marker there, `none` only where no transaction can have owned the
data, and everything else is `unknown`.
"""

from __future__ import annotations

from txnwatch.state.ids import TopicPartition
from txnwatch.state.transaction import CoordinatorView, Marker, Span, TransactionState

NONE, UNKNOWN = "none", "unknown"
NO_MARKER_EVER = -1
_CLOCK_TOLERANCE_MS = 5_000


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
    if view is None or view.superseded_by >= 0 or view.holds(partition):
        return UNKNOWN  # the last: the coordinator has contradicted its own log
    if view.state is TransactionState.EMPTY and not view.participants:
        # Nothing was ever added under this epoch; data of an older epoch may have had an owner.
        return NONE if span.start_epoch == view.producer_epoch else UNKNOWN
    outcome = view.state.outcome
    if outcome is None or partition not in view.participants:
        return UNKNOWN
    if last_marker is not None and last_marker.offset < span.start_offset:
        return NONE if _belongs(last_marker, view) else UNKNOWN
    return outcome if coordinator_epoch == NO_MARKER_EVER else UNKNOWN


def _belongs(marker: Marker, view: CoordinatorView) -> bool:
    """Whether the marker is the one of the transaction in view, so that what follows it came too late.

    Its outcome and epoch must agree. Up to transaction.version 1 the transaction before has the same epoch, and its
    marker lies milliseconds before this one's beginning: only the clocks tell them apart. In doubt an ABORT is taken
    for its own, because either way the data may be aborted; a COMMIT is not, because if it is the one before, the
    data is this transaction's, its marker is lost, and the client was told that it committed.
    """
    doubt_ms = _CLOCK_TOLERANCE_MS if marker.commit else -_CLOCK_TOLERANCE_MS
    return (
        marker.outcome == view.state.outcome
        and marker.producer_epoch == view.producer_epoch
        and marker.timestamp_ms > view.start_ms + doubt_ms
    )
