"""What an open span does to read_committed consumers of its partition. Pure: no I/O, no clock."""

from __future__ import annotations

from typing import NamedTuple

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


def blocked_reads(reading: PartitionReading, start_offset: Offset) -> BlockedReads:
    """What the span from `start_offset` does. Retention may have removed its beginning: then it blocks all the same."""
    if reading.last_stable_offset is None:
        return BlockedReads(None, reading.high_watermark, None, None)
    log_start_offset = reading.log_start_offset
    is_blocker = start_offset <= max(reading.last_stable_offset, 0 if log_start_offset is None else log_start_offset)
    return BlockedReads(reading.last_stable_offset, reading.high_watermark, hidden_records(reading), is_blocker)


def hidden_records(reading: PartitionReading) -> int | None:
    """The offsets of the partition that read_committed consumers do not get; None if the leader did not return both."""
    if reading.high_watermark is None or reading.last_stable_offset is None:
        return None
    return reading.high_watermark - reading.last_stable_offset
