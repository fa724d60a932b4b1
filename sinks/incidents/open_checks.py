"""Reads open incidents again from time to time: an end may be missed before a restart, or in a gap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.follow_up import FollowUp
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.sinks.incidents.own_findings import Findings
from txnwatch.state.evidence.end_check import LOG_SHOWS_MS, pause_ms
from txnwatch.state.evidence.update_rules import needs_update
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.incident_payload import Resolution
from txnwatch.state.model.quantities import AT_ONCE, TimestampMs


@dataclass(slots=True)
class OpenChecks:
    """Checks open incidents from time to time; `due_ms` is the time of the next check."""

    claims: Claims
    store: IncidentStore
    findings: Findings
    follow_up: FollowUp
    due_ms: TimestampMs = AT_ONCE

    def not_after(self, time_ms: TimestampMs) -> None:
        """Moves the next check to this time, if it is later."""
        self.due_ms = min(self.due_ms, time_ms)

    def check(self, now_ms: TimestampMs) -> Iterable[IncidentEvent]:
        """Reads open incidents again from time to time: an end may be missed before a restart, or in a gap."""
        if now_ms < self.due_ms:
            return
        self.due_ms = now_ms + pause_ms((known.detected_at_ms for known in self.store.open_incidents), now_ms)
        looked_at = self.store.left_to_us(now_ms)
        for incident, now, resolution in self.follow_up.look(looked_at, now_ms):
            if resolution is not None:
                yield self._end(incident, resolution, now_ms)
            elif needs_update(incident, update := updated(now, now_ms)):
                yield self.store.enter(self.claims.as_found(update))
        for incident, resolution in self.claims.refuted(self.store.left_to_us(now_ms), now_ms):
            if self.store.known[incident.incident_id].is_open:
                yield self._end(incident, resolution, now_ms)
        if self.follow_up.is_waiting:
            self.due_ms = now_ms + LOG_SHOWS_MS

    def _end(self, incident: IncidentEvent, resolution: Resolution, now_ms: TimestampMs) -> IncidentEvent:
        """Ends an incident after a check, and drops the findings about it."""
        key = incident.span
        its_own = self.store.open_span(*key) if key is not None else None
        is_found = self.claims.is_found(incident)
        ended = self.claims.end(self.store.known[incident.incident_id], resolution, now_ms)
        if key is not None and is_found and its_own is not None and its_own.incident_id == incident.incident_id:
            self.findings.over(key)
        return ended
