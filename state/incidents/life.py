"""The life of an incident: what happens to it, what this process does, and what counts of the events of others.

The life is a table that is executed. The ledger looks up the step of each happening and makes it; `make docs` writes
the table into docs/consumers.md. An incident is opened once and resolved once, so each row says what follows for each
of the four values of `Known`. A cell of a case that cannot occur has `nothing`, or what the cell beside it has: a fresh
read, for example, confirms an incident that is open, or none. An open incident that learns its owner or its outcome is
published by found_incidents.py, as the row CHANGED says. The rules below the table decide what an event on the events
topic is for this process.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import Final, NamedTuple

from txnwatch.state.evidence.outcome import Outcome, with_outcome
from txnwatch.state.model.incident import (
    SPENT_SEQUENCE,
    Action,
    ActionResult,
    EndKind,
    ExpectedOutcome,
    IncidentEvent,
    Resolution,
)
from txnwatch.state.model.values import DurationMs, Offset, TimestampMs
from txnwatch.state.model.verdicts import RULE_OF, Verdict, rank


class Known(StrEnum):
    """What this process knows of an incident."""

    NOTHING = "no incident is known"
    CLAIMED = "open, found by others"
    FOUND = "open, found here"
    ENDED = "resolved"


class NextStep(StrEnum):
    """What this process does."""

    NOTHING = "nothing"
    OPEN = "publish `opened`"
    END_AND_OPEN = "publish `resolved`, then `opened` under another id"
    CHANGE_VERDICT = "publish `updated` with the new verdict"
    ADOPT = "take over the content that was found here; publish it if it differs"
    UPDATE = "publish `updated`"
    END = "publish `resolved`"
    END_AND_READ_AGAIN = "publish `resolved`, and read again: if it still hangs, it is opened under another id"
    CORRECT = "publish `updated` with what was found here"
    READ_AGAIN = "read again at once: if it still hangs, it is opened under another id"
    PUBLISH_AGAIN = "publish the last event again, with its sequence"
    END_AGAIN = "publish `resolved` again, with the next sequence"
    WAIT = "wait; once it is found here, publish it"


class Happening(Enum):
    """What can happen to an incident; the values are for the page."""

    CONFIRMED = "A fresh read confirms it, with the same verdict"
    CONFIRMED_OTHERWISE = "A fresh read confirms it, with another verdict"
    ANOTHER_CONFIRMED = "A fresh read confirms another transaction of its producer on its partition"
    CHANGED = "A value has changed after which somebody would act differently"
    OVER = "The log, the coordinator or the leader shows that it is over"
    DOUBLED = "Another open incident is about the same transaction"
    CONTRADICTED = "A fresh read contradicts what others have published"
    RECORD_AGREES = "Another writer publishes the next event, which agrees with what is known"
    RECORD_DIFFERS = "Another writer publishes the next event, which differs in a relevant field"
    RECORD_ENDS = "Another writer publishes its end"
    RECORD_IS_OLDER = "An older event follows the last one on the events topic"
    RECORD_HIDES_LAST = "An event with the sequence of the last one, and with another content, follows it on the topic"
    RECORD_BEFORE_END = "An event of another writer is on the events topic before our end with the same sequence"
    RECORD_IS_INVALID = "A tombstone, or a record that is no event, follows the last event on the events topic"
    ID_IS_SPENT = "A record uses up the sequences of its id"


class Row(NamedTuple):
    """What follows from one happening, for each of the values of Known, and why."""

    nothing: NextStep
    claimed: NextStep
    found: NextStep
    ended: NextStep
    why: str


_N = NextStep.NOTHING
LIFE: Final[dict[Happening, Row]] = {
    Happening.CONFIRMED: Row(
        *(NextStep.OPEN, NextStep.ADOPT, NextStep.ADOPT, NextStep.OPEN),
        why="An end may be forged, and an election can remove the marker: what hangs is open, under another id.",
    ),
    Happening.CONFIRMED_OTHERWISE: Row(
        *(NextStep.OPEN, NextStep.CHANGE_VERDICT, NextStep.CHANGE_VERDICT, NextStep.OPEN),
        why="The subject is the same: a stray write that hangs later, or a long running transaction that is late.",
    ),
    Happening.ANOTHER_CONFIRMED: Row(
        *(NextStep.OPEN, NextStep.END_AND_OPEN, NextStep.END_AND_OPEN, NextStep.OPEN),
        why="A producer has one open transaction on a partition, so the earlier one has ended.",
    ),
    Happening.CHANGED: Row(*(_N, NextStep.UPDATE, NextStep.UPDATE, _N), why="Small changes are in the next event."),
    Happening.OVER: Row(
        *(_N, NextStep.END, NextStep.END, _N), why="An end needs evidence, and any instance may have it."
    ),
    Happening.DOUBLED: Row(*(_N, NextStep.END, NextStep.END, _N), why="One transaction has one open incident."),
    Happening.CONTRADICTED: Row(
        *(_N, NextStep.END, _N, _N),
        why="Anyone who may write the events topic can publish a healthy transaction. What was found here is checked "
        "by the read of open incidents.",
    ),
    Happening.RECORD_AGREES: Row(
        *(_N, _N, _N, _N),
        why="Its sequence, status, time, end and last decision are taken over; a claimed success of an abort is not.",
    ),
    Happening.RECORD_DIFFERS: Row(
        *(_N, NextStep.WAIT, NextStep.CORRECT, _N),
        why="A claim never replaces a finding. A value that the record does not know yet is no difference.",
    ),
    Happening.RECORD_ENDS: Row(*(_N, _N, NextStep.READ_AGAIN, _N), why="The end may be forged."),
    Happening.RECORD_IS_OLDER: Row(
        *(_N, _N, NextStep.PUBLISH_AGAIN, NextStep.PUBLISH_AGAIN),
        why="Compaction keeps the last record. A claim that this process has not found is not repeated.",
    ),
    Happening.RECORD_HIDES_LAST: Row(
        *(_N, _N, NextStep.PUBLISH_AGAIN, NextStep.PUBLISH_AGAIN),
        why="Consumers drop the second of two events with one sequence, and compaction the first.",
    ),
    Happening.RECORD_BEFORE_END: Row(
        *(_N, _N, _N, NextStep.END_AGAIN), why="The first on the topic counts, so the end must follow it."
    ),
    Happening.RECORD_IS_INVALID: Row(
        *(_N, NextStep.WAIT, NextStep.PUBLISH_AGAIN, _N), why="A record that is no event ends nothing."
    ),
    Happening.ID_IS_SPENT: Row(
        *(_N, NextStep.END_AND_READ_AGAIN, NextStep.END_AND_READ_AGAIN, _N),
        why="No sequence is left for its next event. Its subject continues under another id.",
    ),
}


def step(known: Known, happens: Happening) -> NextStep:
    """What this process does."""
    row = LIFE[happens]
    return {Known.NOTHING: row.nothing, Known.CLAIMED: row.claimed, Known.FOUND: row.found, Known.ENDED: row.ended}[
        known
    ]


def confirmed_span(known: IncidentEvent | None, found: IncidentEvent) -> Happening:
    """What a confirmed candidate is to the open incident about the same producer on the same partition."""
    if known is None:
        return Happening.CONFIRMED
    if known.txn_start_offset != found.txn_start_offset:
        return Happening.ANOTHER_CONFIRMED
    return Happening.CONFIRMED if known.verdict == found.verdict else Happening.CONFIRMED_OTHERWISE


def confirmed_transaction(known: IncidentEvent | None, found: IncidentEvent) -> Happening:
    """The same for an incident about a transaction. A verdict only becomes worse: a milder one is no other one."""
    if known is None or rank(found.verdict) >= rank(known.verdict):
        return Happening.CONFIRMED
    return Happening.CONFIRMED_OTHERWISE


# Decides between an event on the events topic and what this process has found about the same incident.
#
# Law: a claim never replaces a finding. The subject of an incident never changes. Of an event with another subject, or
# about an incident of this process's own, only sequence, status, time, action and resolution are used. Only the log
# proves that another writer's marker was successful. An open incident of another writer that this process has never
# found is read again.

_IDENTITY = ("topic", "partition", "topic_id", "producer_id", "txn_start_offset", "transactional_id")


def is_own(incident: IncidentEvent, start_offset: Offset | None, published_as: str | None) -> bool:
    """Whether an incident about a span has the content that this process has built.

    Args:
        incident: the incident.
        start_offset: where the span begins that this process has found there; None if it has found none.
        published_as: the incident that this process has published about that span; None for none.
    """
    is_found_there = start_offset is not None and start_offset == incident.txn_start_offset
    return is_found_there and published_as == incident.incident_id


def is_same_span(one: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident are about the same span, or both about no span."""
    return (one.span, one.txn_start_offset) == (other.span, other.txn_start_offset)


def outcome_as_found(event: IncidentEvent, found: Outcome) -> IncidentEvent:
    """The event to publish. Of a hanging span only the found outcome counts; the one in the event may be forged."""
    return with_outcome(event, found) if event.verdict == Verdict.HANGING else event


def keeps_content(event: IncidentEvent, known: IncidentEvent, *, is_found: bool) -> bool:
    """Whether the stored content of an incident stays: it is our finding, or the event has another subject."""
    return is_found or is_elsewhere(event, known)


def with_claim(known: IncidentEvent, event: IncidentEvent, acted: Action | None, now_ms: TimestampMs) -> IncidentEvent:
    """The stored content with the sequence, status, time, action and resolution of an event."""
    return replace(
        known,
        sequence=event.sequence,
        status=event.status,
        time_ms=min(event.time_ms, now_ms),
        action=believed_action(event, known, acted),
        resolution=event.resolution,
    )


def claimed(
    event: IncidentEvent, known: IncidentEvent | None, acted: Action | None, now_ms: TimestampMs
) -> IncidentEvent:
    """The content of an event, if this process has none of its own. Its time is never in the future."""
    return replace(event, action=believed_action(event, known, acted), time_ms=min(event.time_ms, now_ms))


def believed_action(event: IncidentEvent, known: IncidentEvent | None, acted: Action | None) -> Action | None:
    """The last decision: our own version, `acted`, if it is ours; of another writer's, without a claimed success."""
    claim = event.action
    if acted is not None and (claim is None or claim.by == acted.by):
        return acted
    if claim is None:
        return known.action if known is not None else None
    return replace(claim, result=None) if claim.result is ActionResult.VERIFIED else claim


def differs(published: IncidentEvent, found: IncidentEvent) -> bool:
    """Whether an event differs, in a relevant field, from what this process has found about the same subject.

    A value that one of two honest instances does not know yet is no difference.
    """
    if is_elsewhere(published, found):
        return True
    if found.verdict == Verdict.HANGING and published.verdict != found.verdict:
        return True
    verdict = published.verdict
    if rank(verdict) > rank(found.verdict) or published.severity != RULE_OF[verdict].severity:
        return True  # milder than found: also the case for an instance that is behind, which is corrected
    return found.expected_outcome not in {ExpectedOutcome.UNKNOWN, published.expected_outcome}


def is_elsewhere(one: IncidentEvent, other: IncidentEvent) -> bool:
    """Whether two events of one incident have different subjects."""
    pairs = [(getattr(one, name), getattr(other, name)) for name in _IDENTITY]
    has_other = any(first != second and None not in {first, second} for first, second in pairs)
    return has_other or (one.topic is None) is not (other.topic is None)


def found_too(known: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A published incident with the content that this process has found, and the earlier of both start times."""
    return replace(
        with_newer_verdict(known, event),
        open_since_ms=min(known.open_since_ms, event.open_since_ms),
        detected_at_ms=known.detected_at_ms,
        detection_latency_ms=known.detection_latency_ms,
        action=known.action,
        resolution=known.resolution,
    )


def with_newer_verdict(known: IncidentEvent, event: IncidentEvent) -> IncidentEvent:
    """A newer verdict about the same span, with the identity, the start and the last sequence of the incident."""
    return replace(
        event,
        incident_id=known.incident_id,
        sequence=known.sequence,
        status=known.status,
        txn_start_offset=known.txn_start_offset,
        open_since_ms=known.open_since_ms,
        open_since_clock=known.open_since_clock,
        age_ms=known.age_ms,
        time_ms=known.time_ms,
    )


def is_update_of_span(known: IncidentEvent, found: IncidentEvent) -> bool:
    """Whether what was found about a published span is published too: it differs, or it adds the outcome or the id."""
    is_outcome_new = known.expected_outcome == ExpectedOutcome.UNKNOWN != found.expected_outcome
    is_owner_new = known.transactional_id is None is not found.transactional_id
    return differs(known, found) or is_outcome_new or is_owner_new


def needs_confirmation(known: IncidentEvent | None, verdict: Verdict, *, is_found: bool) -> bool:
    """Whether a candidate about a transaction is confirmed: it is new, or worse than what this process has found."""
    return known is None or not is_found or rank(verdict) < rank(known.verdict)


# Decides between the events of one incident by their order on the events topic, and how long they count.
#
# Law: the order on the events topic decides.
#   * Of two events with one sequence the first on the topic counts, because a consumer that keeps `ce_id` drops the
#     second. If the second was an end, its writer publishes the end again after the first.
#   * If an older event of an incident follows a later one, or its end, the later one is published again, because
#     compaction keeps the last record. An open incident that this process has not found is not published again.
#   * An event of another cluster, or with a sequence that leaves no room for the next events, is not used.

IN_HAND_MS: Final = DurationMs(60_000)
# Longer than the hour of an abort's budget, and than any instance may be behind.
KEPT_MS: Final = DurationMs(24 * 3_600_000)
SEEN_OVER_MS: Final = DurationMs(3_600_000)
ROOM: Final = 1_000  # sequences that other writers may not use: an announced marker must be followed by its result


class Arrival(Enum):
    """What the next record of an incident on the events topic is."""

    OLDER = auto()
    REPEATED = auto()
    KNOWN = auto()
    NEW = auto()


def arrival(event: IncidentEvent, last: int, known: IncidentEvent | None, sent: IncidentEvent | None) -> Arrival:
    """What an event is, by its sequence.

    Args:
        event: the event that was read from the topic.
        last: the highest sequence of its incident on the topic before it.
        known: the latest event of the incident that this process knows.
        sent: the event with the same id that this process has sent and not yet read back.
    """
    if event.sequence < last:
        return Arrival.OLDER
    if event.sequence == last:
        return Arrival.REPEATED
    is_behind = known is not None and known.sequence > event.sequence
    return Arrival.KNOWN if is_behind or event == sent else Arrival.NEW


def is_usable(event: IncidentEvent, cluster_id: str, sent: IncidentEvent | None) -> bool:
    """Whether an event is of this cluster, and leaves room for our next events; our own are exempt."""
    if event.cluster_id != cluster_id:
        return False
    return event.sequence < SPENT_SEQUENCE - ROOM or event == sent


def hides(event: IncidentEvent, known: IncidentEvent) -> bool:
    """Whether an event of the same sequence that follows the last event on the topic says something else.

    A consumer that keeps `ce_id` drops it, and compaction keeps it.
    """
    if known.sequence != event.sequence:
        return False
    if event.is_open is not known.is_open:
        return True
    if known.is_open:
        return differs(event, known)
    return _how(event) != _how(known)


def _how(event: IncidentEvent) -> EndKind | None:
    return event.resolution.how if event.resolution is not None else None


def end_after(event: IncidentEvent, sent: IncidentEvent | None) -> Resolution | None:
    """The end to publish after an event that came first, if this process has sent an end with the same sequence."""
    return sent.resolution if sent is not None and not sent.is_open and event.is_open else None


class EndedIncident(NamedTuple):
    """An incident that ended long ago: its last sequence, its end, and since when this process knows of the end."""

    sequence: int
    ended_ms: TimestampMs
    known_ms: TimestampMs

    def is_expired(self, now_ms: TimestampMs, retention_ms: DurationMs) -> bool:
        """Whether its id may be used again. Its end may be forged, so this process must have known it for a while."""
        return now_ms - self.ended_ms >= retention_ms and now_ms - self.known_ms >= SEEN_OVER_MS


def is_long_over(event: IncidentEvent, now_ms: TimestampMs) -> bool:
    """Whether only the id and the last sequence of the incident are still needed."""
    return not event.is_open and now_ms - event.time_ms >= KEPT_MS


def is_left_to_watch(event: IncidentEvent, now_ms: TimestampMs) -> bool:
    """Whether a watch may end the incident: not an abort by hand whose command may still publish the end."""
    return not event.is_by_hand or now_ms - event.time_ms >= IN_HAND_MS
