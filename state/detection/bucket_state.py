"""The state that a bucket's producers share between batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnwatch.state.detection.broker_clocks import Clocks
from txnwatch.state.detection.bucket_indexes import Agenda, Awaited, HolderIndex, OpenAges, places_of
from txnwatch.state.detection.reading import READ_WHOLE, Lack, Reading, Standing
from txnwatch.state.model.findings import OpenTransaction, OpenTransactions
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.values import (
    BarrierNumber,
    BrokerId,
    DurationMs,
    ProducerId,
    TopicPartition,
)


@dataclass(slots=True)
class SharedState:
    """The part of a bucket's state that is stored field by field: each field that has changed, as a whole.

    Attributes:
        clocks: the brokers' clocks.
        assumed_ms: the highest lower bound of each broker's clock for which all due times are right
            (`bucket.is_assumed`).
        policy_digest: a digest of the policy of the last barrier, with the brokers' scan interval.
        states: how many awaited producer ids are in each state.
        open_list_digest, ends_digest: a digest of the last emitted open list, and of the last emitted offsets of
            partitions that only a census watches; None if they may not have arrived.
    """

    clocks: Clocks = field(default_factory=Clocks)
    assumed_ms: dict[BrokerId, DurationMs] = field(default_factory=dict)
    policy_digest: int | None = None
    states: dict[str, int] = field(default_factory=dict)
    open_list_digest: int | None = None
    ends_digest: int | None = None


@dataclass(slots=True)
class BucketState(SharedState):
    """The state that a bucket's producers share between batches.

    Attributes:
        agenda: producer ids with an open span or a live transaction -> when (our clock, ms) the next look is due.
        followed: the oldest open transactions, by producer id.
        holding: for each partition, the transaction with the lowest open start in this bucket; without those in
            `followed`, and the oldest of them.
        readings: what is known about the reading of a partition, of a topic or of the coordinators' log. A partition
            that is not here is read to its listed end.
        number: the number of this bucket.
        awaited: the index of the producers on the agenda; None until it is used.
        ages: those of them that are listable, by age; None until it is used.
        holders: those with the lowest open start of a partition by age; None while `followed` has a place for each.
        shown: the open list of which `open_list_digest` is the digest, if it was made in this process.
        barrier: the last barrier evaluated in this process, None before the first; the same one again is another
            attempt.

    Of `agenda`, `followed`, `holding` and `readings` the entries that have changed are stored; the other six are never
    stored.
    """

    agenda: Agenda = field(default_factory=Agenda)
    followed: dict[ProducerId, OpenTransaction] = field(default_factory=dict)
    holding: dict[ProducerId, OpenTransaction] = field(default_factory=dict)
    readings: dict[TopicPartition, Reading] = field(default_factory=dict)
    number: int = 0
    awaited: Awaited | None = field(default=None, compare=False, repr=False)
    ages: OpenAges | None = field(default=None, compare=False, repr=False)
    holders: HolderIndex | None = field(default=None, compare=False, repr=False)
    shown: OpenTransactions | None = field(default=None, compare=False, repr=False)
    barrier: BarrierNumber | None = field(default=None, compare=False, repr=False)

    def forget_emitted(self) -> None:
        """What was emitted may not have arrived: there may be a new driver, which has none of it yet."""
        self.open_list_digest = self.ends_digest = None

    def is_another_attempt(self, barrier_number: BarrierNumber) -> bool:
        """Whether this process has evaluated the barrier before: then the output of that attempt may be lost."""
        return self.barrier is not None and barrier_number <= self.barrier

    def reading(self, partition: TopicPartition) -> Reading:
        """What is known about the reading of a partition."""
        return self.readings.get(partition, READ_WHOLE)

    def keep_reading(self, partition: TopicPartition, reading: Reading) -> None:
        """Sets what is known about the reading of a partition."""
        if reading == READ_WHOLE:
            self.readings.pop(partition, None)
        else:
            self.readings[partition] = reading

    def lacking(self, *lacks: Lack) -> list[TopicPartition]:
        """The partitions whose reading lacks one of these, in order."""
        wanted = set(lacks)
        return sorted(
            at for at, reading in self.readings.items() if reading.lacks and not reading.lacks.keys().isdisjoint(wanted)
        )

    def standing(self) -> list[tuple[TopicPartition, Standing]]:
        """The last stable offsets below the ends of their partitions, in order."""
        return sorted((at, reading.standing) for at, reading in self.readings.items() if reading.standing is not None)

    def index(self, producer: ProducerState) -> None:
        """Updates the indexes that are in use with a producer that has changed."""
        if not producer.is_awaited:
            self.unindex(producer.producer_id)
            return
        if self.awaited is not None:
            self.awaited.put(producer.producer_id, places_of(producer))
        if self.ages is not None:
            self.ages.take(producer)

    def unindex(self, producer_id: ProducerId) -> None:
        """Removes a producer that has nothing open from the indexes."""
        if self.awaited is not None:
            self.awaited.drop(producer_id)
        if self.ages is not None:
            self.ages.drop(producer_id)
