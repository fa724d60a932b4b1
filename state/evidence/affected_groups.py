"""Which consumer groups a last stable offset that does not move affects, from committed offsets at two looks.

Law: nothing shows from outside whether a group reads with read_committed, so one look proves nothing. `stopped` needs
two looks. Between them the end moved, and neither the last stable offset nor the group's committed offset did. The
committed offset must be where a read_committed consumer stops: at the last stable offset, or just below it, because
control records and aborted data at the end need not be committed. A group beyond the last stable offset has read data
that read_committed hides: it is not affected. A group far below it that does not move has stopped for another reason.
For a group that may have read beyond its offset (`is_floor`), nothing shows whether it has stopped: it is at risk at
most.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txnwatch.state.model.incident import AffectedGroup, GroupState
from txnwatch.state.model.ports import GroupOffset
from txnwatch.state.model.values import DurationMs, Offset, TimestampMs

NEAR_OFFSETS: Final = 100
ONE_MARKER: Final = 1
APART_MS: Final = DurationMs(5_000)  # auto.commit.interval.ms: a group that moves has committed by then


class Seen(NamedTuple):
    """When a group's committed offset was first seen at its current value, and the partition's end then."""

    committed_offset: Offset
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
        known = before.groups.get(group.group_id)
        if known is None or group.is_floor or known.committed_offset != group.committed_offset:
            has_moved = known is not None and (known.has_moved or known.committed_offset != group.committed_offset)
            known = Seen(group.committed_offset, high_watermark, now_ms, has_moved)
        seen[group.group_id] = known
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
) -> AnotherLook:
    """Another look at a partition. An answer that is not complete does not clear the groups that it lacks."""
    is_seen = bool(groups) or is_complete
    seen = groups if is_seen else None
    offset = observe(before, last_stable_offset, high_watermark, seen, now_ms, is_complete=is_complete)
    if not is_seen:
        return AnotherLook(offset, None)
    affected = affected_groups(offset, high_watermark, groups, now_ms)
    return AnotherLook(offset, affected if is_complete else with_unanswered(affected, affected_before, groups))


def affected_groups(
    offset: UnmovedOffset, high_watermark: Offset, groups: Sequence[GroupOffset], now_ms: TimestampMs
) -> tuple[AffectedGroup, ...]:
    """The groups that are stopped or at risk, the most affected first, as the event's `consumer_groups`."""
    found = [
        AffectedGroup(
            group_id=group.group_id,
            state=state,
            committed_offset=group.committed_offset,
            hidden_lag=high_watermark - group.committed_offset,
        )
        for group in groups
        if (state := _state(offset, high_watermark, group, now_ms)) is not None
    ]
    return _most_affected_first(found)


def with_unanswered(
    found: Iterable[AffectedGroup], before: Iterable[AffectedGroup], groups: Iterable[GroupOffset]
) -> tuple[AffectedGroup, ...]:
    """Adds the affected groups of the look before that an incomplete answer, `groups`, lacks; they are unchanged."""
    answered = {group.group_id for group in groups}
    return _most_affected_first([*found, *(one for one in before if one.group_id not in answered)])


def _most_affected_first(found: Iterable[AffectedGroup]) -> tuple[AffectedGroup, ...]:
    return tuple(sorted(found, key=lambda one: (one.state is not GroupState.STOPPED, -one.hidden_lag, one.group_id)))


def _state(offset: UnmovedOffset, high_watermark: Offset, group: GroupOffset, now_ms: TimestampMs) -> GroupState | None:
    below = offset.last_stable_offset - group.committed_offset
    if below < 0 or high_watermark <= offset.last_stable_offset:
        return None
    seen = offset.groups[group.group_id]
    # A group without members may be gone for good, or may read without joining (Flink): it must be within one marker.
    is_near = below <= (NEAR_OFFSETS if group.has_members else ONE_MARKER)
    if is_near and high_watermark > seen.high_watermark and now_ms - seen.at_ms >= APART_MS:
        return GroupState.STOPPED
    return GroupState.AT_RISK if group.has_members or seen.has_moved or below == 0 else None
