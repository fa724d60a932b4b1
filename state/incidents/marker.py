"""The protocol of every abort (state/abort/protocol.py) as a plan: announce, write, read again, report.

The automatic abort and the abort by hand share it. They differ in how an event is published, in what is checked after
the announcement, and in what is kept before the marker is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from txnwatch.state.abort.protocol import (
    MarkerResult,
    announcement,
    closed,
    is_own_marker,
    not_written,
    open_until,
    outdated,
    reported,
    still_open_or_unreadable,
    with_answer,
)
from txnwatch.state.abort.rules import AbortSpec
from txnwatch.state.incidents.wanted import FindClosingMarker, Now, Plan, ReadPartitions, WriteMarker, ask
from txnwatch.state.model.incident import Action, IncidentEvent, start_of, updated
from txnwatch.state.model.ports import NotSent, PartitionReading
from txnwatch.state.model.values import DurationMs, SpanStart, TimestampMs

_NOT_DELIVERED = "the event that announces it could not be delivered"


class Performed(NamedTuple):
    """The end of the protocol: the last event, and the result."""

    event: IncidentEvent
    result: MarkerResult | NotSent


def _no_obstacle() -> Plan[None]:
    yield from ()


def too_old(read_ms: TimestampMs, limit_ms: DurationMs) -> Plan[str | None]:
    """The obstacle of a fresh read that is too old; `read_ms` is when it began."""
    return outdated(read_ms, (yield from ask(Now())), limit_ms)


@dataclass(frozen=True, slots=True)
class MarkerProtocol:
    """Ends one transaction.

    Attributes:
        publish: publishes an event; returns whether the events topic has it.
        obstacle: asked after the announcement, right before the marker; why it must not be written, or None.
        before_write: what is done directly before the marker is written.
        is_published: whether the incident is on the events topic.
    """

    publish: Callable[[IncidentEvent], Plan[bool]]
    obstacle: Callable[[], Plan[str | None]] = _no_obstacle
    before_write: Callable[[], Plan[None]] = _no_obstacle
    is_published: bool = True

    def run(
        self, incident: IncidentEvent, spec: AbortSpec, begun: Action, reading: PartitionReading
    ) -> Plan[Performed]:
        """Announces the marker, writes it, reads the partition again and reports; `reading` is the fresh read."""
        announced = announcement(incident, begun, reading, is_published=self.is_published)
        result = yield from self._try(announced, spec)
        action = not_written(begun, result.why) if isinstance(result, NotSent) else reported(begun, result)
        event = updated(replace(announced, action=action), (yield from ask(Now())))
        yield from self.publish(event)
        return Performed(event, result)

    def _try(self, announced: IncidentEvent, spec: AbortSpec) -> Plan[MarkerResult | NotSent]:
        if not (yield from self.publish(announced)):
            return NotSent(_NOT_DELIVERED)
        why = yield from self.obstacle()
        if why is not None:
            return NotSent(why)
        yield from self.before_write()
        return (yield from _write(announced, spec))


def _write(incident: IncidentEvent, spec: AbortSpec) -> Plan[MarkerResult | NotSent]:
    """Writes the marker and reads what has closed the transaction."""
    marker = spec.marker
    problem = yield from ask(WriteMarker(marker))
    if isinstance(problem, NotSent):
        return problem
    found = with_answer((yield from read_after(incident, commit=marker.commit)), problem)
    if problem is not None or found.closed_by is None:
        return found
    above = found.closed_by.offset + 1
    next_one = yield from ask(FindClosingMarker(SpanStart(marker.partition, marker.producer_id, above), above))
    # That none follows proves something only if the log can still be read.
    last = yield from read_after(incident, commit=marker.commit)
    is_ours = is_own_marker(marker, found.closed_by, next_one) and last.closed_by == found.closed_by
    return replace(last, is_ours=is_ours)


def read_after(incident: IncidentEvent, *, commit: bool) -> Plan[MarkerResult]:
    """Whether the incident's transaction is still open at its leader, or closed by a marker of the kind `commit`."""
    span = start_of(incident)
    reading = (yield from ask(ReadPartitions([span.partition])))[span.partition]
    found = still_open_or_unreadable(incident, reading)
    if found is not None:
        return found
    marker = yield from ask(FindClosingMarker(span, open_until(incident, reading)))
    return closed(marker, reading, commit=commit)
