"""Whether an open transaction ends by itself, when, and why: the sentences. Pure: no I/O, no clock.

Law: whether it does is in one table, ENDS_BY_ITSELF of state/model/verdicts.py. A time is said only if it is known.
"""

from __future__ import annotations

from typing import Final

from txnwatch.state.evidence.screening import ExpectedEnd
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.state.model.verdicts import (
    DEFAULT_SCAN_INTERVAL_MS,
    ENDS_BY_ITSELF,
    RULE_OF,
    TWO_PHASE_TIMEOUT_MS,
    DetectionPolicy,
    EndsByItself,
    Family,
    Verdict,
    WillEndBy,
)
from txnwatch.state.text import utc_text

_LATE_AFTER_MS: Final = DEFAULT_SCAN_INTERVAL_MS + DetectionPolicy().late_buffer_ms
_WHETHER: Final = {EndsByItself.YES: "yes", EndsByItself.NO: "no", EndsByItself.UNKNOWN: "not known"}
_WHY: Final = {
    WillEndBy.ABSORPTION: "only the producer's next transaction can absorb it",
    WillEndBy.ABSORBED: "with the transaction that absorbed it",
    WillEndBy.MARKERS: "it ends when the leaders of its partitions accept its markers, and not if a leader has refused "
    "one",
    WillEndBy.CLIENT: "it is a two-phase transaction without a timeout, so only its client ends it",
    WillEndBy.TIMEOUT: "if its client does not end it, its coordinator aborts it at its next scan after its timeout"
    f"{{due}}; by default a coordinator scans every {DEFAULT_SCAN_INTERVAL_MS // 1000} s",
    WillEndBy.TIMEOUT_IN_DOUBT: "its timeout{due} has passed by this machine's clock; by its coordinator's clock it "
    "has not passed, or this is not known (`txnwatch doctor` compares the clocks)",
    WillEndBy.NO_START: "its coordinator returned no start, so it is not known when its timeout passes",
    WillEndBy.LATE_COORDINATOR: "its coordinator still owns it, and has not aborted it at its timeout{due}",
    WillEndBy.NO_OWNER: "it is not known which transaction owns it",
    WillEndBy.REPAIR: "until this is repaired nothing ends it, neither its client, nor its coordinator, nor a fence",
}


def whether_text(end: ExpectedEnd) -> str:
    """Whether it ends by itself, when, and why, as a part of a sentence."""
    due = f", {utc_text(end.due_ms)}" if end.due_ms is not None else ""
    return f"{_WHETHER[ENDS_BY_ITSELF[end.by]]}: {_WHY[end.by].format(due=due)}"


def ends_text(end: ExpectedEnd) -> str:
    """The same as a sentence."""
    return f"Ends by itself: {whether_text(end)}."


def end_of_event(event: IncidentEvent) -> ExpectedEnd:
    """The expected end of what an open incident is about."""
    return ExpectedEnd(RULE_OF[event.verdict].ends_by, due_of_event(event))


def end_of_listed(transaction: OpenTransaction, verdict: Verdict | None, now_ms: TimestampMs) -> ExpectedEnd:
    """The expected end of an open transaction of the lists of a watcher; `verdict` is that of the incident about it."""
    timeout_ms = transaction.timeout_ms
    if transaction.prepared_ms is not None:
        return ExpectedEnd(WillEndBy.MARKERS)
    due_ms = transaction.since_ms + timeout_ms if timeout_ms is not None else None
    if verdict is not None:
        return ExpectedEnd(RULE_OF[verdict].ends_by, due_ms)
    if due_ms is None:
        return ExpectedEnd(WillEndBy.NO_OWNER)
    if timeout_ms == TWO_PHASE_TIMEOUT_MS:
        return ExpectedEnd(WillEndBy.CLIENT)
    is_past = now_ms > due_ms + _LATE_AFTER_MS
    return ExpectedEnd(WillEndBy.TIMEOUT_IN_DOUBT if is_past else WillEndBy.TIMEOUT, due_ms)


def due_of_event(event: IncidentEvent) -> TimestampMs | None:
    """When the timeout of a transaction is over that its coordinator can abort; None if nothing limits it."""
    has_timeout = event.topic is None and RULE_OF[event.verdict].family is not Family.PREPARE
    return event.open_since_ms + event.transaction_timeout_ms if has_timeout and event.transaction_timeout_ms else None
