"""When this process leaves an event to another instance: that one has published the outcome, and this one has none.

Law: an outcome that was published is never replaced by `unknown` while the instance that knows it is there. Both
instances see the same changes and the same end. So the one that knows less waits: an update is dropped if the other's
record tells it, and published after a minute if no record does; an end is published after 5 s, if nobody else has.

The other instance's record may be forged. So it buys time and nothing else. A record that differs in a field that this
process knows buys nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from txnwatch.state.evidence.ending import LOG_SHOWS_MS, needs_update
from txnwatch.state.incidents.incident_store import IncidentStore
from txnwatch.state.model.incident import ExpectedOutcome, IncidentEvent
from txnwatch.state.model.values import DurationMs, TimestampMs
from txnwatch.state.model.verdicts import Verdict

PATIENCE_MS: Final = DurationMs(60_000)


class HeldEnd(NamedTuple):
    """An end that another instance should publish, and when this process publishes it if nobody has."""

    end: IncidentEvent
    due_ms: TimestampMs


@dataclass(slots=True)
class Silence:
    """The incidents about which another instance knows more."""

    store: IncidentStore
    _told: dict[str, IncidentEvent] = field(default_factory=dict)
    _waits_since_ms: dict[str, TimestampMs] = field(default_factory=dict)
    _ends: dict[str, HeldEnd] = field(default_factory=dict)

    def heard(self, record: IncidentEvent, *, agrees: bool) -> None:
        """Takes a new record of another writer."""
        self._waits_since_ms.pop(record.incident_id, None)
        if agrees and record.is_open and not record.is_by_hand and record.expected_outcome != ExpectedOutcome.UNKNOWN:
            self._told[record.incident_id] = record
        else:
            self._told.pop(record.incident_id, None)

    def is_kept(self, event: IncidentEvent, now_ms: TimestampMs) -> bool:
        """Whether this process does not publish an event now. An end is kept until it is due; an update is dropped."""
        told = self._told.get(event.incident_id)
        if told is None or event.verdict != Verdict.HANGING or event.expected_outcome != ExpectedOutcome.UNKNOWN:
            return False
        if not event.is_open:
            self._ends.setdefault(event.incident_id, HeldEnd(event, now_ms + LOG_SHOWS_MS))
            return True
        compared = replace(
            told,
            expected_outcome=event.expected_outcome,
            suggested_command=event.suggested_command,
            action=event.action,
        )
        if not needs_update(compared, event):
            return True
        since_ms = self._waits_since_ms.setdefault(event.incident_id, now_ms)
        return now_ms - since_ms < PATIENCE_MS

    def due(self, now_ms: TimestampMs) -> list[IncidentEvent]:
        """The ends that nobody has published in time, behind the last event of their incident."""
        known = self.store.known
        self._ends = {one: held for one, held in self._ends.items() if one in known and known[one].is_open}
        self._told = {one: told for one, told in self._told.items() if one in known and known[one].is_open}
        self._waits_since_ms = {one: at_ms for one, at_ms in self._waits_since_ms.items() if one in self._told}
        late = [one for one, held in self._ends.items() if held.due_ms <= now_ms]
        return [replace(self._ends.pop(one).end, sequence=known[one].sequence + 1, time_ms=now_ms) for one in late]
