"""What an open span does to read_committed consumers of its partition. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.ports import PartitionReading
from txnwatch.state.model.quantities import Offset


class BlockedReads(NamedTuple):
    """The fields of an event about the partition; None if the leader did not return the last stable offset.

    Attributes:
        hidden_records: the offsets that read_committed consumers do not get.
        is_lso_blocker: whether the span is the first of those that hold the last stable offset.
    """

    last_stable_offset: Offset | None
    high_watermark: Offset | None
    hidden_records: int | None
    is_lso_blocker: bool | None

    def added_to(self, incident: IncidentEvent) -> IncidentEvent:
        """The incident with these values."""
        return replace(
            incident,
            last_stable_offset=self.last_stable_offset,
            high_watermark=self.high_watermark,
            hidden_records=self.hidden_records,
            is_lso_blocker=self.is_lso_blocker,
        )


def blocked_reads(reading: PartitionReading, start_offset: Offset) -> BlockedReads:
    """What the span from `start_offset` does. Retention may have removed its beginning: then it still blocks."""
    if reading.last_stable_offset is None:
        return BlockedReads(None, reading.high_watermark, None, None)
    log_start_offset = reading.log_start_offset
    is_blocker = start_offset <= max(reading.last_stable_offset, 0 if log_start_offset is None else log_start_offset)
    return BlockedReads(reading.last_stable_offset, reading.high_watermark, hidden_records(reading), is_blocker)


def with_blocked_reads(incident: IncidentEvent, reading: PartitionReading) -> IncidentEvent:
    """An open incident with the current values of its partition; without an answer the known values stay."""
    if reading.problem is not None or reading.last_stable_offset is None or incident.txn_start_offset is None:
        return incident
    return blocked_reads(reading, incident.txn_start_offset).added_to(incident)


def blocking_order(spans: Iterable[SpanCandidate]) -> list[SpanCandidate]:
    """The open spans of a partition: the first holds the last stable offset, and each next one after it has ended."""
    return sorted(spans, key=lambda span: span.span.start_offset)


def hidden_records(reading: PartitionReading) -> int | None:
    """The offsets of the partition that read_committed consumers do not get; None if the leader did not return both."""
    if reading.high_watermark is None or reading.last_stable_offset is None:
        return None
    return reading.high_watermark - reading.last_stable_offset
