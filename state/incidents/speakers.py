"""Which instance speaks about an incident: the one that knows more. Pure.

Before an event, `Silence`: this process does not publish what another instance can publish with the outcome. Both see
the same changes and ends. So the one that knows less waits: 10 s with an end by a marker, and a minute with anything
else, because each finds it at its next check. If the other instance publishes it, nothing is left to publish. A
decision that leads to no marker is left to the other instance, and the lease is passed on to it (automatic_abort.py).

After an end, `EndsOfOthers`: another instance was quicker and does not know the outcome, or a client has forged the
end. This process publishes the end again, as soon as it has found it itself.

Law: the record of the other instance may be forged. So it counts only as far as it has what this process has found:
then the topic is right, whoever wrote it. Anything else buys the time above, once. A forged heartbeat does not change
this: it only makes the record count.

Apart: it is one idea, and the book and the ledger have others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.evidence.ending import needs_update
from txnwatch.state.incidents.claims import contradicts_end, differs
from txnwatch.state.incidents.life import Happening, Known
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent, SpanKey
from txnwatch.state.model.values import LONG_AGO, DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict

PATIENCE_MS: Final = DurationMs(60_000)
PATIENCE_AT_AN_END_MS: Final = DurationMs(10_000)
FOUND_AGAIN_MS: Final = DurationMs(180_000)  # longer than the pause between two checks of an incident


class WaitingChange(NamedTuple):
    """A change that waits: since when, and when it was last found."""

    event: IncidentEvent
    since_ms: TimestampMs
    found_ms: TimestampMs


@dataclass(slots=True)
class Silence:
    """The incidents about which another instance knows more: its last record, and what waits for the next one.

    Attributes:
        is_another_there: whether there is another instance now; else nothing waits.
    """

    is_another_there: bool = True
    _told: dict[str, IncidentEvent] = field(default_factory=dict)
    _changes: dict[str, WaitingChange] = field(default_factory=dict)
    _ends: dict[str, IncidentEvent] = field(default_factory=dict)
    _ends_since_ms: dict[str, TimestampMs] = field(default_factory=dict)

    @property
    def has_ends(self) -> bool:
        """Whether an end waits."""
        return bool(self._ends)

    def heard(self, record: IncidentEvent) -> None:
        """Takes the next record of an incident on the topic, which another writer has written."""
        one = record.incident_id
        if record.is_open and record.expected_outcome != ExpectedOutcome.UNKNOWN:
            self._told[one] = record
        else:
            self._told.pop(one, None)
        if not record.is_open:
            self._ends.pop(one, None)

    def hidden(self, incident_id: str) -> None:
        """Takes that the record of the other instance is no longer the last one of the incident."""
        self._told.pop(incident_id, None)

    def published(self, incident_id: str) -> None:
        """Takes that this process publishes the next event of the incident itself."""
        for of in (self._told, self._changes, self._ends):
            of.pop(incident_id, None)
        if incident_id in self._ends_since_ms:
            self._ends_since_ms[incident_id] = LONG_AGO

    def waiting_end(self, incident_id: str) -> IncidentEvent | None:
        """The end of the incident that waits; None for none."""
        return self._ends.get(incident_id)

    def knows_less(self, event: IncidentEvent) -> bool:
        """Whether another instance is there, and has published an outcome that the event would replace by `unknown`."""
        told = self._told.get(event.incident_id)
        if told is None or not self.is_another_there or event.is_by_hand or event.verdict != Verdict.HANGING:
            return False
        return event.expected_outcome == ExpectedOutcome.UNKNOWN and not differs(told, event)

    def keep_back(self, event: IncidentEvent, now_ms: TimestampMs) -> bool:
        """Keeps an event back, if it may; returns whether it does. A change is found again by the next check."""
        if not self.knows_less(event):
            return False
        if not event.is_open:
            return self._keep_end_back(event, now_ms)
        one = event.incident_id
        if _has(self._told[one], event):
            self._changes.pop(one, None)
            return True
        known = self._changes.get(one)
        is_other = known is None or now_ms - known.found_ms >= FOUND_AGAIN_MS or _has(self._told[one], known.event)
        since_ms = now_ms if known is None or is_other else known.since_ms
        self._changes[one] = WaitingChange(event, since_ms, now_ms)
        return now_ms - since_ms < PATIENCE_MS

    def _keep_end_back(self, event: IncidentEvent, now_ms: TimestampMs) -> bool:
        """An incident waits once: records that another writer publishes after its end do not make it wait again."""
        since_ms = self._ends_since_ms.setdefault(event.incident_id, now_ms)
        is_kept = now_ms - since_ms < _patience_ms(event)
        if is_kept:
            self._ends[event.incident_id] = event
        return is_kept

    def take_ends_about(self, span: SpanKey | None) -> list[IncidentEvent]:
        """The ends about a span that wait; they go before the next incident about it, and are returned once."""
        return [self._ends.pop(one) for one in [one for one, end in self._ends.items() if end.span == span]]

    def ends_to_publish(self, known: Mapping[str, IncidentEvent], now_ms: TimestampMs) -> list[IncidentEvent]:
        """The ends that no other instance has published in time; each is returned once.

        `known` are the latest events: an end behind which another writer has published something is not returned.
        """
        late = [
            one
            for one, end in self._ends.items()
            if not self.is_another_there or now_ms - self._ends_since_ms[one] >= _patience_ms(end)
        ]
        ends = [self._ends.pop(one) for one in late]
        return [end for end in ends if known.get(end.incident_id) == end]

    def forget_ended(self, known: Mapping[str, IncidentEvent]) -> None:
        """Drops what is kept of incidents that have ended, or are no longer among those that are known."""
        self._told = {one: told for one, told in self._told.items() if one in known and known[one].is_open}
        self._changes = {one: waiting for one, waiting in self._changes.items() if one in self._told}
        self._ends = {one: end for one, end in self._ends.items() if one in known}
        self._ends_since_ms = {one: at_ms for one, at_ms in self._ends_since_ms.items() if one in known}


def _patience_ms(end: IncidentEvent) -> DurationMs:
    """How long an end waits: the log shows a marker to both at once, and each finds any other end at its next check."""
    is_by_marker = end.resolution is not None and end.resolution.marker_offset is not None
    return PATIENCE_AT_AN_END_MS if is_by_marker else PATIENCE_MS


def _has(told: IncidentEvent, event: IncidentEvent) -> bool:
    """Whether a record has the facts of an update, and no others. The outcome, and what follows from it, is not one."""
    facts = replace(
        told,
        expected_outcome=event.expected_outcome,
        suggested_command=event.suggested_command,
        action=event.action,
    )
    if needs_update(facts, event):
        return False
    return not needs_update(replace(event, transactional_id=told.transactional_id), facts)


# After an end: what other writers have published as the end of an incident, and what was found here.


class ForeignEnd(NamedTuple):
    """An end that another writer has published before it was found here: the incident as found here, and the record."""

    incident: IncidentEvent
    record: IncidentEvent


class Meaning(NamedTuple):
    """What a record on the events topic means for the end that was found here; `end` is published if it must follow."""

    happens: Happening
    was: Known
    end: IncidentEvent | None = None


@dataclass(slots=True)
class EndsOfOthers:
    """The ends of this process, and those of other writers that it has not found yet: one for each subject."""

    _found: dict[str, IncidentEvent] = field(default_factory=dict)
    _awaited: dict[SpanKey | str, ForeignEnd] = field(default_factory=dict)

    def found(self, end: IncidentEvent) -> None:
        """Takes an end that this process has found."""
        self._drop(end)
        if not end.is_by_hand:
            self._found[end.incident_id] = end

    def heard(self, record: IncidentEvent, known: IncidentEvent, was: Known) -> None:
        """Takes the next record of an incident; `known` is its latest event, with what was found here."""
        foreign = self._of(known)
        if record.is_open:
            self._drop(known)
        elif was is Known.FOUND:
            self._awaited[_subject(known)] = ForeignEnd(known, record)
        elif foreign is not None:
            self._awaited[_subject(known)] = foreign._replace(record=record)

    def meaning(self, record: IncidentEvent, known: IncidentEvent, *, is_new: bool) -> Meaning | None:
        """What a record means for the end that was found here; None if none was found, or the record agrees with it.

        `is_new` is whether the record is the next event of the incident; else it has the sequence of the last one.
        """
        end = self._found.get(record.incident_id)
        if end is None or not contradicts_end(record, end):
            return None
        if is_new:
            return Meaning(Happening.RECORD_AFTER_END, Known.ENDED, end)
        return None if contradicts_end(known, end) else Meaning(Happening.RECORD_HIDES_LAST, Known.ENDED)

    def awaited(self, subject: SpanKey | str) -> IncidentEvent | None:
        """The incident about a span, or of an id, that another writer has ended, and whose end is not found here."""
        foreign = self._awaited.get(subject)
        return foreign.incident if foreign is not None else None

    def is_contradicted(self, end: IncidentEvent) -> bool:
        """Whether the end that was found here now has to follow that of the other writer."""
        foreign = self._of(end)
        return foreign is not None and contradicts_end(foreign.record, end)

    def opened(self, event: IncidentEvent) -> None:
        """Takes a new incident: what another writer has published as the end of the last one was none."""
        self._awaited.pop(_subject(event), None)

    def forget_ended(self, known: Mapping[str, IncidentEvent]) -> None:
        """Drops the incidents that are no longer among those that are known."""
        self._found = {one: end for one, end in self._found.items() if one in known}
        self._awaited = {at: foreign for at, foreign in self._awaited.items() if foreign.incident.incident_id in known}

    def _of(self, event: IncidentEvent) -> ForeignEnd | None:
        foreign = self._awaited.get(_subject(event))
        return foreign if foreign is not None and foreign.incident.incident_id == event.incident_id else None

    def _drop(self, event: IncidentEvent) -> None:
        if self._of(event) is not None:
            del self._awaited[_subject(event)]


def _subject(event: IncidentEvent) -> SpanKey | str:
    return event.span if event.span is not None else event.incident_id
