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
from txnwatch.state.model.transaction import Marker, TransactionState

_END_OF = {ExpectedOutcome.COMMIT: EndKind.COMMITTED, ExpectedOutcome.ABORT: EndKind.ABORTED}
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
    """The resolution of an incident about a transaction, by what the coordinator did next."""
    view = moved.view
    if view.state is TransactionState.DEAD:
        return no_longer_open(now_ms, "the coordinator no longer has the id")
    how = _END_OF.get(decided_outcome(view.state), EndKind.MOVED_ON)
    return _end(how, EndedBy.COORDINATOR, now_ms, f"the coordinator moved on to {view.state}")


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
