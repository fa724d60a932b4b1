"""What a bucket's producers share between batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch.state.detection.awaited_producers import Awaited
from txnwatch.state.detection.look_times import Agenda
from txnwatch.state.model.broker_clocks import Clocks
from txnwatch.state.model.findings import OpenTransaction
from txnwatch.state.model.ids import TopicPartition

NEEDS_CENSUS = -1  # a gap that no reading can close, only the leader's own word on what is open
FROM_BEGINNING = -1  # a coordinator partition that is read again as a new reading
MADE_ANEW = -2  # the same, of another log: the topic was re-created


class Standing(NamedTuple):
    """A last stable offset, and since when (our clock) it has been the same; `seen_ms` is when it was told last."""

    offset: int
    since_ms: int
    seen_ms: int


class Failing(NamedTuple):
    """How often reading of a partition has failed in a row, and since when (our clock)."""

    times: int
    since_ms: int


@dataclass(slots=True)
class BucketState:
    """What a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with something open or live -> when (our clock, ms) the next look is due.
        gaps, coordinator_gaps: lowest offset of an unread range, kept until a re-read from there, or NEEDS_CENSUS.
        failing: data partitions with a range that could not be read, and that is not given up yet.
        left: where reading of a data partition stopped because the batch had read as much as it may.
        standing: last stable offsets below their partition's end, in the one bucket that speaks for partitions.
        rereading: coordinator partitions whose re-read has begun and has not reached the listed end yet, with
            the gap it is for; until then they count as stale anyway.
        readings: how often a coordinator partition has been found truncated: records of a later reading win
            over those of an earlier one, whatever their offsets, of idle producer ids too.
        holes: where the last hole of a coordinator partition ended: no record below leads to one from there on.
        clocks: the brokers' clocks.
        scan_interval_ms: that of the last barrier.
        hidden: partitions that transactions name and that are not shown to us, by the barrier at which that was seen;
            until the planner knows of them.
        undescribed: scanned partitions whose last census failed.
        states: how many awaited producer ids are in each state.
        followed: the oldest of what is open, by producer id.
        told: a digest of what was told last as open; None for who must not rely on its having been heard.
        number: which of the buckets this is.
        awaited: where what is on the agenda is found, once somebody has asked.
        shown: what `told` is the digest of, where it was made in this process.
        barrier: the last barrier that was judged in this process; the same one again is another attempt.

    What is from `number` on is never stored.
    """

    agenda: Agenda = field(default_factory=Agenda)
    gaps: dict[TopicPartition, int] = field(default_factory=dict)
    left: dict[TopicPartition, int] = field(default_factory=dict)
    failing: dict[TopicPartition, Failing] = field(default_factory=dict)
    standing: dict[TopicPartition, Standing] = field(default_factory=dict)
    coordinator_gaps: dict[int, int] = field(default_factory=dict)
    rereading: dict[int, int] = field(default_factory=dict)
    readings: dict[int, int] = field(default_factory=dict)
    holes: dict[int, int] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    scan_interval_ms: int | None = None
    hidden: dict[TopicPartition, int] = field(default_factory=dict)
    undescribed: set[TopicPartition] = field(default_factory=set)
    states: Counter[str] = field(default_factory=Counter)
    followed: dict[int, OpenTransaction] = field(default_factory=dict)
    told: int | None = None
    number: int = 0
    awaited: Awaited | None = field(default=None, compare=False, repr=False)
    shown: tuple[OpenTransaction, ...] | None = field(default=None, compare=False, repr=False)
    barrier: int = field(default=-1, compare=False, repr=False)
