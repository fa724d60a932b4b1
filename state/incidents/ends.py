"""The ends of incidents: those that were found here, and those that other writers have published before. Pure.

Another instance may have published an end without the outcome that this process knows, or a client has forged the end.
Then this process publishes the end that it has found once more, behind the other one.

Law: the end and the outcome are both found here. While this process has not found the end itself, it publishes none; it
keeps the other one and compares later.

Law: two instances never answer each other without end. Each end that follows another end of the same incident comes
after a pause, which is twice as long each time.

Apart: speakers.py has what an instance leaves to another one before an end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.incidents.claims import contradicts_end, is_seen
from txnwatch.state.incidents.life import Happening, Known
from txnwatch.state.model.incident import KEPT_MS, IncidentEvent, SpanKey, resolved
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.values import DurationMs, TimestampMs

FIRST_PAUSE_MS: Final = DurationMs(10_000)
LONGEST_PAUSE_MS: Final = DurationMs(3_600_000)


@dataclass(slots=True)
class FoundEnd:
    """An end that was found here: the event, since when it is known, and when it may follow another end again."""

    event: IncidentEvent
    since_ms: TimestampMs
    attempts: Attempts = field(default_factory=lambda: Attempts(FIRST_PAUSE_MS, LONGEST_PAUSE_MS))


class ForeignEnd(NamedTuple):
    """An end that another writer has published before it was found here.

    Attributes:
        before: the incident as this process knew it before that record.
        record: the last end on the events topic.
        since_ms: when it was read.
    """

    before: IncidentEvent
    record: IncidentEvent
    since_ms: TimestampMs


@dataclass(slots=True)
class Ends:
    """The ends of this process, and those of other writers that it has not found: one for each subject."""

    _found: dict[str, FoundEnd] = field(default_factory=dict)
    _foreign: dict[SpanKey | str, ForeignEnd] = field(default_factory=dict)
    _due: dict[str, IncidentEvent] = field(default_factory=dict)
    _unseen: dict[SpanKey | str, str] = field(default_factory=dict)  # incidents of which only a check has found the end

    def take_found(self, end: IncidentEvent, now_ms: TimestampMs) -> None:
        """Takes an end that this process has found."""
        self._drop(end)
        self._unseen.pop(_subject(end), None)
        if not is_seen(end):
            self._unseen[_subject(end)] = end.incident_id
        known = self._found.get(end.incident_id)
        if known is None or not known.attempts.times:
            self._found[end.incident_id] = FoundEnd(end, now_ms)
        else:
            known.event = end  # no new day begins, so two instances do not answer each other for more than one

    def found(self, incident_id: str) -> IncidentEvent | None:
        """The end of an incident, if it was found here."""
        known = self._found.get(incident_id)
        return known.event if known is not None else None

    def take(self, record: IncidentEvent, before: IncidentEvent | None, was: Known, now_ms: TimestampMs) -> None:
        """Takes the next record of an incident; `before` is what was known before it, and `was` what is known now."""
        self._due.pop(record.incident_id, None)
        known = before if before is not None else record
        foreign = self._of(known)
        if was is Known.FOUND and not record.is_open:
            self._foreign[_subject(known)] = ForeignEnd(known, record, now_ms)
        elif foreign is not None:  # an open one too: the next end is that of the incident as it was before
            self._foreign[_subject(known)] = foreign._replace(record=record)

    def meaning(self, record: IncidentEvent, known: IncidentEvent, *, is_new: bool) -> Happening | None:
        """What a record means for the end that was found here; None if none was found, or the record agrees with it.

        `is_new` is whether the record is the next event of the incident; else it has the sequence of the last one.
        """
        end = self.found(record.incident_id)
        if end is None or not contradicts_end(record, end):
            return None
        if is_new:
            return Happening.RECORD_AFTER_END
        return None if contradicts_end(known, end) else Happening.RECORD_HIDES_LAST

    def awaited(self, subject: SpanKey | str) -> IncidentEvent | None:
        """The incident about a span, or of an id, as it was before another writer has ended it."""
        foreign = self._foreign.get(subject)
        return foreign.before if foreign is not None else None

    def unseen(self, subject: SpanKey | str) -> IncidentEvent | None:
        """The end about a span that a check has found: the log may show it later."""
        incident_id = self._unseen.get(subject)
        return self.found(incident_id) if incident_id is not None else None

    def before(self, known: IncidentEvent) -> IncidentEvent | None:
        """What was known of an open incident before another writer has ended it, and opened it again."""
        foreign = self._of(known)
        return foreign.before if foreign is not None else None

    def take_found_late(self, end: IncidentEvent, known: IncidentEvent | None, now_ms: TimestampMs) -> None:
        """Takes an end that the log shows after that of another writer; it follows if it differs.

        `known` is the latest event of the incident. If that is our own, nobody waits for a better one.
        """
        foreign = self._of(end)
        record = foreign.record if foreign is not None else known
        if record is not None and record != self.found(end.incident_id) and contradicts_end(record, end):
            self.follow(record)
        self.take_found(end, now_ms)

    def open(self, event: IncidentEvent) -> None:
        """Takes a new incident: what another writer has published as the end of the last one was none."""
        self._foreign.pop(_subject(event), None)
        self._unseen.pop(_subject(event), None)
        self._found.pop(event.incident_id, None)

    def follow(self, record: IncidentEvent) -> None:
        """The end that was found here has to follow this record, the last one of its incident."""
        self._due[record.incident_id] = record

    def take_due(self, incident_id: str, known: IncidentEvent | None, now_ms: TimestampMs) -> IncidentEvent | None:
        """The end to publish behind the last record; None if there is none, or while the pause is not over.

        An open record is followed at once: no instance opens an incident again under its id. `known` is the latest
        event of the incident: its sequence, and the decision that is believed.
        """
        found, record = self._found.get(incident_id), self._due[incident_id]
        if found is not None and not record.is_open:
            if not found.attempts.is_due(now_ms):
                return None
            found.attempts.put_off(now_ms)
        del self._due[incident_id]
        return behind(found.event, known if known is not None else record, now_ms) if found is not None else None

    def spend(self, incident_id: str) -> None:
        """Another writer has used up the sequences of an incident: no event can follow."""
        self._due.pop(incident_id, None)
        self._found.pop(incident_id, None)

    @property
    def due(self) -> list[str]:
        """The incidents whose end has to follow another record."""
        return list(self._due)

    def forget_old(self, is_used: Callable[[str], bool], now_ms: TimestampMs) -> None:
        """Drops what is known for a day, or whose id may be used again.

        The times of records do not count: they may be forged.
        """
        found = {one: end for one, end in self._found.items() if is_used(one)}
        self._found = {one: end for one, end in found.items() if now_ms - end.since_ms < KEPT_MS}
        self._foreign = {at: end for at, end in self._foreign.items() if now_ms - end.since_ms < KEPT_MS}
        self._due = {one: record for one, record in self._due.items() if one in self._found}
        self._unseen = {at: one for at, one in self._unseen.items() if one in self._found}

    def _of(self, event: IncidentEvent) -> ForeignEnd | None:
        foreign = self._foreign.get(_subject(event))
        return foreign if foreign is not None and foreign.before.incident_id == event.incident_id else None

    def _drop(self, event: IncidentEvent) -> None:
        if self._of(event) is not None:
            del self._foreign[_subject(event)]


def behind(end: IncidentEvent, known: IncidentEvent, now_ms: TimestampMs) -> IncidentEvent:
    """The end that was found here, behind the last record of its incident.

    A decision that is on the topic before the end is kept. What follows the end is a claim.
    """
    assert end.resolution is not None
    is_before = known.is_open and known.sequence == end.sequence
    action = known.action if is_before and end.action is None else end.action
    return resolved(replace(end, sequence=known.sequence, action=action), now_ms, end.resolution)


def _subject(event: IncidentEvent) -> SpanKey | str:
    return event.span if event.span is not None else event.incident_id
