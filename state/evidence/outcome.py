"""How a hanging transaction would have ended: its expected outcome. Pure: no I/O, no clock.

The outcome matters more than the hang: if the client got a successful commit and one partition lost its marker,
aborting that partition destroys acknowledged data. So `none` is returned only if no transaction can ever have owned the
data. `commit` and `abort` are returned only if a single transaction can have owned it, and its marker is missing there.
Data has a producer id and an epoch and nothing else, so everything depends on who used the epoch
(detection/epoch_lineage.py). No clock is used: the brokers' clocks differ, and the transactions of one client follow
each other within milliseconds.

Records of the coordinators' log can be lost before anybody has read them: an election removes the tail of the log if a
replica that lacks it becomes the leader. A power failure is enough for that, with clean elections too. The client then
gets the answer "committed" for a transaction that no record shows any more. So three conditions come first:

  1. The records that say who used an epoch were appended under one leader epoch of their log partition
     (epoch_lineage.py).
  2. The log partition still had that leader epoch when its end T was listed, after the data had been read.
  3. The data was appended after the log partition had this leader.

Take data that meets them, and a transaction that owns it. By 3 its client was told the outcome under this leader or
later, because a commit is acknowledged after its data. Its record was committed before its data was appended, so before
T. If that was under this leader, then no election came between, and the record was read. If it was under an earlier
leader, and the present one lacks it, then the present coordinator does not know the transaction: whatever it answers to
that client follows from its own records, and those are the ones that were read. Without 3, the client may have had its
answer from the coordinator before. decisions/0012 has the argument in full, and the case that stays: two clients that
hold one epoch.

Condition 3 holds if the watcher has seen that the span began after it had listed the log under this leader; or if the
producer's marker below the data is from the coordinator under this leader epoch; or if the leader is the first one of
the log.

Everything else is `unknown`, with its reason (outcome_doubts.py). An id that expired or was forgotten may have
committed. If several transactions have used the epoch, an earlier one may have committed. Only the partition's own log,
read once the hang is confirmed, shows whether there is a marker: the leader can lose its producer state, and our own
memory would have the same weakness.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txnwatch.state.detection.epoch_lineage import is_unused
from txnwatch.state.evidence.outcome_doubts import Doubt
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, CoordinatorEpoch, ProducerEpoch, TopicPartition
from txnwatch.state.model.incident_payload import ExpectedOutcome, OutcomeDoubt
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import ITS_OWN, CoordinatorView, EpochUse, Marker, TransactionState, Witness

_FIRST_EPOCH: Final = 0  # of a partition that never had an election


class _End(NamedTuple):
    """The end of the one transaction that can have written the data; the epoch is that of its markers."""

    outcome: ExpectedOutcome
    producer_epoch: ProducerEpoch


def expected_outcome(
    partition: TopicPartition,
    epoch: ProducerEpoch,
    witness: Witness | None,
    history: SpanHistory,
    coordinator_epoch: CoordinatorEpoch | None,
) -> ExpectedOutcome | Doubt:
    """`commit`, `abort` or `none` for an open span that no live transaction holds; or why this is not known.

    Args:
        partition: the partition of the span.
        epoch: producer epoch of its last batch, from DescribeProducers.
        witness: what the coordinators' log showed about the producer id after the data had been read.
        history: what the partition's log shows about the start of the span.
        coordinator_epoch: from DescribeProducers; None if the leader knows no marker of the producer.
    """
    if witness is None:
        return Doubt(OutcomeDoubt.NO_RECORD)
    view = witness.view
    doubt = without_owner_in_view(view) or _of_data(history, epoch) or of_election(witness, history)
    if doubt is not None:
        return doubt
    if is_unused(view, epoch):
        return ExpectedOutcome.NONE
    end = _end_of_the_only_owner(view)
    if end is None or view.data_epoch != epoch:
        return Doubt(OutcomeDoubt.EPOCH_SHARED, f"epoch {epoch}")
    if partition not in view.participants:
        return Doubt(OutcomeDoubt.NOT_A_PARTICIPANT)
    return _where_its_marker_is_missing(end, view, history, coordinator_epoch) or Doubt(OutcomeDoubt.MARKER_UNKNOWN)


def without_owner_in_view(view: CoordinatorView) -> Doubt | None:
    """Why the latest record of the producer id shows no transaction that has ended."""
    if view.superseded_by is not None:
        return Doubt(OutcomeDoubt.PRODUCER_ID_SUPERSEDED, f"producer id {view.superseded_by}")
    if view.is_live:
        return Doubt(OutcomeDoubt.TRANSACTION_LIVE, f"{view.state}")
    return Doubt(OutcomeDoubt.ID_EXPIRED) if view.state is TransactionState.DEAD else None


def _of_data(history: SpanHistory, epoch: ProducerEpoch) -> Doubt | None:
    """Why the data may be of more than one transaction."""
    if history.start_epoch is None:
        return Doubt(OutcomeDoubt.DATA_MIXED, "its first batch is not in the log of the partition")
    if history.start_epoch != epoch:
        return Doubt(OutcomeDoubt.DATA_MIXED, f"its epochs are {history.start_epoch} and {epoch}")
    return None


def of_election(witness: Witness, history: SpanHistory) -> Doubt | None:
    """Why a record about the data may have been lost in an election of the log, unread (conditions 2 and 3)."""
    view, epoch = witness.view, witness.log_epoch
    log = f"{TRANSACTION_STATE_TOPIC}-{view.log_partition}"
    if epoch is None:
        return Doubt(OutcomeDoubt.LOG_NOT_LISTED, log)
    if view.coordinator_epoch != epoch:
        return Doubt(OutcomeDoubt.LOG_ELECTION, f"{log}: leader epoch {view.coordinator_epoch} then, {epoch} now")
    is_marked = history.last_marker is not None and history.last_marker.coordinator_epoch == epoch
    if epoch == _FIRST_EPOCH or witness.is_begun_under_it or is_marked:
        return None
    return Doubt(OutcomeDoubt.BEGAN_BEFORE_ELECTION, f"{log}: leader epoch {epoch}")


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
        return outcome if _is_of_an_earlier_transaction(marker, view) else None
    # If the transaction has its marker, the data was written after it. But a coordinator can return an epoch again that
    # one before it has raised, if an election has removed the record of that: then both transactions have markers of
    # one epoch. Its own has the leader epoch of its records.
    is_its_own = marker.outcome == outcome and marker.coordinator_epoch == view.coordinator_epoch
    return ExpectedOutcome.NONE if is_its_own else None


def _is_of_an_earlier_transaction(marker: Marker, view: CoordinatorView) -> bool:
    """Whether a marker whose epoch is not that of the end is of an earlier transaction, and not an administrator's.

    An earlier end can have raised the epoch to that of the data. An administrator's marker repeats the epoch of the
    data, too, so after such an end the two cannot be distinguished.
    """
    if view.data_epoch is None:
        return False
    is_first = view.epoch_use is EpochUse.FIRST and view.state is not TransactionState.EMPTY
    return marker.producer_epoch < view.data_epoch or (marker.producer_epoch == view.data_epoch and not is_first)
