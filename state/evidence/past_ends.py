"""How the transactions of a transactional id have ended, and by whom, from the id's records in the coordinators' log.

DescribeTransactions shows only the state that the id has now. The log also shows the Ongoing record before an end, and
what follows it. Three can end a transaction: its client; the coordinator at the transaction's timeout; and the
coordinator for a new InitProducerId of the same id, which fences the client. state/detection/view.py tells the client
from the coordinator by the epochs. Of the coordinator's two reasons, the timeout must have passed for the first one. A
client with transaction.version 2 raises the epoch as a coordinator does. Only this client can begin the next
transaction under the raised epoch without an InitProducerId; without such a record, it stays open who it was.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from txnwatch.state.detection.view import begun, end_of
from txnwatch.state.model.facts import FirstDecision, TransactionEnd
from txnwatch.state.model.incident import EndedBy
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.values import DurationMs, TimestampMs


class EndCause(StrEnum):
    """Who ended a transaction, as far as the log shows it."""

    CLIENT = "client"
    TIMEOUT = "timeout"
    FENCE = "fence"
    CLIENT_OR_TIMEOUT = "client_or_timeout"
    CLIENT_OR_FENCE = "client_or_fence"
    UNKNOWN = "unknown"


CAUSE_MEANS = {
    EndCause.CLIENT: "its client ended it",
    EndCause.TIMEOUT: "its coordinator aborted it at its timeout, because its client had not ended it",
    EndCause.FENCE: (
        "its coordinator aborted it for a new InitProducerId: the application has started again, another instance has "
        "the same transactional id, or somebody has fenced it"
    ),
    EndCause.CLIENT_OR_TIMEOUT: "its client aborted it after its timeout, or its coordinator did",
    EndCause.CLIENT_OR_FENCE: "its client aborted it, or its coordinator did for a new InitProducerId",
    EndCause.UNKNOWN: "the log no longer shows who ended it",
}


class IdRecord(NamedTuple):
    """One record of a transactional id.

    Attributes:
        view: what the record shows; None for a tombstone.
        is_consecutive: whether nothing is missing between the record of the id before it and this one.
    """

    view: CoordinatorView | None
    is_consecutive: bool


class PastEnd(NamedTuple):
    """One end of a transaction.

    Attributes:
        decided: the first record that decides it.
        complete_ms: when all its markers were written, by the coordinator's clock; None while they are not.
        open_for_ms: from its start to the decision; None if the start is not known.
    """

    decided: CoordinatorView
    cause: EndCause
    complete_ms: TimestampMs | None
    open_for_ms: DurationMs | None

    @property
    def is_commit(self) -> bool:
        """Whether it was committed."""
        return self.decided.state.outcome == "commit"


def past_ends(records: Sequence[IdRecord]) -> list[PastEnd]:
    """The ends that the records of one id show, oldest first; a Complete* record without its Prepare* is one too."""
    found: list[PastEnd] = []
    for at, record in enumerate(records):
        view = record.view
        if view is None or view.state.outcome is None:
            continue
        before = records[at - 1].view if at else None
        if before is not None and before.state.is_prepare and _are_one(before, view):
            found[-1] = found[-1]._replace(complete_ms=None if view.state.is_prepare else view.record_timestamp_ms)
            continue
        following = next((later.view for later in records[at + 1 :] if not _ends(later.view, view)), None)
        end = _end(before, view, is_consecutive=record.is_consecutive)
        complete_ms = None if view.state.is_prepare else view.record_timestamp_ms
        open_for_ms = end.open_for_ms if end is not None else None
        found.append(PastEnd(view, _cause(end, before, view, following), complete_ms, open_for_ms))
    return found


def ended_with(ends: Sequence[PastEnd], marker: Marker) -> PastEnd | None:
    """The end whose marker this is: of this outcome and epoch, decided before the marker and complete after it."""
    return next(
        (
            end
            for end in reversed(ends)
            if end.is_commit is marker.commit
            and end.decided.producer_epoch == marker.producer_epoch
            and end.decided.state.is_prepare
            and end.decided.record_timestamp_ms <= marker.timestamp_ms
            and (end.complete_ms is None or marker.timestamp_ms <= end.complete_ms)
        ),
        None,
    )


def _are_one(prepared: CoordinatorView, complete: CoordinatorView) -> bool:
    return prepared.state.outcome == complete.state.outcome and prepared.start_ms == complete.start_ms


def _ends(later: CoordinatorView | None, decided: CoordinatorView) -> bool:
    """Whether a later record is about the same end."""
    return later is not None and later.state.outcome is not None and _are_one(decided, later)


def _end(before: CoordinatorView | None, view: CoordinatorView, *, is_consecutive: bool) -> TransactionEnd | None:
    if before is None or before.state is not TransactionState.ONGOING:
        return None
    decided = FirstDecision(
        view.state, view.start_ms, view.producer_epoch, view.log_offset, view.record_timestamp_ms, is_consecutive
    )
    return end_of(begun(before), decided, is_consecutive=is_consecutive)


def _cause(
    end: TransactionEnd | None,
    before: CoordinatorView | None,
    view: CoordinatorView,
    following: CoordinatorView | None,
) -> EndCause:
    if view.state.outcome == "commit" or (end is not None and end.by is EndedBy.CLIENT):
        return EndCause.CLIENT
    if end is None or before is None or end.open_for_ms is None:
        return EndCause.UNKNOWN
    has_timed_out = end.open_for_ms >= before.timeout_ms
    if end.by is EndedBy.COORDINATOR:
        return EndCause.TIMEOUT if has_timed_out else EndCause.FENCE
    if following is not None and _goes_on(view, following):
        return EndCause.CLIENT
    return EndCause.CLIENT_OR_TIMEOUT if has_timed_out else EndCause.CLIENT_OR_FENCE


def _goes_on(decided: CoordinatorView, following: CoordinatorView) -> bool:
    """Whether the client has begun its next transaction under the epoch that the end gave it."""
    is_same = (following.producer_epoch, following.log_partition) == (decided.producer_epoch, decided.log_partition)
    return following.state is TransactionState.ONGOING and is_same
