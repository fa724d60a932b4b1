"""Which of two instances speaks about an incident first: the one that knows the outcome. Pure.

Both see the same changes and ends. So the one that knows less waits: 10 s with an end by a marker, and a minute with
anything else, because each finds it at its next check. If the other instance publishes it, nothing is left to publish.
A decision that leads to no marker is left to the other instance, and the lease is passed on to it (automatic_abort.py).

Law: the record of the other instance may be forged. So it counts only as far as it has what this process has found:
then the topic is right, whoever wrote it. Anything else buys the time above, once. A forged heartbeat does not change
this: it only makes the record count.

Apart: ends.py has what follows if the other instance was quicker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.evidence.ending import needs_update
from txnwatch.state.incidents.claims import differs
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
    """What is kept back: the last records of another instance that knows more, and what waits for its next one.

    Attributes:
        is_another_there: whether there is another instance now; else nothing waits.
    """

    is_another_there: bool = True
    _told: dict[str, IncidentEvent] = field(default_factory=dict)
    _changes: dict[str, WaitingChange] = field(default_factory=dict)
    _ends: dict[str, IncidentEvent] = field(default_factory=dict)
    _about: dict[SpanKey | None, set[str]] = field(default_factory=dict)  # the incidents of `_ends`, by their span
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
        must_wait = now_ms - since_ms < _patience_ms(event)
        if must_wait:
            self._ends[event.incident_id] = event
            self._about.setdefault(event.span, set()).add(event.incident_id)
        return must_wait

    def take_ends_about(self, span: SpanKey | None) -> list[IncidentEvent]:
        """The ends about a span that wait; they go before the next incident about it, and are returned once."""
        return [self._ends.pop(one) for one in sorted(self._about.pop(span, ())) if one in self._ends]

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
        self._about = {}
        for one, end in self._ends.items():
            self._about.setdefault(end.span, set()).add(one)
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
