"""How a hanging transaction would have ended: its expected outcome. Pure: no I/O, no clock.

The outcome matters more than the hang: if the client got a successful commit and one partition lost its marker,
aborting that partition destroys acknowledged data. So `none` is returned only if no transaction can ever have owned the
data. `commit` and `abort` are returned only if a single transaction can have owned it, and its marker is missing there.
Data has a producer id and an epoch and nothing else, so everything depends on who used the epoch
(detection/epoch_lineage.py). No clock is used: the brokers' clocks differ, and the transactions of one client follow
each other within milliseconds.

Everything else is `unknown`. An id that expired or was forgotten may have committed. If several transactions have used
the epoch, an earlier one may have committed. So may one in a lost tail of the coordinators' log. Only the partition's
own log, read once the hang is confirmed, shows whether there is a marker: the leader can lose its producer state, and
our own memory would have the same weakness.
"""

from __future__ import annotations

from typing import NamedTuple

from txnwatch.state.detection.epoch_lineage import is_unused
from txnwatch.state.model.ids import CoordinatorEpoch, ProducerEpoch, TopicPartition
from txnwatch.state.model.incident_payload import ExpectedOutcome
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import ITS_OWN, CoordinatorView, TransactionState


class _End(NamedTuple):
    """The end of the one transaction that can have written the data; the epoch is that of its markers."""

    outcome: ExpectedOutcome
    producer_epoch: ProducerEpoch


def expected_outcome(
    partition: TopicPartition,
    epoch: ProducerEpoch,
    view: CoordinatorView | None,
    history: SpanHistory,
    coordinator_epoch: CoordinatorEpoch | None,
) -> ExpectedOutcome:
    """`commit`, `abort`, `none` or `unknown` for an open span that no live transaction holds.

    Args:
        partition: the partition of the span.
        epoch: producer epoch of its last batch, from DescribeProducers.
        view: the latest coordinator record of the producer id.
        history: what the partition's log shows about the start of the span.
        coordinator_epoch: from DescribeProducers; None if the leader knows no marker of the producer.
    """
    if view is None or view.is_live or view.superseded_by is not None or view.reading > 0:
        return ExpectedOutcome.UNKNOWN
    if history.start_epoch != epoch:
        return ExpectedOutcome.UNKNOWN  # the data has more than one epoch, or its first batch was not read
    if is_unused(view, epoch):
        return ExpectedOutcome.NONE
    end = _end_of_the_only_owner(view)
    if end is None or view.data_epoch != epoch or partition not in view.participants:
        return ExpectedOutcome.UNKNOWN
    return _where_its_marker_is_missing(end, view, history, coordinator_epoch) or ExpectedOutcome.UNKNOWN


def _end_of_the_only_owner(view: CoordinatorView) -> _End | None:
    """The end of the only possible owner: the transaction in view, or the last one before an InitProducerId."""
    if view.state is TransactionState.EMPTY:
        outcome, end_epoch = view.previous_outcome, view.previous_end_epoch
        if outcome is None or end_epoch is None:
            return None
        return _End(ExpectedOutcome(outcome), end_epoch)
    outcome = view.state.outcome
    if outcome is None or view.epoch_use not in ITS_OWN:
        return None
    return _End(ExpectedOutcome(outcome), view.producer_epoch)


def _where_its_marker_is_missing(
    end: _End, view: CoordinatorView, history: SpanHistory, coordinator_epoch: CoordinatorEpoch | None
) -> ExpectedOutcome | None:
    """The outcome of the only possible owner, NONE if it has its marker here; None if this is not known."""
    outcome, marker = end.outcome, history.last_marker
    if marker is None:
        # A leader that knows no marker may have lost its producer state, if the beginning of its log is gone. It would
        # then accept a late write. While it has the state, it refuses a late write if the end has raised the epoch.
        # Whether it lost the state cannot be detected, so an outcome that publishes data must be seen in the log.
        is_raised = view.data_epoch is not None and end.producer_epoch > view.data_epoch
        is_forgotten = is_raised and coordinator_epoch is None and outcome == ExpectedOutcome.ABORT
        is_without = history.is_first or is_forgotten
        return outcome if is_without else None
    if marker.producer_epoch != end.producer_epoch:
        return outcome  # the marker is of an earlier transaction
    has_its_own = marker.outcome == outcome and not view.may_lack_later_records
    # If the transaction has its marker, the data was written after it.
    return ExpectedOutcome.NONE if has_its_own else None
