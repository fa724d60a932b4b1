"""The events topic of one abort by hand: it finds the incident of a watch, and publishes as its next event.

A record of another writer can have the same sequence. Of two records with one sequence the first on the topic counts.
So an event is read back: if another one came first, nothing may follow from ours.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from txnwatch.sinks.delivery.event_log import EventLog, Found
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic
from txnwatch.state.incidents.event_order import fitting
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.incident import IncidentEvent, latest

_PATIENCE_S = 5.0  # a watch reads a marker at its next micro-batch
_PAUSE_S = 0.1


class NoTopic:
    """No events topic: the cluster is not watched."""

    def open_incident(self, _: IncidentEvent) -> IncidentEvent | None:
        """See OperatorsTopic."""
        return None

    def publish(self, _: IncidentEvent) -> None:
        """See OperatorsTopic."""

    def is_ended(self, _: str) -> bool:
        """See OperatorsTopic."""
        return False


class KafkaOperatorsTopic:
    """An OperatorsTopic. Without `log`, because it may not be read, no incident of a watch is found."""

    def __init__(self, topic: KafkaEventsTopic, log: EventLog | None) -> None:
        self._topic, self._log = topic, log
        self._known: dict[tuple[str, str], IncidentEvent] = {}
        self._first: dict[str, IncidentEvent] = {}
        if log is not None:
            self._take(log.history())

    def open_incident(self, incident: IncidentEvent) -> IncidentEvent | None:
        """See OperatorsTopic."""
        wanted = incident.cluster_id, incident.span, incident.txn_start_offset
        found = [
            known
            for known in self._known.values()
            if (known.cluster_id, known.span, known.txn_start_offset) == wanted
            if known.is_open and not known.is_by_hand and not known.is_spent and known.verdict == incident.verdict
        ]
        return max(found, key=lambda known: known.time_ms, default=None)

    def publish(self, event: IncidentEvent) -> None:
        """See OperatorsTopic."""
        key, ours = (event.cluster_id, event.incident_id), fitting(event)
        self._read()
        known = self._known.get(key)
        if known is not None and not known.is_open:
            return  # a watch has published the end, with the result
        self._topic.publish([ours])
        if self._log is None:
            return
        until_s = time.monotonic() + _PATIENCE_S
        while ours.event_id not in self._first:
            if time.monotonic() > until_s:
                raise SinkError(f"{self._topic.name}: the event was written, but it could not be read back")
            time.sleep(_PAUSE_S)
            self._read()
        if self._first[ours.event_id] != ours:
            raise SinkError(f"{self._topic.name}: another event of the incident came first; run the command again")

    def is_ended(self, incident_id: str) -> bool:
        """See OperatorsTopic."""
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() <= until_s:
            self._read()
            if any(key[1] == incident_id and not known.is_open for key, known in self._known.items()):
                return True
            time.sleep(_PAUSE_S)
        return False

    def _read(self) -> None:
        if self._log is not None:
            self._take(self._log.new_records())

    def _take(self, found: Iterable[Found]) -> None:
        events = [one for one in found if isinstance(one, IncidentEvent)]
        self._known = latest([*self._known.values(), *events])
        for event in events:
            self._first.setdefault(event.event_id, event)
