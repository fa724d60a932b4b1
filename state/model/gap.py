"""A gap: a range of a log that was listed and not read, by what closes it."""

from __future__ import annotations

from enum import StrEnum

from txnwatch.state.model.quantities import Offset


class Remedy(StrEnum):
    """What closes a gap that a read from an offset cannot close; of two remedies, the first one here counts."""

    RECREATED = "recreated"  # the coordinators' log was re-created: all its partitions are read from the beginning
    NEW_READING = "new_reading"  # a partition of the coordinators' log is read again from its beginning
    CENSUS = "census"  # the leader of a data partition describes its producers


# The lowest unread offset, if a read from there closes the gap.
Gap = Offset | Remedy

_ORDER = tuple(Remedy)


def wider(one: Gap, other: Gap) -> Gap:
    """The gap that is closed later: what closes it also closes the other one."""
    return min(one, other, key=_order)


def _order(gap: Gap) -> tuple[bool, int]:
    return (False, _ORDER.index(gap)) if isinstance(gap, Remedy) else (True, gap)
