"""Whether read_committed consumers get the record at an offset of a partition, and why not.

A record is visible if it is below the last stable offset, is no control record, and either belongs to no transaction or
to one that was committed. All of it follows from the partition alone: the batch header, the producer's next marker, the
last stable offset, and what the leader has open. The rules are in the order in which they count.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import Offset, ProducerEpoch, ProducerId, TimestampMs


class Visibility(StrEnum):
    """What a read_committed consumer gets of one offset."""

    BELOW_LOG_START = "below_log_start"
    BEYOND_END = "beyond_end"
    COMPACTED = "compacted"
    CONTROL = "control"
    ABORTED = "aborted"
    OPEN = "open"
    UNKNOWN = "unknown"
    HELD = "held"
    VISIBLE = "visible"


VISIBILITY_MEANS = {
    Visibility.BELOW_LOG_START: "no consumer gets it: retention or DeleteRecords has removed it",
    Visibility.BEYOND_END: "no consumer gets it: nothing is written there yet, or not replicated",
    Visibility.COMPACTED: "no consumer gets it: compaction has removed it",
    Visibility.CONTROL: "no consumer gets it: it is a control record, which clients skip",
    Visibility.ABORTED: "read_committed consumers never get it: its transaction was aborted",
    Visibility.OPEN: "read_committed consumers do not get it now: its transaction is open",
    Visibility.UNKNOWN: "it is not known whether read_committed consumers get it: its marker could not be read",
    Visibility.HELD: "read_committed consumers do not get it now: another open transaction begins below it",
    Visibility.VISIBLE: "read_committed consumers get it",
}


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The batch that has an offset, or the next one if none has it.

    Attributes:
        producer_id: None if the batch has none.
        commit: for a marker whether it is a COMMIT; None for other batches.
    """

    base_offset: Offset
    last_offset: Offset
    record_count: int
    producer_id: ProducerId | None
    producer_epoch: ProducerEpoch
    timestamp_ms: TimestampMs
    is_transactional: bool
    is_control: bool
    commit: bool | None = None

    @property
    def is_thinned(self) -> bool:
        """Whether compaction has removed some of its records; the header does not show which."""
        return self.record_count <= self.last_offset - self.base_offset


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """What a partition shows about one offset.

    Attributes:
        log_start, end: the offsets that the leader has: [log_start, end).
        batch: None if no batch is at or above the offset.
        is_open: whether the leader has an open transaction of the batch's producer that began at or below the offset.
        first_offset: the first offset of its transaction on the partition; None if it is not known.
        is_first_certain: whether its transaction cannot have begun below `first_offset`.
        epochs: the producer epochs of the data of its transaction; more than one shows that data of an earlier one was
            absorbed.
        marker: the marker that ended its transaction; None while it is open, or if it could not be read.
    """

    offset: Offset
    log_start: Offset
    end: Offset
    last_stable_offset: Offset
    batch: BatchPlace | None = None
    is_open: bool = False
    first_offset: Offset | None = None
    is_first_certain: bool = False
    epochs: tuple[ProducerEpoch, ...] = ()
    marker: Marker | None = None


def _has_owner(place: RecordPlace) -> bool:
    """Whether the offset belongs to a transaction."""
    batch = place.batch
    return batch is not None and batch.is_transactional and batch.producer_id is not None


def _is_gone(place: RecordPlace) -> bool:
    batch = place.batch
    return batch is None or batch.base_offset > place.offset or batch.record_count == 0


RULES: tuple[tuple[Visibility, Callable[[RecordPlace], bool]], ...] = (
    (Visibility.BELOW_LOG_START, lambda place: place.offset < place.log_start),
    (Visibility.BEYOND_END, lambda place: place.offset >= place.end),
    (Visibility.COMPACTED, _is_gone),
    (Visibility.CONTROL, lambda place: place.batch is not None and place.batch.is_control),
    (Visibility.OPEN, lambda place: _has_owner(place) and place.is_open),
    (Visibility.UNKNOWN, lambda place: _has_owner(place) and place.marker is None),
    (Visibility.ABORTED, lambda place: _has_owner(place) and place.marker is not None and not place.marker.commit),
    (Visibility.HELD, lambda place: place.offset >= place.last_stable_offset),
    (Visibility.VISIBLE, lambda _: True),
)


def visibility(place: RecordPlace) -> Visibility:
    """What a read_committed consumer gets; the first rule that applies counts."""
    return next(found for found, applies in RULES if applies(place))
