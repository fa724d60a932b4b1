"""Runs the protocol of an abort (state/abort/protocol.py) for one transaction: announce, write, read again, report.

The automatic abort and the abort by hand share this code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.state.abort.decision import AbortSpec, partition_of
from txnwatch.state.abort.protocol import (
    MarkerResult,
    announcement,
    closed,
    is_own_marker,
    not_written,
    open_until,
    reported,
    still_open_or_unreadable,
    with_answer,
)
from txnwatch.state.model.incident import IncidentEvent, updated
from txnwatch.state.model.incident_payload import Action
from txnwatch.state.model.ports import PartitionReading, TransactionAdmin
from txnwatch.state.model.quantities import TimestampMs

_NOT_DELIVERED = "the event that announces it could not be delivered"


class Performed(NamedTuple):
    """The end of the protocol: the last event, and the result; None if no marker was sent."""

    event: IncidentEvent
    result: MarkerResult | None


@dataclass(frozen=True, slots=True)
class MarkerProtocol:
    """Ends one transaction.

    Attributes:
        publish: publishes an event; returns whether the events topic has it.
        obstacle: called after the announcement, right before the marker; returns why it must not be written, or None.
        before_write: called directly before the marker is written.
    """

    admin: TransactionAdmin
    publish: Callable[[IncidentEvent], bool]
    now_ms: Callable[[], TimestampMs]
    obstacle: Callable[[], str | None] = lambda: None
    before_write: Callable[[], None] = lambda: None

    def run(self, incident: IncidentEvent, spec: AbortSpec, begun: Action, reading: PartitionReading) -> Performed:
        """Announces the marker, writes it, reads the partition again and reports; `reading` is the fresh read."""
        announced = announcement(incident, begun, reading)
        why = None if self.publish(announced) else _NOT_DELIVERED
        why = why or self.obstacle()
        if why is not None:
            return Performed(self._report(announced, not_written(begun, why)), None)
        self.before_write()
        result = write(self.admin, announced, spec)
        return Performed(self._report(announced, reported(begun, result)), result)

    def _report(self, announced: IncidentEvent, action: Action) -> IncidentEvent:
        event = updated(replace(announced, action=action), self.now_ms())
        self.publish(event)
        return event


def write(admin: TransactionAdmin, incident: IncidentEvent, spec: AbortSpec) -> MarkerResult:
    """Writes the marker and reads what has closed the transaction."""
    marker = spec.marker
    problem = admin.write_marker(marker)
    found = with_answer(read_after(admin, incident, commit=marker.commit), problem)
    if problem is not None or found.closed_by is None:
        return found
    above = found.closed_by.offset + 1
    next_one = admin.closing_marker(marker.partition, marker.producer_id, above, above)
    # That none follows proves something only if the log can still be read.
    last = read_after(admin, incident, commit=marker.commit)
    is_ours = is_own_marker(marker, found.closed_by, next_one) and last.closed_by == found.closed_by
    return replace(last, is_ours=is_ours)


def read_after(admin: TransactionAdmin, incident: IncidentEvent, *, commit: bool) -> MarkerResult:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit`."""
    partition = partition_of(incident)
    reading = admin.read_partitions([partition])[partition]
    found = still_open_or_unreadable(incident, reading)
    if found is not None:
        return found
    assert incident.txn_start_offset is not None
    end = open_until(incident, reading)
    marker = admin.closing_marker(partition, incident.producer_id, incident.txn_start_offset, end)
    return closed(marker, reading, commit=commit)
