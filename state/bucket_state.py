"""What a bucket's producers share between batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch.state.emitted import OpenTransaction
from txnwatch.state.ids import TopicPartition

NEEDS_CENSUS = -1  # a gap that no reading can close, only the leader's own word on what is open
FROM_BEGINNING = -1  # a coordinator partition that is read again as a new reading


class Standing(NamedTuple):
    """A last stable offset, and since when (our clock) it has been the same; `seen_ms` is when it was told last."""

    offset: int
    since_ms: int
    seen_ms: int


@dataclass(slots=True)
class BucketState:
    """What a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with something open or live -> when (our clock, ms) the next look is due.
        gaps, coordinator_gaps: lowest offset of an unread range, kept until a re-read from there, or NEEDS_CENSUS.
        standing: last stable offsets below their partition's end, in the one bucket that speaks for partitions.
        rereading: coordinator partitions whose re-read has begun and has not reached the listed end yet, with
            the gap it is for; until then they count as stale anyway.
        readings: how often a coordinator partition has been found truncated: records of a later reading win
            over those of an earlier one, whatever their offsets, of idle producer ids too.
        holes: where the last hole of a coordinator partition ended: no record below leads to one from there on.
        clock_offset_ms: the broker's clock minus ours, latest estimate.
        states: how many awaited producer ids are in each state.
        followed: the oldest of what is open, by producer id.
        generation: the retention period the store was last turned to.
    """

    agenda: dict[int, int] = field(default_factory=dict)
    gaps: dict[TopicPartition, int] = field(default_factory=dict)
    standing: dict[TopicPartition, Standing] = field(default_factory=dict)
    coordinator_gaps: dict[int, int] = field(default_factory=dict)
    rereading: dict[int, int] = field(default_factory=dict)
    readings: dict[int, int] = field(default_factory=dict)
    holes: dict[int, int] = field(default_factory=dict)
    clock_offset_ms: int = 0
    generation: int = -1
    states: Counter[str] = field(default_factory=Counter)
    followed: dict[int, OpenTransaction] = field(default_factory=dict)
