"""What `explain` says about a marker that txnwatch or an administrator has written: claims, and what the log shows.

Anyone who may write the events topic can claim an abort. So a claim is compared with the marker in the partition's log,
and the text says which of the two says what. Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from txnwatch.cli.output import utc
from txnwatch.state.evidence.past_ends import PastEnd
from txnwatch.state.model.incident import Action, Decision, IncidentEvent, Initiator, latest
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import DurationMs, Offset, ProducerId, TimestampMs, TopicPartition

RECENT_MS: Final = DurationMs(86_400_000)
MOST_CLAIMS: Final = 3
# A marker and the coordinators' log have timestamps of two brokers.
_SKEW_MS: Final = DurationMs(5_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerByHand:
    """A marker that no coordinator has written, as JSON.

    Attributes:
        by: who has written it, by the events topic; None if only the log shows the marker.
        announced_ms: when, by the events topic.
        incident_id: the incident on the events topic.
    """

    partition: str
    producer_id: ProducerId
    is_commit: bool
    marker_offset: Offset
    written_ms: TimestampMs
    by: str | None = None
    announced_ms: TimestampMs | None = None
    incident_id: str | None = None


def claims_of(
    events: Iterable[IncidentEvent], is_wanted: Callable[[IncidentEvent], bool], now_ms: TimestampMs
) -> list[IncidentEvent]:
    """The last events of incidents whose hang txnwatch has ended with a marker, as they claim; the newest first."""
    found: dict[object, IncidentEvent] = {}
    for event in latest(events).values():
        action = event.action
        if event.span is None or event.txn_start_offset is None or action is None or not action.is_marker:
            continue
        if action.at_ms >= now_ms - RECENT_MS and is_wanted(event):
            key = event.span, event.txn_start_offset
            known = found.get(key)
            if known is None or known.action is None or known.action.at_ms <= action.at_ms:
                found[key] = event
    newest = sorted(found.values(), key=lambda one: -_at_ms(one))
    return newest[:MOST_CLAIMS]


def _at_ms(event: IncidentEvent) -> TimestampMs:
    assert event.action is not None
    return event.action.at_ms


def place_of_claim(claim: IncidentEvent) -> TopicPartition:
    """The partition of a claim."""
    assert claim.span is not None
    return claim.span[1]


def is_its_marker(claim: IncidentEvent, marker: Marker) -> bool:
    """Whether a marker in the log is the one that was announced: of its kind and of its epochs."""
    action = claim.action
    assert action is not None
    announced = (action.decision is Decision.COMMIT, action.marker_producer_epoch, action.marker_coordinator_epoch)
    return announced == (marker.commit, marker.producer_epoch, marker.coordinator_epoch)


def claim_text(
    claim: IncidentEvent, marker: Marker | None, *, is_open: bool = False, problem: str | None = None
) -> str:
    """What the events topic says about an abort, and what the partition's log shows of it."""
    assert claim.action is not None
    where = f"{place_of_claim(claim)}@{claim.txn_start_offset}"
    said = (
        f"The events topic says that {_who(claim.action)} announced the {_kind(claim.action)} marker for {where} at "
        f"{utc(claim.action.at_ms)} (incident {claim.incident_id})"
    )
    if problem is not None:
        return f"{said}; this could not be checked: {problem}."
    if is_open:
        return f"{said}, but that transaction is still open: nothing has ended it."
    if marker is None:
        return f"{said}. It is no longer open there, but the log does not show its marker any more."
    shown = marker_text(claim.producer_id, marker)
    if not is_its_marker(claim, marker):
        return f"{said}, but another marker has ended it: {shown}."
    return f"{said}. The log shows that it was ended so: {shown}. A marker does not name its writer."


def marker_text(producer_id: ProducerId, marker: Marker) -> str:
    """A marker of the log."""
    kind = "the COMMIT marker" if marker.commit else "the ABORT marker"
    epochs = f"epoch {marker.producer_epoch}, coordinator epoch {marker.coordinator_epoch}"
    written = f"written at {utc(marker.timestamp_ms)}"
    return f"{kind} at offset {marker.offset} (producer id {producer_id}, {epochs}), {written}"


def in_log(partition: TopicPartition, producer_id: ProducerId, marker: Marker) -> MarkerByHand:
    """A marker that only the log shows."""
    return MarkerByHand(
        partition=str(partition),
        producer_id=producer_id,
        is_commit=marker.commit,
        marker_offset=marker.offset,
        written_ms=marker.timestamp_ms,
    )


def seen(claim: IncidentEvent, marker: Marker) -> MarkerByHand:
    """A claim that the log confirms."""
    assert claim.action is not None
    shown = in_log(place_of_claim(claim), claim.producer_id, marker)
    return replace(shown, by=claim.action.by, announced_ms=claim.action.at_ms, incident_id=claim.incident_id)


def is_last_by_hand(ends: Sequence[PastEnd], markers: Sequence[Marker]) -> bool:
    """Whether no end of the id is left for its last marker on a partition: each end has one marker there."""
    left, own = list(ends), None
    for marker in markers:
        own = next((end for end in left if _can_be_of(end, marker)), None)
        left = [end for end in left if end is not own]
    return own is None


def _can_be_of(end: PastEnd, marker: Marker) -> bool:
    return (
        end.is_commit is marker.commit
        and end.decided.producer_epoch == marker.producer_epoch
        and end.decided.record_timestamp_ms - _SKEW_MS <= marker.timestamp_ms
        and (end.complete_ms is None or marker.timestamp_ms <= end.complete_ms + _SKEW_MS)
    )


def unclaimed_text(partition: TopicPartition, producer_id: ProducerId, marker: Marker, problem: str | None) -> str:
    """A marker that no decision in the coordinators' log fits; `problem` is why the events topic cannot tell."""
    who = "No event of txnwatch says who"
    if problem is not None:
        who = f"Who is not known, because the events topic could not be read: {problem}"
    return (
        f"The log of {partition} has {marker_text(producer_id, marker)}. No decision in the coordinators' log fits it: "
        "an administrator has written it (`txnwatch abort` or kafka-transactions.sh abort, with WriteTxnMarkers), or "
        f"the log no longer shows its transaction. {who}."
    )


def _who(action: Action) -> str:
    name = repr(action.by)
    return f"`txnwatch abort` of {name}" if action.initiator is Initiator.OPERATOR else f"the watcher {name}"


def _kind(action: Action) -> str:
    return "COMMIT" if action.decision is Decision.COMMIT else "ABORT"
