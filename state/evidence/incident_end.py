"""How an incident ends: its resolution, by what ended its subject. Pure: no I/O; the time is an argument.

resolution.py has the rules for who wrote a marker, and when a span is over.
"""

from __future__ import annotations

from txnwatch.state.evidence.resolution import ended_by
from txnwatch.state.model.description import DescribedTransaction, TransactionDescription
from txnwatch.state.model.findings import SpanEnd, SpanEnded, TransactionMoved
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.incident_payload import EndedBy, EndKind, ExpectedOutcome, Resolution
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.transaction import CoordinatorView, Marker, TransactionState
from txnwatch.state.model.transaction_end import TransactionEnd
from txnwatch.state.model.verdicts import RULE_OF, Family

_END_OF = {ExpectedOutcome.COMMIT: EndKind.COMMITTED, ExpectedOutcome.ABORT: EndKind.ABORTED}
_ABORTED_BY = {
    EndedBy.CLIENT: "its client aborted it",
    EndedBy.COORDINATOR: "its coordinator aborted it, at its timeout or for a new InitProducerId",
    EndedBy.UNKNOWN: "its client or its coordinator aborted it, which the log does not show",
}
_CLAIMED = "txnwatch announced a marker, but this process cannot prove that this marker closed the transaction"


def span_resolution(
    ended: SpanEnded,
    incident: IncidentEvent,
    owner: TransactionDescription | None,
    now_ms: TimestampMs,
    ours: Marker | None = None,
) -> Resolution:
    """The resolution of an incident about a span, by what ended it; `ours` is a marker proven to be ours."""
    marker = ended.marker
    match ended.how:
        case SpanEnd.MARKER if marker is not None:
            by = ended_by(marker, incident, owner, ours)
            is_claimed = by is EndedBy.ADMINISTRATOR and incident.action is not None and incident.action.is_marker
            return closed_by_marker(marker, by, now_ms, _CLAIMED if is_claimed else None)
        case SpanEnd.ABSORBED if marker is not None:
            return absorbed(marker, now_ms)
        case SpanEnd.PARTITION_GONE:
            return partition_gone(now_ms)
        case SpanEnd.TRUNCATED:
            return _end(EndKind.TRUNCATED, EndedBy.UNKNOWN, now_ms, "the log was truncated below the open data")
        case _:
            return no_longer_open(now_ms, "the partition's leader no longer has the transaction open")


def transaction_resolution(moved: TransactionMoved, now_ms: TimestampMs) -> Resolution:
    """The resolution of an incident about a transaction, by the end of this transaction.

    The latest state of its id may be of a later transaction, so it shows no end.
    """
    before, view = moved.candidate_view, moved.view
    if moved.end is not None:
        return _end(_END_OF[decided_outcome(moved.end.state)], moved.end.by, now_ms, _ending(moved.end, before))
    if view.transactional_id == before.transactional_id and view.state is TransactionState.DEAD:
        return no_longer_open(now_ms, "the coordinator no longer has the id")
    if (view.transactional_id, view.start_ms) == (before.transactional_id, before.start_ms) and view.is_live:
        return _end(EndKind.MOVED_ON, EndedBy.COORDINATOR, now_ms, f"the coordinator has it in state {view.state}")
    return no_longer_open(now_ms, f"the id is {view.state} now, and the log does not show how this transaction ended")


def _ending(end: TransactionEnd, before: CoordinatorView) -> str:
    """Who ended a transaction and when, for people."""
    where = f"{end.state} at {before.log_partition}@{end.log_offset} of the coordinators' log"
    if end.state.outcome == ExpectedOutcome.COMMIT:
        return f"its client committed it: {where}"
    aborted = f"{_ABORTED_BY[end.by]}: {where}"
    if end.open_for_ms is None:
        return aborted
    return f"{aborted}, {end.open_for_ms} ms after its start, with a timeout of {before.timeout_ms} ms"


def described_end(incident: IncidentEvent, owner: DescribedTransaction, now_ms: TimestampMs) -> Resolution | None:
    """The resolution by the answer of the coordinator, if it shows how this transaction ended, and not a later one.

    A commit keeps the start of its own transaction. An abort that has the same start under another epoch may be that of
    a later transaction without data, so it shows nothing.
    """
    outcome = decided_outcome(owner.state)
    if outcome not in _END_OF or owner.producer_id != incident.producer_id:
        return None
    is_same_epoch = owner.producer_epoch == incident.producer_epoch
    if RULE_OF[incident.verdict].family is Family.PREPARE:
        is_its_own, by = is_same_epoch and outcome == incident.expected_outcome, EndedBy.UNKNOWN
    else:
        is_proven = is_same_epoch or outcome == ExpectedOutcome.COMMIT
        is_its_own, by = is_proven and owner.start_ms == incident.open_since_ms, EndedBy.CLIENT
    by = EndedBy.CLIENT if outcome == ExpectedOutcome.COMMIT else by
    detail = f"the coordinator has it in state {owner.state}"
    return _end(_END_OF[outcome], by, now_ms, detail) if is_its_own else None


def partition_gone(now_ms: TimestampMs) -> Resolution:
    """The resolution of an incident whose partition no longer exists."""
    return _end(EndKind.PARTITION_GONE, EndedBy.ADMINISTRATOR, now_ms, "the topic was deleted or re-created")


def refuted(now_ms: TimestampMs, owner: DescribedTransaction) -> Resolution:
    """The resolution of an incident that a fresh read contradicts: the span's own transaction is live."""
    detail = f"{owner.transactional_id} is {owner.state} and owns this transaction: its coordinator will end it"
    return _end(EndKind.REFUTED, EndedBy.COORDINATOR, now_ms, detail)


def absorbed(marker: Marker, now_ms: TimestampMs) -> Resolution:
    """The resolution of data that was committed or aborted together with a later transaction."""
    detail = f"{_end_kind(marker)} together with a later transaction of the same producer"
    return _end(EndKind.ABSORBED, EndedBy.NEXT_TRANSACTION, now_ms, detail, marker)


def no_longer_open(now_ms: TimestampMs, detail: str) -> Resolution:
    """The resolution of an incident that is over, but whose end was not seen."""
    return _end(EndKind.NO_LONGER_OPEN, EndedBy.UNKNOWN, now_ms, detail)


def _end(
    how: EndKind, by: EndedBy, now_ms: TimestampMs, detail: str | None = None, marker: Marker | None = None
) -> Resolution:
    offset = marker.offset if marker is not None else None
    return Resolution(how=how, by=by, marker_offset=offset, detail=detail, at_ms=now_ms)


def _end_kind(marker: Marker) -> EndKind:
    return EndKind.COMMITTED if marker.commit else EndKind.ABORTED


def closed_by_marker(marker: Marker, by: EndedBy, now_ms: TimestampMs, detail: str | None = None) -> Resolution:
    """The resolution of a span that a marker has closed."""
    return _end(_end_kind(marker), by, now_ms, detail, marker)


def decided_outcome(state: TransactionState | None) -> ExpectedOutcome:
    """The outcome that a coordinator has decided; UNKNOWN if it has decided none."""
    outcome = state.outcome if state is not None else None
    return ExpectedOutcome(outcome) if outcome is not None else ExpectedOutcome.UNKNOWN
