"""The protocol of every abort, automatic or by hand: announce, write the marker, read again, report.

  1. The announcement is published before the marker is written. If the process dies after the write, the announcement
     without a result remains, and the next process reads the partition again.
  2. The caller checks again whether it may write (the lease, the age of its read). The marker is then written.
  3. The partition is read again. Only this read counts: Kafka answers NONE also to a marker without a transaction, and
     the marker that closed the transaction may be another writer's, of the other kind.
  4. The result of that read is published, unless another writer tells it.

The automatic abort and the abort by hand differ in how an event is published, in what is checked after the
announcement, in what is kept before the marker is written, and in who tells the result. First comes the plan that wants
the reads, the marker and the events in this order; then what each of its steps decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from txnwatch.state.abort.rules import RULE_OF_REFUSAL, AbortSpec
from txnwatch.state.evidence.ending import absorbed, closed_by_marker, given_up, is_joined, no_longer_open
from txnwatch.state.incidents.wanted import FindClosingMarker, Now, Plan, ReadPartitions, WriteMarker, ask
from txnwatch.state.model.incident import (
    Action,
    ActionResult,
    Decision,
    EndedBy,
    Evidence,
    IncidentEvent,
    Initiator,
    Refusal,
    Resolution,
    repeat_incident_id,
    start_of,
    updated,
)
from txnwatch.state.model.ports import MarkerSpec, NotSent, PartitionReading
from txnwatch.state.model.transaction import ClosingMarker, Marker
from txnwatch.state.model.values import DurationMs, Offset, Problem, SpanStart, TimestampMs

_NOT_DELIVERED = "the event that announces it could not be delivered"


class Performed(NamedTuple):
    """The end of the protocol: the last event and the result."""

    event: IncidentEvent
    result: MarkerResult | NotSent


def _no_obstacle() -> Plan[None]:
    yield from ()


def too_old(read_ms: TimestampMs, limit_ms: DurationMs) -> Plan[str | None]:
    """The obstacle of a fresh read that is too old; `read_ms` is when it began."""
    return outdated(read_ms, (yield from ask(Now())), limit_ms)


@dataclass(frozen=True, slots=True)
class MarkerProtocol:
    """Ends one transaction.

    Attributes:
        publish: publishes an event; returns whether the events topic has it.
        obstacle: asked after the announcement, right before the marker; why it must not be written, or None.
        before_write: what is done directly before the marker is written.
        reports: whether the result of a marker that was written is published.
        is_published: whether the incident is on the events topic.
    """

    publish: Callable[[IncidentEvent], Plan[bool]]
    obstacle: Callable[[], Plan[str | None]] = _no_obstacle
    before_write: Callable[[], Plan[None]] = _no_obstacle
    reports: Callable[[MarkerResult], bool] = lambda _: True
    is_published: bool = True

    def run(
        self, incident: IncidentEvent, spec: AbortSpec, begun: Action, reading: PartitionReading
    ) -> Plan[Performed]:
        """Announces the marker, writes it, reads the partition again and reports; `reading` is the fresh read."""
        announced = announcement(incident, begun, reading, is_published=self.is_published)
        result = yield from self._try(announced, spec)
        action = not_written(begun, result.why) if isinstance(result, NotSent) else reported(begun, result)
        event = updated(replace(announced, action=action), (yield from ask(Now())))
        if isinstance(result, NotSent) or self.reports(result):
            yield from self.publish(event)
        return Performed(event, result)

    def _try(self, announced: IncidentEvent, spec: AbortSpec) -> Plan[MarkerResult | NotSent]:
        if not (yield from self.publish(announced)):
            return NotSent(_NOT_DELIVERED)
        why = yield from self.obstacle()
        if why is not None:
            return NotSent(why)
        yield from self.before_write()
        return (yield from _write(announced, spec))


def _write(incident: IncidentEvent, spec: AbortSpec) -> Plan[MarkerResult | NotSent]:
    """Writes the marker and reads what has closed the transaction."""
    marker = spec.marker
    problem = yield from ask(WriteMarker(marker))
    if isinstance(problem, NotSent):
        return problem
    result = with_answer((yield from read_after(incident, commit=marker.commit)), problem)
    if problem is not None or result.closed_by is None:
        return result
    above = result.closed_by.offset + 1
    following = yield from ask(FindClosingMarker(SpanStart(marker.partition, marker.producer_id, above), above))
    next_one = following.marker if following is not None else None
    # That none follows proves something only if the log can still be read.
    last = yield from read_after(incident, commit=marker.commit)
    is_ours = is_own_marker(marker, result.closed_by, next_one) and last.closed_by == result.closed_by
    return replace(last, is_ours=is_ours)


def read_after(incident: IncidentEvent, *, commit: bool) -> Plan[MarkerResult]:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit`."""
    span = start_of(incident)
    reading = (yield from ask(ReadPartitions([span.partition])))[span.partition]
    result = still_open_or_unreadable(incident, reading)
    if result is not None:
        return result
    closing = yield from ask(FindClosingMarker(span, open_until(incident, reading)))
    if closing is None:
        return closed(None, reading, commit=commit)
    is_absorbed = is_same_log(incident, reading) and is_joined(incident.producer_epoch, closing)
    return replace(closed(closing.marker, reading, commit=commit), is_absorbed=is_absorbed)


def closing_marker(incident: IncidentEvent) -> Plan[ClosingMarker | None]:
    """The marker that closed the incident's transaction; None if the log of its partition does not certainly show it.

    It is searched for above an end of the same leader at which the transaction was open. Another leader may have
    another log: the first marker there may be of other data. The incident is one that this process has found.
    """
    if incident.txn_start_offset is None:
        return None
    span = start_of(incident)
    reading = (yield from ask(ReadPartitions([span.partition])))[span.partition]
    if not is_same_log(incident, reading) or still_open_or_unreadable(incident, reading) is not None:
        return None
    return (yield from ask(FindClosingMarker(span, open_until(incident, reading))))


# What the steps decide. Pure.

ABANDONED_MS = DurationMs(60_000)
_WITH_MARKER = frozenset({Decision.ABORT, Decision.COMMIT})
BY_HAND = "by hand"  # the detail of an action and a resolution by an operator, if there is no other


@dataclass(frozen=True, slots=True)
class MarkerResult:
    """The result of a marker.

    Attributes:
        stable_after: the last stable offset after it; None if it could not be read.
        is_denied: whether the right to write markers is missing.
        is_closed: whether a read has shown that the transaction is no longer open.
        closed_by: the marker that closed it, of any writer; None if it is open, or if the marker could not be read.
        is_ours: whether `closed_by` is proven to be the marker that was just written.
        is_absorbed: whether a later transaction of the producer has joined it before `closed_by`.
    """

    result: ActionResult
    detail: str | None = None
    stable_after: Offset | None = None
    is_denied: bool = False
    is_closed: bool = False
    closed_by: Marker | None = None
    is_ours: bool = False
    is_absorbed: bool = False


def action(
    decision: Decision,
    by: str,
    at_ms: TimestampMs,
    *,
    refusal: Refusal | None = None,
    detail: str | None = None,
    spec: AbortSpec | None = None,
    stable_before: Offset | None = None,
    initiator: Initiator = Initiator.WATCH,
) -> Action:
    """The event's `action`, with no result yet."""
    marker = spec.marker if spec is not None else None
    return Action(
        decision=decision,
        refusal=refusal,
        detail=detail,
        by=by,
        marker_producer_epoch=marker.producer_epoch if marker is not None else None,
        marker_coordinator_epoch=marker.coordinator_epoch if marker is not None else None,
        last_stable_offset_before=stable_before,
        at_ms=at_ms,
        initiator=initiator,
    )


def announcement(
    incident: IncidentEvent, announced: Action, reading: PartitionReading, *, is_published: bool
) -> IncidentEvent:
    """The event before the marker, with the read on which the decision is based.

    It is the next event of an incident that is on the events topic. If no watch has opened one, an abort by hand opens
    an incident of its own.
    """
    evidence = _read_anew(incident.evidence, reading, announced.at_ms)
    if is_published:
        return updated(replace(incident, action=announced, evidence=evidence), announced.at_ms)
    own_id = repeat_incident_id(incident.incident_id, announced.at_ms)
    return replace(incident, incident_id=own_id, action=announced, evidence=evidence, time_ms=announced.at_ms)


def _read_anew(evidence: Evidence, reading: PartitionReading, now_ms: TimestampMs) -> Evidence:
    """The evidence with a fresh read: the marker that closes the transaction lies above the end of this read."""
    return replace(
        evidence,
        confirmed_ms=now_ms,
        leader=reading.leader,
        leader_epoch=reading.leader_epoch,
        end_before=reading.end_before,
        end_after=reading.end_after,
    )


def still_open_or_unreadable(incident: IncidentEvent, reading: PartitionReading) -> MarkerResult | None:
    """What the read after the marker shows, if it does not show that the transaction is closed; else None."""
    if reading.problem is not None:
        return MarkerResult(ActionResult.UNKNOWN, f"the partition could not be read again: {reading.problem}")
    if reading.topic_id != incident.topic_id:
        detail = "the topic was re-created: the transaction was deleted with the old topic"
        return MarkerResult(ActionResult.UNKNOWN, detail)
    row = reading.open_transaction(incident.producer_id)
    if row is not None and row.txn_start_offset == incident.txn_start_offset:
        return MarkerResult(ActionResult.STILL_OPEN, None, reading.last_stable_offset)
    return None


def open_until(incident: IncidentEvent, reading: PartitionReading) -> Offset:
    """An end at which the transaction was open; its start after a leader change, because the log may differ."""
    start, end = incident.txn_start_offset, incident.evidence.end_before
    assert start is not None
    return max(start, end) if end is not None and is_same_log(incident, reading) else start


def is_same_log(incident: IncidentEvent, reading: PartitionReading) -> bool:
    """Whether the leader has the log of the incident's evidence: another leader may have other data there."""
    return reading.leader_epoch is not None and reading.leader_epoch == incident.evidence.leader_epoch


def closed(marker: Marker | None, reading: PartitionReading, *, commit: bool) -> MarkerResult:
    """The result for a transaction that is closed: by a marker of the wanted kind, of the other kind, or unknown."""
    if marker is None:
        result, detail = ActionResult.UNKNOWN, "the transaction is closed, but its closing marker could not be read"
        return MarkerResult(result, f"{detail}: its kind is unknown", reading.last_stable_offset, is_closed=True)
    ended = MarkerResult(ActionResult.VERIFIED, None, reading.last_stable_offset, is_closed=True, closed_by=marker)
    if marker.commit == commit:
        return ended
    kind, became = ("a COMMIT", "committed") if marker.commit else ("an ABORT", "aborted")
    detail = f"{kind} marker at offset {marker.offset} closed it first: its data is {became}"
    return replace(ended, result=ActionResult.FAILED, detail=detail)


def with_answer(marker_result: MarkerResult, problem: Problem | None) -> MarkerResult:
    """The result of the read, with the broker's answer to the marker, which alone proves nothing."""
    is_open = marker_result.result is ActionResult.STILL_OPEN
    if problem is None:
        accepted = "the broker accepted the marker, but the transaction is still open"
        return replace(marker_result, detail=accepted) if is_open else marker_result
    answered = f"the broker answered {problem}"
    if marker_result.is_closed:
        return replace(
            marker_result,
            detail=f"{marker_result.detail}; {answered}" if marker_result.detail is not None else answered,
        )
    result = ActionResult.FAILED if is_open else ActionResult.UNKNOWN
    return replace(marker_result, result=result, detail=answered, is_denied=problem.is_denied)


def is_own_marker(written: MarkerSpec, closed_by: Marker, next_one: Marker | None) -> bool:
    """Whether an accepted marker is the one that closed the transaction; `next_one` is the producer's marker after it.

    A marker does not name its writer. A leader also accepts one for a closed transaction: then ours follows the marker
    of another writer. So the closing marker is ours only if it has our epochs and no other marker follows it. Only a
    marker of a newer epoch may follow: after that one, ours would have been refused.
    """
    is_alone = next_one is None or next_one.producer_epoch > written.producer_epoch
    epochs = (closed_by.producer_epoch, closed_by.coordinator_epoch, closed_by.commit)
    return is_alone and epochs == (written.producer_epoch, written.coordinator_epoch, written.commit)


def reported(announced: Action, result: MarkerResult) -> Action:
    """The action with the result. A missing right is a refusal, because no marker was written."""
    if not result.is_denied:
        detail = result.detail if result.detail is not None else announced.detail
        return replace(announced, result=result.result, detail=detail, last_stable_offset_after=result.stable_after)
    refusal = Refusal.NOT_AUTHORIZED
    detail = f"{result.detail}: {RULE_OF_REFUSAL[refusal].what_to_do}"
    return replace(announced, decision=Decision.REFUSED, refusal=refusal, result=None, detail=detail)


def not_written(announced: Action, why: str) -> Action:
    """The action after an announcement that no marker followed."""
    return replace(announced, result=ActionResult.FAILED, detail=f"no marker was written: {why}")


def is_left_without_result(announced: Action | None, instance: str, known_ms: TimestampMs, now_ms: TimestampMs) -> bool:
    """Whether `instance` has to find the result: its own from before a restart, or that of an instance that is gone.

    `known_ms` is since when this process knows of the announcement: the time in it is of the other instance's clock.
    """
    if announced is None or announced.decision not in _WITH_MARKER or announced.result is not None:
        return False
    return announced.by == instance or now_ms - known_ms > ABANDONED_MS


def recovered(announced: Action, result: MarkerResult) -> Action | None:
    """The action with a result that was found later, from the log alone; None if the log does not show it yet."""
    if result.result is ActionResult.UNKNOWN:
        return None
    detail = "a marker was announced without a result; this result is from the log"
    if result.result is ActionResult.STILL_OPEN:
        detail += ": the transaction is open, so no marker has ended it"
    elif result.detail is not None:
        detail += f"; {result.detail}"
    return replace(announced, result=result.result, detail=detail, last_stable_offset_after=result.stable_after)


def resolution(written: MarkerSpec, result: MarkerResult, now_ms: TimestampMs) -> Resolution:
    """How the incident of an abort by hand ends: by the marker that closed the transaction, ours or not.

    An abort that saw no end has given up: nobody else may be there to end its incident.
    """
    marker, detail = result.closed_by, result.detail or BY_HAND
    if not result.is_closed:
        return given_up(now_ms, detail)
    if marker is None:
        return no_longer_open(now_ms, detail)
    if result.is_absorbed:
        return absorbed(marker, now_ms)
    return closed_by_marker(marker, _writer(written, marker, is_ours=result.is_ours), now_ms, detail)


def _writer(written: MarkerSpec, marker: Marker, *, is_ours: bool) -> EndedBy:
    """Who wrote the marker. One of another writer is an administrator's: no live transaction has our accepted epoch."""
    if is_ours:
        return EndedBy.TXNWATCH
    return EndedBy.ADMINISTRATOR if marker.producer_epoch == written.producer_epoch else EndedBy.COORDINATOR


# The limits of an abort: the hour of its budget, and the age of its read.

HOUR_MS: Final = DurationMs(3_600_000)
# The greatest age of the read on which a marker is written. It bounds surprises; the rules do not depend on it. An
# operator may be far away from the brokers, and decides again after a failure.
FRESH_READ_MS: Final = DurationMs(5_000)
FRESH_READ_BY_HAND_MS: Final = DurationMs(30_000)


def outdated(read_ms: TimestampMs, now_ms: TimestampMs, limit_ms: DurationMs) -> str | None:
    """Why no marker may be written on a fresh read any more; None while the read is fresh enough."""
    age_ms = now_ms - read_ms
    if age_ms <= limit_ms:
        return None
    return f"the fresh read began {-(-age_ms // 1000)} s ago, and the limit is {limit_ms // 1000} s"
