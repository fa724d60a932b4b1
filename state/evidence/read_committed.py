"""What read_committed consumers get: whether they get one record, what an open span hides, which groups it affects.

A record is visible if it is below the last stable offset, is no control record, and either belongs to no transaction or
to one that was committed. All of it follows from the partition alone: the batch header, the producer's next marker, the
last stable offset, and what the leader has open. The rules are in the order in which they count.

Law: nothing shows from outside whether a group reads with read_committed, so one look at its committed offset proves
nothing. `stopped` needs two looks. Between them the end moved, and neither the last stable offset nor the group's
committed offset did. The committed offset must be where a read_committed consumer stops: at the last stable offset, or
just below it, because control records and aborted data at the end need not be committed. A group beyond the last stable
offset has read data that read_committed hides: it is not affected. A group far below it that does not move has stopped
for another reason. For a group that may have read beyond its offset (`is_floor`), nothing shows whether it has stopped:
it is at risk at most. So is a group that has committed nothing and is assigned the partition: wherever it begins, it
stops at the last stable offset, but nothing shows where it is.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.model.incident import AffectedGroup, GroupState, IncidentEvent
from txnwatch.state.model.ports import GroupOffset, PartitionReading
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.values import DurationMs, Offset, ProducerEpoch, ProducerId, TimestampMs


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
        marker: the marker that ended its transaction, or that is at the offset; None while the transaction is open, or
            if it could not be read.
        earlier: the markers of the same producer below the offset that were read, in the order of the log.
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
    earlier: tuple[Marker, ...] = ()


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
    return next(verdict for verdict, applies in RULES if applies(place))


# What an open span hides on its partition.


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


def hidden_records(reading: PartitionReading) -> int | None:
    """The offsets of the partition that read_committed consumers do not get; None if the leader did not return both."""
    if reading.high_watermark is None or reading.last_stable_offset is None:
        return None
    return reading.high_watermark - reading.last_stable_offset


# The affected groups.

NEAR_OFFSETS: Final = 100
ONE_MARKER: Final = 1
APART_MS: Final = DurationMs(5_000)  # auto.commit.interval.ms: a group that moves has committed by then


class Seen(NamedTuple):
    """When a group's committed offset was first seen at its current value, and the partition's end then."""

    committed_offset: Offset | None
    high_watermark: Offset
    at_ms: TimestampMs
    has_moved: bool


@dataclass(frozen=True, slots=True)
class UnmovedOffset:
    """A last stable offset, since when we have seen it at this value, and the groups since then."""

    last_stable_offset: Offset
    since_ms: TimestampMs
    groups: Mapping[str, Seen] = field(default_factory=dict)


def observe(
    before: UnmovedOffset | None,
    last_stable_offset: Offset,
    high_watermark: Offset,
    groups: Sequence[GroupOffset] | None,
    now_ms: TimestampMs,
    *,
    is_complete: bool = True,
) -> UnmovedOffset:
    """Adds another look; `groups` None is a look that did not read them.

    A look that is not complete shows nothing about the groups that it lacks.
    """
    if before is None or before.last_stable_offset != last_stable_offset:
        before = UnmovedOffset(last_stable_offset, now_ms)
    if groups is None:
        return before
    seen: dict[str, Seen] = {} if is_complete else dict(before.groups)
    for group in groups:
        last = before.groups.get(group.group_id)
        if last is None or group.is_floor or last.committed_offset != group.committed_offset:
            has_moved = last is not None and (last.has_moved or last.committed_offset != group.committed_offset)
            last = Seen(group.committed_offset, high_watermark, now_ms, has_moved)
        seen[group.group_id] = last
    return UnmovedOffset(last_stable_offset, before.since_ms, seen)


class AnotherLook(NamedTuple):
    """The result of a look: the offset with its groups, and the affected groups; None if the look shows nothing."""

    offset: UnmovedOffset
    affected: tuple[AffectedGroup, ...] | None


def look_again(
    before: UnmovedOffset | None,
    affected_before: Iterable[AffectedGroup],
    last_stable_offset: Offset,
    high_watermark: Offset,
    groups: Sequence[GroupOffset],
    now_ms: TimestampMs,
    *,
    is_complete: bool,
    unassigned: Collection[str] = (),
) -> AnotherLook:
    """Another look at a partition. An answer that is not complete does not clear the groups that it lacks.

    A complete answer does not clear those that are `unassigned` (GroupOffsets).
    """
    is_seen = bool(groups) or is_complete
    seen = groups if is_seen else None
    offset = observe(before, last_stable_offset, high_watermark, seen, now_ms, is_complete=is_complete)
    if not is_seen:
        return AnotherLook(offset, None)
    affected = affected_groups(offset, high_watermark, groups, now_ms)
    kept = [group for group in affected_before if not is_complete or group.group_id in unassigned]
    return AnotherLook(offset, _with_unanswered(affected, kept, groups))


def affected_groups(
    offset: UnmovedOffset, high_watermark: Offset, groups: Sequence[GroupOffset], now_ms: TimestampMs
) -> tuple[AffectedGroup, ...]:
    """The groups that are stopped or at risk, the most affected first, as the event's `consumer_groups`."""
    affected = [
        AffectedGroup(
            group_id=group.group_id,
            state=state,
            committed_offset=group.committed_offset,
            hidden_lag=high_watermark - _at_least(group, offset.last_stable_offset),
        )
        for group in groups
        if (state := _state(offset, high_watermark, group, now_ms)) is not None
    ]
    return _most_affected_first(affected)


def _with_unanswered(
    affected: Iterable[AffectedGroup], before: Iterable[AffectedGroup], groups: Iterable[GroupOffset]
) -> tuple[AffectedGroup, ...]:
    """Adds those of some affected groups of the look before that the answer, `groups`, lacks; they are unchanged."""
    answered = {group.group_id for group in groups}
    return _most_affected_first([*affected, *(earlier for earlier in before if earlier.group_id not in answered)])


def _most_affected_first(affected: Iterable[AffectedGroup]) -> tuple[AffectedGroup, ...]:
    return tuple(
        sorted(affected, key=lambda group: (group.state is not GroupState.STOPPED, -group.hidden_lag, group.group_id))
    )


def _at_least(group: GroupOffset, last_stable_offset: Offset) -> Offset:
    return group.committed_offset if group.committed_offset is not None else last_stable_offset


def _state(offset: UnmovedOffset, high_watermark: Offset, group: GroupOffset, now_ms: TimestampMs) -> GroupState | None:
    below = offset.last_stable_offset - _at_least(group, offset.last_stable_offset)
    if below < 0 or high_watermark <= offset.last_stable_offset:
        return None
    if group.committed_offset is None:
        return GroupState.AT_RISK
    seen = offset.groups[group.group_id]
    # A group without members may be gone for good, or may read without joining (Flink): it must be within one marker.
    is_near = below <= (NEAR_OFFSETS if group.has_members else ONE_MARKER)
    if is_near and high_watermark > seen.high_watermark and now_ms - seen.at_ms >= APART_MS:
        return GroupState.STOPPED
    return GroupState.AT_RISK if group.has_members or seen.has_moved or below == 0 else None
