"""How the transactions of a transactional id have ended, and by whom, from the id's records in the coordinators' log.

DescribeTransactions shows only the state that the id has now. The log also shows the Ongoing record before an end. Law:
the records of one start are one end. A Prepare* whose append has failed stays in the log; only the last one before
Complete* counts (decisions/0050). An abort of an empty transaction, which has a start of its own, is no end: its
Prepare* record has no participants.

Three can end a transaction: its client; the coordinator at the transaction's timeout; and the coordinator for a new
InitProducerId of the same id, which fences the client. state/detection/view.py tells the client from the coordinator by
the epochs. A client with transaction.version 2 raises the epoch as a coordinator does, and what it does next proves
nothing: the coordinator answers its late abort as if it had ended the transaction, and it continues under the raised
epoch. The coordinator aborts at the timeout only once the timeout has passed; a new InitProducerId can come before
that or after it. Where the log shows no difference, the cause names all that are possible.

An InitProducerId can also be of the client itself: after an error, a client asks for a new epoch, and it names its
producer id and epoch. The record behind the end tells it from a new instance, which names neither. If the coordinator
has aborted a transaction with epoch 1, a new instance gets epoch 2, and the client itself gets epoch 1 (Kafka 4.3.1 and
4.4.0). Brokers up to 4.0 refuse the client itself with PRODUCER_FENCED, and then no record follows.

Then comes whose a marker is: which end has written it to a partition.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.detection.view import RAISES_EPOCH, begun, decision_of, end_of
from txnwatch.state.model.facts import TransactionEnd
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import DurationMs, ProducerEpoch, TimestampMs, TopicPartition


class EndCause(StrEnum):
    """Who ended a transaction, as far as the log shows it."""

    CLIENT = "client"
    CLIENT_ASKED = "client_asked"
    FENCE = "fence"
    FENCE_UNANSWERED = "fence_unanswered"
    COORDINATOR = "coordinator"
    TIMEOUT_OR_FENCE = "timeout_or_fence"
    TIMEOUT_OR_ASKED = "timeout_or_asked"
    CLIENT_OR_TIMEOUT = "client_or_timeout"
    CLIENT_OR_FENCE = "client_or_fence"
    CLIENT_OR_COORDINATOR = "client_or_coordinator"
    UNKNOWN = "unknown"


CAUSE_MEANS = {
    EndCause.CLIENT: "its client ended it",
    EndCause.CLIENT_ASKED: (
        "its own client asked for a new epoch (InitProducerId with its producer id and epoch), as clients do after an "
        "error; no other instance took the id over then"
    ),
    EndCause.FENCE: (
        "its coordinator aborted it for a new InitProducerId: the application has started again, another instance has "
        "the same transactional id, or somebody has fenced it"
    ),
    EndCause.FENCE_UNANSWERED: (
        "its coordinator aborted it for an InitProducerId that has got no epoch since then: the application starts "
        "again, another instance has the same transactional id, somebody fences it, or its own client asked for a new "
        "epoch after an error, which brokers up to 4.0 refuse with PRODUCER_FENCED"
    ),
    EndCause.COORDINATOR: "its coordinator aborted it, at its timeout or for a new InitProducerId",
    EndCause.TIMEOUT_OR_FENCE: (
        "its coordinator aborted it at its timeout, because its client had not ended it, or after its timeout for a "
        "new InitProducerId"
    ),
    EndCause.TIMEOUT_OR_ASKED: (
        "its coordinator aborted it at its timeout, because its client had not ended it, or after its timeout because "
        "its own client asked for a new epoch, which it has got; no other instance took the id over then"
    ),
    EndCause.CLIENT_OR_TIMEOUT: "its client aborted it after its timeout, or its coordinator did",
    EndCause.CLIENT_OR_FENCE: "its client aborted it, or its coordinator did for a new InitProducerId",
    EndCause.CLIENT_OR_COORDINATOR: (
        "its client aborted it, or its coordinator did, at its timeout or for a new InitProducerId"
    ),
    EndCause.UNKNOWN: "the log no longer shows who ended it",
}


class PastEnd(NamedTuple):
    """One end of a transaction.

    Attributes:
        decided: its last Prepare* record, or Complete* if the log has no other.
        complete_ms: when all its markers were written, by the coordinator's clock; None while they are not.
        open_for_ms: from its start to the decision; None if the start is not known.
        data_epoch: the producer epoch of its data; None if its Ongoing record is not in the log any more.
        after: the record right behind its own; None if there is none.
    """

    decided: CoordinatorView
    cause: EndCause
    complete_ms: TimestampMs | None
    open_for_ms: DurationMs | None
    data_epoch: ProducerEpoch | None
    after: CoordinatorView | None = None

    @property
    def is_commit(self) -> bool:
        """Whether it was committed."""
        return self.decided.state.outcome == "commit"

    @property
    def is_of_shared_epoch(self) -> bool:
        """Whether other transactions of an old client may have ended under the same epoch."""
        is_raised = self.data_epoch is not None and self.decided.producer_epoch != self.data_epoch
        return self.decided.client_transaction_version < RAISES_EPOCH and not is_raised


@dataclass(slots=True)
class _EndRecords:
    """The records of one transaction from its last Ongoing record on.

    Attributes:
        ongoing: the last Ongoing record before the first decision; None if the log has none.
        last: the last Prepare* record, or Complete* if the log has no other.
        first_ongoing: the first Ongoing record of the transaction.
        after: the record right behind these.
    """

    ongoing: CoordinatorView | None
    last: CoordinatorView
    first_ongoing: CoordinatorView | None
    complete_ms: TimestampMs | None = None
    after: CoordinatorView | None = None

    def take(self, view: CoordinatorView) -> None:
        """Takes another record with a decision about the transaction."""
        is_complete = view.state.is_complete
        if not (is_complete and view.state.outcome == self.last.state.outcome):
            self.last = view
        self.complete_ms = view.record_timestamp_ms if is_complete else None
        self.after = None

    def end(self) -> PastEnd:
        """The end that these records show."""
        proven = self._proven()
        open_for_ms = proven.open_for_ms if proven is not None else None
        data_epoch = self.ongoing.producer_epoch if self.ongoing is not None else None
        return PastEnd(self.last, self._cause(proven), self.complete_ms, open_for_ms, data_epoch, self.after)

    def _proven(self) -> TransactionEnd | None:
        decided = decision_of(self.last, self.last.producer_epoch, is_first=False)
        if self.ongoing is None or decided is None:
            return None
        return end_of(begun(self.ongoing), decided._replace(is_final=True))

    def _cause(self, end: TransactionEnd | None) -> EndCause:
        if self.last.state.outcome == "commit" or (end is not None and end.by is EndedBy.CLIENT):
            return EndCause.CLIENT
        if end is None or end.open_for_ms is None:
            return EndCause.UNKNOWN
        is_coordinators = end.by is EndedBy.COORDINATOR
        if not self._has_one_clock:
            return EndCause.COORDINATOR if is_coordinators else EndCause.CLIENT_OR_COORDINATOR
        if end.open_for_ms >= self.last.timeout_ms:
            return self._after_its_timeout() if is_coordinators else EndCause.CLIENT_OR_TIMEOUT
        return self._before_its_timeout(is_coordinators=is_coordinators)

    def _after_its_timeout(self) -> EndCause:
        return EndCause.TIMEOUT_OR_ASKED if self._has_asked else EndCause.TIMEOUT_OR_FENCE

    def _before_its_timeout(self, *, is_coordinators: bool) -> EndCause:
        if self._has_asked:
            return EndCause.CLIENT_ASKED
        if not is_coordinators:
            return EndCause.CLIENT_OR_FENCE
        return EndCause.FENCE if self.after is not None else EndCause.FENCE_UNANSWERED

    @property
    def _has_asked(self) -> bool:
        """Whether the client that began it has got the epoch with which it was aborted."""
        after = self.after
        return (
            after is not None
            and after.state is TransactionState.EMPTY
            and after.producer_epoch == self.last.producer_epoch
        )

    @property
    def _has_one_clock(self) -> bool:
        """Whether one coordinator has stamped the start and the decision."""
        first = self.first_ongoing
        if first is None or first.last_update_ms != first.start_ms:
            return False  # the record with which it began is missing
        return first.coordinator_epoch == self.last.coordinator_epoch


def past_ends(records: Sequence[CoordinatorView | None]) -> list[PastEnd]:
    """The ends that the records of one id show, oldest first; a Complete* record without its Prepare* is one too.

    None in `records` is a tombstone.
    """
    return [ending.end() for ending in _endings(records)]


def _endings(records: Sequence[CoordinatorView | None]) -> list[_EndRecords]:
    endings: list[_EndRecords] = []
    first: CoordinatorView | None = None
    ongoing: CoordinatorView | None = None
    empty_start_ms: TimestampMs | None = None
    for view in filter(None, records):
        is_more = bool(endings) and endings[-1].last.start_ms == view.start_ms
        if endings and not is_more and endings[-1].after is None:
            endings[-1].after = view
        if view.state is TransactionState.ONGOING:
            first = first if first is not None and first.start_ms == view.start_ms else view
            ongoing = view
            if is_more:
                endings.pop()  # the append of its Prepare* has failed
        elif view.state.is_prepare and not view.participants:
            empty_start_ms = view.start_ms
        elif view.state.outcome is None or (view.start_ms is not None and view.start_ms == empty_start_ms):
            continue
        elif is_more:
            endings[-1].take(view)
        else:
            is_begun = ongoing is not None and ongoing.start_ms == view.start_ms
            endings.append(_EndRecords(ongoing if is_begun else None, view, first if is_begun else None))
            endings[-1].take(view)
    return endings


# Whose a marker is. A marker names a producer id and an epoch; it has the clock of the partition's leader, and a
# decision that of the coordinator.
#
# Law: the epoch, the kind and the order of the markers say whose a marker is. Only the transactions of an old client
# share an epoch (transaction.version 0 and 1): between those, the time chooses. A coordinator that takes a log over
# sends the markers of each Prepare* again, and leaders append them a second time. Such a marker has the same epoch and
# kind as one before it, and a higher coordinator epoch than all before it. An administrator repeats the coordinator
# epoch that the partition has.

CLOCKS_APART_MS: Final = DurationMs(5_000)  # how much the clocks of two brokers may differ in the choice by time


def ends_on(ends: Sequence[PastEnd], partition: TopicPartition) -> list[PastEnd]:
    """The ends that have written a marker to a partition; those whose Prepare* record the log no longer has stay."""
    return [end for end in ends if not end.decided.state.is_prepare or partition in end.decided.participants]


def ended_with(ends: Sequence[PastEnd], marker: Marker, earlier: Sequence[Marker] = ()) -> PastEnd | None:
    """The end that has written a marker; `earlier` are the markers of its producer before it, in the order of the log.

    None if no end of the log fits it.
    """
    left, own = list(ends), None
    used: list[PastEnd] = []
    highest = -1
    for next_marker in (*earlier, marker):
        own = _nearest(left, next_marker)
        if own is not None:
            left.remove(own)
            used.append(own)
        elif next_marker.coordinator_epoch > highest >= 0:
            own = next((end for end in reversed(used) if _has_epoch_and_kind(end, next_marker)), None)
        highest = max(highest, next_marker.coordinator_epoch)
    return own


def _nearest(ends: Sequence[PastEnd], marker: Marker) -> PastEnd | None:
    fitting = [end for end in reversed(ends) if _has_epoch_and_kind(end, marker)]
    alone = next((end for end in fitting if not end.is_of_shared_epoch), None)
    near = min(fitting, key=lambda end: _apart_ms(end, marker), default=None)
    is_near = near is not None and _apart_ms(near, marker) <= CLOCKS_APART_MS
    return alone or (near if is_near else None)


def _has_epoch_and_kind(end: PastEnd, marker: Marker) -> bool:
    is_own_epoch = end.decided.producer_epoch == marker.producer_epoch
    return end.is_commit is marker.commit and is_own_epoch and end.decided.state.is_prepare


def _apart_ms(end: PastEnd, marker: Marker) -> DurationMs:
    """How long before the decision, or after the end, a marker was written; 0 if it was between the two."""
    late_ms = marker.timestamp_ms - end.complete_ms if end.complete_ms is not None else 0
    return DurationMs(max(end.decided.record_timestamp_ms - marker.timestamp_ms, late_ms, 0))
