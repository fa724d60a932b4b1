"""Incidents about which the events topic does not say what this process knows. Pure.

Two things make an incident untold: this process has found something while another instance speaks, or a record of
another writer has taken the place of its event. Once this process speaks, it publishes its own state of the incident,
above every sequence on the topic.

Law: two writers never answer each other without end. The first answer to a record of another writer comes in the next
round; each further one about the same incident comes after a pause, which is twice as long each time. An event that
this process has found itself does not wait for the pause.

Apart: book.py has what is known of an incident, and this what the topic lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from txnwatch.state.model.incident import IncidentEvent, IncidentStatus
from txnwatch.state.model.pauses import Attempts
from txnwatch.state.model.values import AT_ONCE, NEVER_MS, DurationMs, TimestampMs

FIRST_PAUSE_MS: Final = DurationMs(10_000)
LONGEST_PAUSE_MS: Final = DurationMs(3_600_000)


@dataclass(slots=True)
class UntoldIncidents:
    """What is left to say, by incident."""

    _left: dict[str, None] = field(default_factory=dict)
    _openings: dict[str, IncidentEvent] = field(default_factory=dict)
    _findings: dict[str, None] = field(default_factory=dict)  # the incidents with an unpublished event of this process
    _answers: dict[str, Attempts] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._left)

    def __iter__(self) -> Iterator[str]:
        return iter(self._left)

    def __contains__(self, incident_id: object) -> bool:
        return incident_id in self._left

    def keep(self, event: IncidentEvent) -> None:
        """Takes an event of this process that was not published, because another instance speaks."""
        self._left[event.incident_id] = self._findings[event.incident_id] = None
        if event.status is IncidentStatus.OPENED:
            self._openings[event.incident_id] = event

    def mark(self, incident_id: str) -> None:
        """The last record of the incident may not be what this process knows."""
        self._left[incident_id] = None

    def begin_anew(self, incident_id: str) -> None:
        """The incident is about something else now: the first answer about it comes at once."""
        self._answers.pop(incident_id, None)

    def begin_all_anew(self) -> None:
        """The topic is empty: nobody is answered on it."""
        self._answers.clear()

    def told(self, incident_id: str) -> None:
        """The topic says what this process knows."""
        kept: tuple[dict[str, Any], ...] = (self._left, self._openings, self._findings)
        for by_incident in kept:
            by_incident.pop(incident_id, None)

    def take_opening(self, incident_id: str) -> IncidentEvent | None:
        """The first event of an incident that was never published; None for none."""
        return self._openings.pop(incident_id, None)

    def due_ms(self, may_be_told: Callable[[str], bool]) -> TimestampMs:
        """When the next incident is to be told."""
        due = (self._due_ms(incident_id) for incident_id in self._left if may_be_told(incident_id))
        return min(due, default=NEVER_MS)

    def _due_ms(self, incident_id: str) -> TimestampMs:
        answers = None if incident_id in self._findings else self._answers.get(incident_id)
        return answers.due_ms if answers is not None else AT_ONCE

    def take_due(self, may_be_told: Callable[[str], bool], now_ms: TimestampMs) -> list[str]:
        """The incidents to be told now; each is returned once."""
        due = [
            incident_id for incident_id in self._left if may_be_told(incident_id) and self._is_due(incident_id, now_ms)
        ]
        for incident_id in due:
            del self._left[incident_id]
            self._findings.pop(incident_id, None)
        return due

    def _is_due(self, incident_id: str, now_ms: TimestampMs) -> bool:
        if incident_id in self._findings:
            return True
        answers = self._answers.setdefault(incident_id, Attempts(FIRST_PAUSE_MS, LONGEST_PAUSE_MS))
        if not answers.is_due(now_ms):
            return False
        if now_ms - answers.due_ms > LONGEST_PAUSE_MS:
            answers.end()
        answers.put_off(now_ms)
        return True

    def forget(self, incident_ids: Container[str]) -> None:
        """Drops what is kept about incidents that are no longer known."""
        kept: tuple[dict[str, Any], ...] = (self._left, self._openings, self._findings, self._answers)
        for by_incident in kept:
            for incident_id in [incident_id for incident_id in by_incident if incident_id not in incident_ids]:
                del by_incident[incident_id]
