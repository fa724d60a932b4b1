"""Decides between the events of one incident by their order on the events topic, and how long they count.

Law: the order on the events topic decides.
  * Of two events with one sequence the first on the topic counts, because a consumer that keeps `ce_id` drops the
    second. If the second was an end, its writer publishes the end again after the first.
  * If an older event of an incident follows a later one, or its end, the later one is published again, because
    compaction keeps the last record. An open incident that this process has not found is not published again.
  * An event of another cluster, or with a sequence that leaves no room for the next events, is not used.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from txnwatch.state.model.incident import SPENT_SEQUENCE, IncidentEvent
from txnwatch.state.model.incident_payload import Resolution
from txnwatch.state.model.quantities import DurationMs, TimestampMs

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


def after_older(known: IncidentEvent | None, *, is_found: bool) -> IncidentEvent | None:
    """The event to publish again after an older one; None for an open incident that this process has not found."""
    return known if known is not None and (is_found or not known.is_open) else None


def after_repeated(event: IncidentEvent, known: IncidentEvent | None) -> IncidentEvent | None:
    """The end to publish again, if an event of the same sequence that is not an end follows it on the topic."""
    is_hidden = known is not None and known.sequence == event.sequence and not known.is_open and event.is_open
    return known if is_hidden else None


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
