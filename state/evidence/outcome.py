"""How a hanging transaction would have ended: its expected outcome. Pure: no I/O, no clock.

The outcome matters more than the hang: if the client got a successful commit and one partition lost its marker,
aborting that partition destroys acknowledged data. So `none` is returned only if no transaction can ever have owned the
data. `commit` and `abort` are returned only if a single transaction can have owned it, and its marker is missing there.
Data has a producer id and an epoch and nothing else, so everything depends on who used the epoch
(detection/view.py). No clock is used: the brokers' clocks differ, and the transactions of one client follow
each other within milliseconds.

Records of the coordinators' log can be lost before anybody has read them: an election removes the tail of the log if a
replica that lacks it becomes the leader. A power failure is enough for that, with clean elections too. The client then
gets the answer "committed" for a transaction that no record shows any more. So three conditions come first:

  1. The records that say who used an epoch were appended under one leader of their log partition (detection/view.py).
  2. The log partition still had that leader when its end T was listed, after the data had been read.
  3. The data was appended after the log partition had this leader.

Two listings show the same leader if its leader epoch is the same. Up to Kafka 3.9, a leader that has lost its power may
keep its epoch: there, the connection to it must be the same, too (`LossProof`, decisions/0049).

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

Everything else is `unknown`, with its reason (the table of doubts). An id that expired or was forgotten may have
committed. If several transactions have used the epoch, an earlier one may have committed. Only the partition's own log,
read once the hang is confirmed, shows whether there is a marker: the leader can lose its producer state, and our own
memory would have the same weakness.

This is the outcome of one read. proven_hang.py has that of all reads together.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final, NamedTuple

from txnwatch.state.detection.view import is_unused
from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, OutcomeDoubt
from txnwatch.state.model.ports import ActiveProducer, SpanHistory
from txnwatch.state.model.transaction import (
    ITS_OWN,
    CoordinatorView,
    EpochUse,
    LossProof,
    Marker,
    TransactionState,
    Witness,
)
from txnwatch.state.model.values import (
    CoordinatorEpoch,
    Problem,
    ProducerEpoch,
    TopicPartition,
    coordinator_partition,
    log_numbered,
)
from txnwatch.state.model.verdicts import Verdict

# Why an expected outcome is unknown, and what would make it known: the table of texts.
#
# docs/abort.md has the table. A doubt is a code of the public contract with a text about the one case.


class DoubtRule(NamedTuple):
    """One row of the table.

    Attributes:
        means: why the outcome is unknown.
        known_if: what would make it known; for an incident that is open, or for the next one of the same application.
    """

    means: str
    known_if: str


class Doubt(NamedTuple):
    """Why one outcome is unknown; `detail` has the values of the case."""

    kind: OutcomeDoubt
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason and what would make the outcome known, as sentences."""
        rule = DOUBTS[self.kind]
        means = f"{rule.means} ({self.detail})" if self.detail else rule.means
        return f"{means}; {rule.known_if}"


_MOVED = (
    "no coordinator finds the records of the id, because the number of partitions of `__transaction_state` was changed "
    "(KAFKA-7771)"
)
_WATCHER = "an incident that a watcher had opened before has the outcome, if it was known then"

DOUBTS: dict[OutcomeDoubt, DoubtRule] = {
    OutcomeDoubt.NOT_FOUND_HERE: DoubtRule(
        "the instance that wrote the event has not proven the hang itself, and an event is no proof",
        "it becomes known if the instance that publishes proves the hang itself",
    ),
    OutcomeDoubt.NO_RECORD: DoubtRule(
        "no record of the producer id was read from `__transaction_state`",
        "it becomes known if a record of the id is read",
    ),
    OutcomeDoubt.ID_EXPIRED: DoubtRule(
        "the transactional id has expired: its last transaction may have committed",
        _WATCHER,
    ),
    OutcomeDoubt.ONGOING_MOVED: DoubtRule(
        f"the last record of the id is Ongoing, so as far as the log shows nothing of it was committed; {_MOVED}",
        "an election may have removed a later record: only the client knows whether it was told that it is committed",
    ),
    OutcomeDoubt.RECORDS_MOVED: DoubtRule(
        _MOVED,
        "`txnwatch decode --transactional-id` shows the last records of the id; ask the owner of the application",
    ),
    OutcomeDoubt.PRODUCER_ID_SUPERSEDED: DoubtRule(
        "the transactional id uses another producer id now",
        _WATCHER,
    ),
    OutcomeDoubt.TRANSACTION_LIVE: DoubtRule(
        "a later transaction of the id is live",
        _WATCHER,
    ),
    OutcomeDoubt.LOG_NOT_LISTED: DoubtRule(
        "the leader epoch of the partition of `__transaction_state` was not listed when the log was read",
        "the next read of the log shows it",
    ),
    OutcomeDoubt.LOG_ELECTION: DoubtRule(
        "since the last record of the id, the partition of `__transaction_state` has another leader, and an election "
        "can remove records that nobody has read",
        f"{_WATCHER}; the outcomes of transactions that begin from now on are not affected",
    ),
    OutcomeDoubt.LEADER_NOT_WATCHED: DoubtRule(
        "the leader of the partition of `__transaction_state` may have restarted since the data or the last record of "
        "the id was written. Up to Kafka 3.9, a power failure can remove records that nobody has read, and the leader "
        "epoch does not show it",
        f"{_WATCHER}; a watcher knows this of transactions that begin while it stays connected to that leader",
    ),
    OutcomeDoubt.BEGAN_BEFORE_ELECTION: DoubtRule(
        "the data may be older than the present leader of the partition of `__transaction_state`, and an election can "
        "remove records that nobody has read",
        f"{_WATCHER}; a watcher knows this of data that begins after it has seen that leader",
    ),
    OutcomeDoubt.EPOCH_SHARED: DoubtRule(
        "other transactions may have used the epoch of the data, and one of them may have committed",
        "the next transaction of a producer with transaction.version 2 has an epoch of its own",
    ),
    OutcomeDoubt.NOT_A_PARTICIPANT: DoubtRule(
        "the last transaction of this epoch did not have the partition as a participant",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.DATA_MIXED: DoubtRule(
        "the open data has more than one epoch, its beginning is not known, or another transaction has joined it",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.MARKER_UNKNOWN: DoubtRule(
        "the log of the partition does not show whether the last marker of the producer is that of the transaction",
        "ask the owner of the application",
    ),
    OutcomeDoubt.COORDINATOR_MOVED_ON: DoubtRule(
        "the coordinator has changed the transaction of the id since the log was read",
        "the next read of the log shows it",
    ),
    OutcomeDoubt.NOT_READ: DoubtRule(
        "the log of the partition could not be read yet",
        "the read is repeated",
    ),
    OutcomeDoubt.WRITTEN_MEANWHILE: DoubtRule(
        "data was appended after the listing that the outcome needs",
        "the read is repeated",
    ),
    OutcomeDoubt.LISTING_AWAITED: DoubtRule(
        "the leader of the partition of `__transaction_state` may have restarted during the read",
        "the next listing on the same connection shows that it has not",
    ),
    OutcomeDoubt.WRITTEN_SINCE: DoubtRule(
        "data was appended after the outcome was found, and may belong to another transaction",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.BEGUN_SINCE: DoubtRule(
        "no transaction owned the data when it was found, but one has begun under its epoch since",
        "ask the owner of the application what wrote there",
    ),
    OutcomeDoubt.CONTRADICTION: DoubtRule(
        "two reads lead to two different outcomes",
        "ask the owner of the application",
    ),
}


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
    """Why a record about the data may have been lost unread by a leader of the log (conditions 2 and 3)."""
    view, epoch = witness.view, witness.log_epoch
    log = str(view.log)
    if epoch is None:
        return Doubt(OutcomeDoubt.LOG_NOT_LISTED, log)
    if view.coordinator_epoch != epoch:
        return Doubt(OutcomeDoubt.LOG_ELECTION, f"{log}: leader epoch {view.coordinator_epoch} then, {epoch} now")
    match witness.proof:
        case LossProof.NOTHING:
            return Doubt(OutcomeDoubt.LEADER_NOT_WATCHED, log)
        case LossProof.CONNECTION:
            return None
        case LossProof.EPOCH:
            is_marked = history.last_marker is not None and history.last_marker.coordinator_epoch == epoch
            is_proven = epoch == _FIRST_EPOCH or witness.is_begun_under_it or is_marked
            return None if is_proven else Doubt(OutcomeDoubt.BEGAN_BEFORE_ELECTION, f"{log}: leader epoch {epoch}")


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


# What is known about the outcome of a confirmed hang, and whether another read can show more.
#
# There are two kinds of `unknown`. In the first, an answer is missing: the partition's log was not read, or the span
# was written to after the listing that the outcome needs. The read is repeated. In the second, `unknown` is the answer:
# the information is gone, or never existed. Only a new candidate of the state can change it.

_READ_AGAIN = frozenset({OutcomeDoubt.NOT_READ, OutcomeDoubt.WRITTEN_MEANWHILE, OutcomeDoubt.LISTING_AWAITED})


class Outcome(NamedTuple):
    """An expected outcome, or why it is unknown.

    Attributes:
        doubt: None if the outcome is known.
        is_being_read: the missing answer is being read, so it can be requested again at once.
    """

    outcome: ExpectedOutcome
    doubt: Doubt | None = None
    is_being_read: bool = False

    @property
    def is_awaited(self) -> bool:
        """Whether an answer is missing, so another read of the same data can show the outcome."""
        return self.doubt is not None and self.doubt.kind in _READ_AGAIN


def unknown(kind: OutcomeDoubt, detail: str = "", *, is_being_read: bool = False) -> Outcome:
    """An unknown outcome, and why."""
    return Outcome(ExpectedOutcome.UNKNOWN, Doubt(kind, detail), is_being_read)


def known_outcome(candidate: SpanCandidate, confirmation: SpanConfirmation) -> Outcome:
    """What is known about the outcome, if it applies to all the data found; `confirmation` includes the span's history.

    Where leader epochs do not show a restart, one read alone shows no outcome (`PendingOutcome` in proven_hang.py).
    """
    outcome = read_outcome(candidate, confirmation)
    is_pending = outcome.doubt is None and candidate.proof is LossProof.CONNECTION
    return unknown(OutcomeDoubt.LISTING_AWAITED) if is_pending else outcome


def read_outcome(candidate: SpanCandidate, confirmation: SpanConfirmation) -> Outcome:
    """The outcome if the leader of the log partition has not restarted before the end of the read."""
    row, history = confirmation.producer, confirmation.history
    doubt = Doubt(OutcomeDoubt.NOT_READ) if row is None else _of_reading(candidate, confirmation, row)
    if row is None or doubt is not None:
        return Outcome(ExpectedOutcome.UNKNOWN, doubt)
    outcome = expected_outcome(
        candidate.partition, row.producer_epoch, candidate.witness, history, row.coordinator_epoch
    )
    if not isinstance(outcome, Doubt):
        return Outcome(outcome)
    if history.problem is not None:
        return unknown(OutcomeDoubt.NOT_READ, history.problem, is_being_read=history.is_being_read)
    return Outcome(ExpectedOutcome.UNKNOWN, outcome)


def _of_reading(candidate: SpanCandidate, confirmation: SpanConfirmation, row: ActiveProducer) -> Doubt | None:
    """Why what the candidate rests on does not apply to the data that the fresh read shows.

    The fresh read may show data that was appended after the listing T of the candidate. If a transaction owns it, its
    record was committed before that data was appended. Its coordinator has this record, and describes that transaction,
    unless an election has removed it meanwhile. So the answer must be the view of the candidate, and the log partition
    must still have the same leader after the whole read.
    """
    span = candidate.span
    if span.absorbed or row.txn_start_offset != span.start_offset:
        return Doubt(OutcomeDoubt.DATA_MIXED)  # other data, or more data than the candidate covers
    if not confirmation.is_unchanged:
        return Doubt(OutcomeDoubt.WRITTEN_MEANWHILE)
    if isinstance(confirmation.log_epoch, Problem):
        return Doubt(OutcomeDoubt.NOT_READ, str(confirmation.log_epoch))
    if not confirmation.is_settled:
        return _of_moved(candidate, confirmation) or Doubt(_of_coordinator(candidate, confirmation))
    if candidate.view is not None and confirmation.log_epoch != candidate.log_epoch:
        then, now = candidate.log_epoch, confirmation.log_epoch
        return Doubt(OutcomeDoubt.LOG_ELECTION, f"during the read: leader epoch {then} then, {now} now")
    return None


def _of_moved(candidate: SpanCandidate, confirmation: SpanConfirmation) -> Doubt | None:
    """Why the coordinator does not have the records of the id: it looks for them in another partition."""
    view, count = candidate.view, confirmation.log_partitions
    if view is None or count is None:
        return None
    belongs = log_numbered(coordinator_partition(view.transactional_id, count))
    if belongs == view.log:
        return None
    kind = OutcomeDoubt.ONGOING_MOVED if view.state is TransactionState.ONGOING else OutcomeDoubt.RECORDS_MOVED
    return Doubt(kind, f"they are in {view.log}, and with {count} partitions it belongs to {belongs}")


def _of_coordinator(candidate: SpanCandidate, confirmation: SpanConfirmation) -> OutcomeDoubt:
    """Why the coordinator's answer is not the view of the candidate."""
    if candidate.view is None:
        return OutcomeDoubt.NO_RECORD
    if confirmation.description is None:
        return OutcomeDoubt.ID_EXPIRED
    is_superseded = confirmation.description.producer_id != candidate.producer_id
    return OutcomeDoubt.PRODUCER_ID_SUPERSEDED if is_superseded else OutcomeDoubt.COORDINATOR_MOVED_ON


def with_outcome(event: IncidentEvent, outcome: Outcome) -> IncidentEvent:
    """An event with an outcome of this process; a doubt is only about a hanging transaction."""
    doubt = outcome.doubt if event.verdict == Verdict.HANGING else None
    return replace(
        event,
        expected_outcome=outcome.outcome,
        outcome_by=None,
        outcome_doubt=doubt.kind if doubt is not None else None,
        outcome_detail=doubt.text if doubt is not None else None,
    )


def is_settled(incident: IncidentEvent, outcome: Outcome) -> bool:
    """Whether an incident says that its outcome is being read, and a read has shown that it cannot be known."""
    return incident.outcome_doubt in _READ_AGAIN and outcome.doubt is not None and not outcome.is_awaited


def outcome_basis(candidate: SpanCandidate) -> Hashable:
    """All values of the state that an outcome depends on: an outcome that is settled changes only with them."""
    span = candidate.span
    return candidate.witness, span.start_offset, span.absorbed, span.epoch, span.last_timestamp_ms
