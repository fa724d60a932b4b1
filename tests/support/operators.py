"""The events topic of an abort by hand, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txnwatch.state.model.incident import IncidentEvent


class RecordingOperatorsTopic:
    """An OperatorsTopic without readers.

    Attributes:
        published: what was published.
        known: the open incident of a watch; None for no watch.
        before: called before an event is published; may raise SinkError.
    """

    def __init__(self, known: IncidentEvent | None = None, *, before: Callable[[], None] = lambda: None) -> None:
        self.published: list[IncidentEvent] = []
        self.known, self.before = known, before
        self.asked: list[Sequence[object]] = []

    def open_incident(self, incident: IncidentEvent) -> IncidentEvent | None:
        """See OperatorsTopic."""
        self.asked.append((incident.span, incident.txn_start_offset))
        return self.known

    def publish(self, event: IncidentEvent) -> None:
        """See OperatorsTopic."""
        self.before()
        self.published.append(event)
