"""The state that a bucket's producers share between batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch.state.detection.awaited_producers import Awaited, places_of
from txnwatch.state.detection.look_times import Agenda
from txnwatch.state.detection.open_ages import OpenAges
from txnwatch.state.model.broker_clocks import Clocks
from txnwatch.state.model.findings import OpenTransaction, OpenTransactions
from txnwatch.state.model.gap import Gap
from txnwatch.state.model.ids import BarrierNumber, BrokerId, ProducerId, TopicPartition
from txnwatch.state.model.quantities import DurationMs, Offset, TimestampMs
from txnwatch.state.model.transaction import ProducerState


class Standing(NamedTuple):
    """A last stable offset, and since when (our clock) it has not moved.

    Attributes:
        is_repeated: more than one batch has reported it.
        silent_ms: the first barrier (our clock) since which it is not reported; None if the last batch reported it.
    """

    offset: Offset
    since_ms: TimestampMs
    is_repeated: bool = False
    silent_ms: TimestampMs | None = None


class Failing(NamedTuple):
    """How often reading of a partition has failed in a row, and since when (our clock)."""

    times: int
    since_ms: TimestampMs


@dataclass(slots=True)
class SharedState:
    """The part of a bucket's state that is stored field by field: each field that has changed, as a whole.

    Attributes:
        gaps, coordinator_gaps: ranges that could not be read, kept until they are closed; of the coordinators' log by
            the number of the partition.
        failing: data partitions with a range that could not be read and is not given up yet.
        left: where reading of a data partition stopped because of the read limit of a batch.
        rereading: coordinator partitions whose re-read has begun and has not reached the listed end yet, with the gap
            that it closes; until then they count as stale.
        readings: how often a coordinator partition was found truncated. Records of a later reading replace those of an
            earlier one, whatever their offsets, even of idle producer ids.
        holes: the end of the last compaction hole of a coordinator partition; never carry state across it.
        clocks: the brokers' clocks.
        assumed_ms: the highest lower bound of each broker's clock for which all due times are right
            (changed_clocks.py).
        policy_digest: a digest of the policy of the last barrier, with the brokers' scan interval.
        hidden: partitions that transactions name and that are hidden from us, with the barrier at which this was seen;
            kept until the planner knows them.
        undescribed: scanned partitions whose last census failed.
        last_whole: of data partitions that the last batch did not read to their listed end, the last barrier at which
            they were (whole_readings.py).
        states: how many awaited producer ids are in each state.
        open_list_digest: a digest of the last emitted open list; None if that list may not have arrived.
    """

    gaps: dict[TopicPartition, Gap] = field(default_factory=dict)
    left: dict[TopicPartition, Offset] = field(default_factory=dict)
    failing: dict[TopicPartition, Failing] = field(default_factory=dict)
    coordinator_gaps: dict[int, Gap] = field(default_factory=dict)
    rereading: dict[int, Gap] = field(default_factory=dict)
    readings: dict[int, int] = field(default_factory=dict)
    holes: dict[int, Offset] = field(default_factory=dict)
    clocks: Clocks = field(default_factory=Clocks)
    assumed_ms: dict[BrokerId, DurationMs] = field(default_factory=dict)
    policy_digest: int | None = None
    hidden: dict[TopicPartition, BarrierNumber] = field(default_factory=dict)
    undescribed: set[TopicPartition] = field(default_factory=set)
    states: dict[str, int] = field(default_factory=dict)
    open_list_digest: int | None = None
    last_whole: dict[TopicPartition, BarrierNumber] = field(default_factory=dict)


@dataclass(slots=True)
class BucketState(SharedState):
    """The state that a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with an open span or a live transaction -> when (our clock, ms) the next look is due.
        followed: the oldest open transactions, by producer id.
        standing: last stable offsets below their partition's end, only in the one bucket that reports on partitions.
        number: the number of this bucket.
        awaited: the index of the producers on the agenda; None until it is used.
        ages: the same producers by age; None while the open list has a place for each, and until it is used.
        shown: the open list of which `open_list_digest` is the digest, if it was made in this process.
        barrier: the last barrier evaluated in this process, None before the first; the same one again is another
            attempt.

    Of `agenda`, `followed` and `standing` the entries that have changed are stored; the other five are never stored.
    """

    agenda: Agenda = field(default_factory=Agenda)
    followed: dict[ProducerId, OpenTransaction] = field(default_factory=dict)
    standing: dict[TopicPartition, Standing] = field(default_factory=dict)
    number: int = 0
    awaited: Awaited | None = field(default=None, compare=False, repr=False)
    ages: OpenAges | None = field(default=None, compare=False, repr=False)
    shown: OpenTransactions | None = field(default=None, compare=False, repr=False)
    barrier: BarrierNumber | None = field(default=None, compare=False, repr=False)

    def index(self, producer: ProducerState) -> None:
        """Updates the indexes that are in use with a producer that has changed."""
        if not producer.is_awaited:
            self.unindex(producer.producer_id)
            return
        if self.awaited is not None:
            self.awaited.put(producer.producer_id, places_of(producer))
        if self.ages is not None:
            self.ages.put(producer)

    def unindex(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open from the indexes."""
        if self.awaited is not None:
            self.awaited.drop(producer_id)
        if self.ages is not None:
            self.ages.drop(producer_id)
