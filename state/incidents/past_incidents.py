"""What the events topic tells about the incidents of a while: one small value for each, made while it is read. Pure.

Law:
    * An incident counts once, whatever the number and the order of its events: the event with the highest sequence is
      its state. Of two with one sequence the earlier one counts, because a consumer that deduplicates drops the second.
    * Anybody who may write the topic can write an event. What is told here decides nothing, and has no command.
    * The memory has a bound: beyond `most` incidents, those that ended first are left out, and `complete_since_ms` says
      since when all of them are there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txnwatch.state.incidents.event_builder import subject_of
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.incident import EndedBy, EndKind, IncidentEvent
from txnwatch.state.model.ownership import WITHOUT_OWNER, OwnerLookup
from txnwatch.state.model.values import LONG_AGO, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Severity, Verdict

MOST: Final = 100_000
PLACES: Final = 8  # partitions of one incident that are kept by name
_LEFT_OUT: Final = 10  # one of so many is left out at a time
_LONGEST: Final = 200
_DIGITS: Final = 8


class PastKind(NamedTuple):
    """What incidents have in common; one value for all that have the same.

    Attributes:
        how: how it ended; None if it is open by its last event.
        by: who has ended it.
        is_by_hand: whether it is that of an abort by hand, beside the incident of a watch.
    """

    verdict: Verdict
    severity: Severity
    how: EndKind | None
    by: EndedBy | None
    is_by_hand: bool


class PastSubject(NamedTuple):
    """What an incident is about.

    Attributes:
        places: its partitions, at most `PLACES` of them.
        more_places: how many more it has.
        name: the transactional id; one that is very long is cut, with a digest of the whole.
        owner: the team, by the table of the reader.
    """

    cluster_id: str
    places: tuple[str, ...]
    more_places: int
    name: str | None
    producer_id: int
    owner: str


class PastIncident(NamedTuple):
    """An incident as its last event has it.

    Attributes:
        time_ms: of that event; the end of one that has ended.
        since_ms: since when at least its transaction was open, by the clock of `time_ms`.
        is_known: whether an event with a usual sequence was read. One that leaves no room for another event counts only
            as the end of a known incident, as everywhere (LatestEvents).
    """

    incident_id: str
    sequence: int
    time_ms: TimestampMs
    since_ms: TimestampMs
    kind: PastKind
    subject: PastSubject
    is_known: bool = True

    @property
    def ended_ms(self) -> TimestampMs | None:
        """When it ended; None if it is open by its last event."""
        return self.time_ms if self.kind.how is not None else None

    def overlaps(self, from_ms: TimestampMs, to_ms: TimestampMs) -> bool:
        """Whether it was open at any moment of a window."""
        return self.since_ms < to_ms and (self.kind.how is None or self.time_ms >= from_ms)

    def length_ms(self, now_ms: TimestampMs) -> DurationMs:
        """For how long it was open at least, or is open until now."""
        return DurationMs(max(0, (self.ended_ms if self.ended_ms is not None else now_ms) - self.since_ms))


@dataclass(slots=True)
class IncidentHistory:
    """The incidents of an events topic; one thread fills it, and any may read it.

    Attributes:
        owners: the table of owners of the reader.
        skipped: how many records were no events, by the reason.
        complete_since_ms: since when no incident that ended was left out.
    """

    owners: OwnerLookup
    most: int = MOST
    skipped: Counter[SkipReason] = field(default_factory=Counter)
    complete_since_ms: TimestampMs = LONG_AGO
    version: int = 0
    _known: dict[bytes, PastIncident] = field(default_factory=dict)
    _kinds: dict[PastKind, PastKind] = field(default_factory=dict)

    def take(self, record: TopicRecord) -> None:
        """Takes a record of the topic; heartbeats and tombstones tell nothing about the past."""
        if isinstance(record, BadEventError):
            self.skipped[record.why] += 1
        elif isinstance(record, IncidentEvent):
            self._take(self._past(record))

    def __len__(self) -> int:
        return len(self._known)

    @property
    def incidents(self) -> Sequence[PastIncident]:
        """All of them at this moment."""
        return [incident for incident in list(self._known.values()) if incident.is_known]

    def forget(self, before_ms: TimestampMs) -> None:
        """Leaves out what ended before a time."""
        self._leave_out(
            [
                incident
                for incident in self._known.values()
                if incident.kind.how is not None and incident.time_ms < before_ms
            ]
        )

    def _take(self, new: PastIncident) -> None:
        if new.kind.how is not None and new.time_ms < self.complete_since_ms:
            return
        key = bytes.fromhex(new.incident_id)
        old = self._known.get(key)
        if old is not None:
            last = max(old, new, key=_place)
            new = last._replace(is_known=old.is_known or new.is_known)
        elif not new.is_known and new.kind.how is None:
            return
        if new != old:
            self._known[key] = new
            self.version += 1
        if len(self._known) > self.most:
            ended = sorted((incident for incident in self._known.values() if incident.kind.how is not None), key=_time)
            self._leave_out(ended[: max(1, self.most // _LEFT_OUT)] or [new])

    def _leave_out(self, gone: Sequence[PastIncident]) -> None:
        for incident in gone:
            del self._known[bytes.fromhex(incident.incident_id)]
            self.complete_since_ms = max(self.complete_since_ms, TimestampMs(incident.time_ms + 1))
        self.version += bool(gone)

    def _past(self, event: IncidentEvent) -> PastIncident:
        end = event.resolution
        how, by = (end.how, end.by) if end is not None else (None, None)
        kind = PastKind(event.verdict, event.severity, how, by, event.is_by_hand)
        return PastIncident(
            event.incident_id,
            event.sequence,
            event.time_ms,
            TimestampMs(max(0, event.time_ms - event.age_ms)),
            self._kinds.setdefault(kind, kind),
            _subject(event, self.owners),
            not event.is_spent,
        )


def _place(incident: PastIncident) -> tuple[bool, int, int, str]:
    """The order of the events of an incident; a spent one that ends nothing is before all others."""
    is_nothing = not incident.is_known and incident.kind.how is None
    return not is_nothing, incident.sequence, -incident.time_ms, repr(incident)


def _time(incident: PastIncident) -> TimestampMs:
    return incident.time_ms


def _subject(event: IncidentEvent, owners: OwnerLookup) -> PastSubject:
    owner = owners.owner(subject_of(event))
    places = (f"{event.topic}-{event.partition}",) if event.topic is not None else event.pending_partitions
    return PastSubject(
        event.cluster_id,
        places[:PLACES],
        max(0, len(places) - PLACES),
        _short(event.transactional_id) if event.transactional_id is not None else None,
        event.producer_id,
        owner.team if owner is not None else WITHOUT_OWNER,
    )


def _short(name: str) -> str:
    """The name; a long one is cut, and still differs from every other."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{name[: _LONGEST - _DIGITS - 1]}\u2026{digest}"
