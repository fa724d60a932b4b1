"""Names the owner of a hang that no coordinator knows: its transactional id has expired, and the log still has it.

A hang is published without waiting for the name; an `updated` event follows if the coordinators' log has it. The log is
read once for each incident. If it could not be read to its end, it is read again after growing pauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from txnwatch.sinks.incidents.claims import Claims
from txnwatch.sinks.incidents.incident_store import IncidentStore
from txnwatch.state.model.backoff import NO_ATTEMPT, Attempts
from txnwatch.state.model.former_owners import FormerOwners
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.verdicts import Reason


@dataclass(slots=True)
class OwnerNames:
    """Finds the names that are missing in open incidents; without `owners` it finds none."""

    claims: Claims
    store: IncidentStore
    owners: FormerOwners | None = None
    _settled: set[str] = field(default_factory=set)
    _attempts: Attempts = NO_ATTEMPT

    def found(self, now_ms: TimestampMs) -> Iterator[IncidentEvent]:
        """The next events of incidents whose owners are known now."""
        nameless = {one.incident_id: one for one in self.store.open_incidents if self._is_nameless(one)}
        self._settled &= nameless.keys()
        left = [one for one in nameless.values() if one.incident_id not in self._settled]
        if self.owners is None or not left or now_ms < self._attempts.due_ms:
            return
        answer = self.owners.read({one.producer_id for one in left})
        self._attempts = NO_ATTEMPT if answer.problem is None else self._attempts.next(now_ms)
        for incident in left:
            if incident.producer_id in answer.names:
                self._settled.add(incident.incident_id)
                name = answer.names[incident.producer_id]
                if name is not None:
                    yield self.store.enter(
                        self.claims.as_found(updated(replace(incident, transactional_id=name), now_ms))
                    )

    def _is_nameless(self, incident: IncidentEvent) -> bool:
        is_without_owner = incident.transactional_id is None and incident.reason == Reason.NO_TRANSACTIONAL_ID
        return is_without_owner and self.claims.is_found(incident)
