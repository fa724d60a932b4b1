"""When a census is due, of which partitions, and how it is taken.

A census is the leader's own list of open transactions (DescribeProducers). The logs alone are not enough:
retention may have removed the beginning of a transaction, a truncated or skipped log can hide markers, and topics that
are not scanned are known from censuses only. state/detection/span.py explains why two listings enclose a
census.

Scanned partitions are described when reading begins, every `heal_interval_s`, and when the job requests it: a last
stable offset that does not move, a gap that only the leader can close, a refuted candidate, a failed census.
Partitions that are not scanned, and scanned ones while they are behind, are described where their last stable offset
stands (standing_looks.py), when a proof needs another check, every `census_interval_s`, when the metadata shows them
first or again, and when one of them is deleted. A census costs three requests per leader.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeGuard

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact, OpenDescribed, StandsAt
from txnwatch.state.model.ports import ABSENCES_OF_A_DELETED_TOPIC, ListedOffset
from txnwatch.state.model.values import Offset, Problem, TimestampMs, TopicPartition, is_data
from txnwatch.streaming.admin.transaction_requests import describe_producers
from txnwatch.streaming.client.cluster import READ_COMMITTED, Cluster
from txnwatch.streaming.client.metadata import Metadata
from txnwatch.streaming.source.offsets import LookedAt, NotBegun, Position, SourceOffset, is_begun
from txnwatch.streaming.source.options import SourceOptions


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition to be described.

    Attributes:
        below: the end to which the batch reads it. None if it is not scanned, or not read to its end: the census then
            covers the whole partition, in place of a scan.
        is_first: the same batch begins to read the partition.
        is_behind: the partition is scanned, but not read to its end.
        standing: where its last stable offset stands.
    """

    topic_id: str
    below: Offset | None = None
    is_first: bool = False
    is_behind: bool = False
    standing: StandsAt | None = None

    @property
    def is_scanned(self) -> bool:
        """Whether the log of the partition is scanned as well."""
        return self.below is not None or self.is_behind

    def listing(self, below: Offset, low: ListedOffset, stable: ListedOffset) -> CensusListing:
        """The listing of a census that reaches `below`, between two listings of one leader."""
        stands = self.standing
        is_standing = stands is not None and (low.leader_epoch, stable.offset) == (stands.epoch, stands.offset)
        return CensusListing(
            self.topic_id,
            below,
            stable.offset,
            is_scanned=self.below is not None,
            is_first=self.is_first,
            is_behind=self.is_behind,
            stands_at=stable.offset if is_standing else None,
        )


@dataclass(frozen=True, slots=True)
class Census:
    """The partitions to describe while one batch is read.

    Attributes:
        listed_ms: local clock when the ends of the batch were listed.
        missing: census-only partitions whose topic is missing from the metadata, but not yet surely deleted.
        is_round: all census-only partitions are in `asked` or `missing`.
    """

    asked: Mapping[TopicPartition, Asked]
    listed_ms: TimestampMs
    missing: frozenset[TopicPartition] = frozenset()
    is_round: bool = False


@dataclass(slots=True)
class SnapshotSchedule:
    """Decides which partitions each batch describes. It lives in the driver, beside the lister.

    Attributes:
        heal_due_s, round_due_s, behind_due_s: when all scanned partitions, all census-only partitions, and those that
            are behind are due, by the monotonic clock.
        watched: the census-only partitions, and those beyond the budget, with their topic ids.
        absences: how often in a row the topic of a census-only partition was missing from the metadata.
        missing: the partitions of `watched` whose topic is missing from the metadata.
    """

    options: SourceOptions
    heal_due_s: float = 0.0
    round_due_s: float = 0.0
    behind_due_s: float = 0.0
    watched: dict[TopicPartition, str] = field(default_factory=dict)
    absences: Counter[str] = field(default_factory=Counter)
    missing: AbstractSet[TopicPartition] = frozenset()
    _metadata: Metadata | None = None
    _counted: dict[TopicPartition, str] = field(default_factory=dict)
    _looked: dict[TopicPartition, LookedAt] = field(default_factory=dict)
    _newly_shown: AbstractSet[TopicPartition] = frozenset()  # what was open there may have ended while nobody looked

    def next_census(
        self, previous: SourceOffset, following: SourceOffset, wanted: Iterable[TopicPartition]
    ) -> Census | None:
        """The census to take while the batch from `previous` to `following` is read; None if none is due."""
        now_s = time.monotonic()
        is_round = (self.options.census_pattern is not None or bool(self.watched)) and now_s >= self.round_due_s
        if is_round:
            self.round_due_s = now_s + self.options.census_interval_s
        is_healing = now_s >= self.heal_due_s
        if is_healing:
            self.heal_due_s = now_s + self.options.heal_interval_s
        to_describe = (*wanted, *sorted(self._newly_shown))
        unscanned = self.watched if is_round else [partition for partition in to_describe if partition in self.watched]
        self._newly_shown = frozenset()
        asked = {
            partition: Asked(self.watched[partition], standing=following.standing.get(partition))
            for partition in unscanned
            if partition not in self.missing
        }
        behind = behind_at(following).keys()
        due = self._due_behind(behind, now_s)
        scanned = following.positions if is_healing else {*following.begun, *wanted, *due} & following.positions.keys()
        for partition in scanned:
            position = following.positions[partition]
            if _can_be_described(position, partition):
                is_first, is_behind = not is_begun(previous.positions.get(partition)), partition in behind
                below = None if is_behind else position.offset
                standing = following.standing.get(partition) if is_behind else None
                asked[partition] = Asked(position.topic_id, below, is_first, is_behind, standing)
        missing = frozenset(self.missing)
        return Census(asked, following.coordinator_listed_ms, missing, is_round) if asked or is_round else None

    @property
    def has_absences(self) -> bool:
        """Whether a census-only topic is missing from the metadata, but not yet surely deleted."""
        return any(self.absences.values())

    @property
    def unscanned(self) -> list[TopicPartition]:
        """The census-only partitions that the metadata shows."""
        return [partition for partition in self.watched if partition not in self.missing]

    def _due_behind(self, behind: Collection[TopicPartition], now_s: float) -> Collection[TopicPartition]:
        if not behind or now_s < self.behind_due_s:
            return ()
        self.behind_due_s = now_s + self.options.census_interval_s
        return behind

    def look_at(self, metadata: Metadata, looked: Mapping[TopicPartition, LookedAt]) -> None:
        """Applies the metadata, and the partitions that are beyond the budget: they are watched in the same way."""
        if metadata is self._metadata and looked == self._looked:
            return
        shown = set(self.unscanned)
        if metadata is not self._metadata:
            self._take_metadata(metadata)
        self._metadata, self._looked = metadata, dict(looked)
        self.watched = {**self._counted, **{at: look.topic_id for at, look in looked.items()}}
        absent = {at for at, look in looked.items() if not _is_shown(metadata, at, look.topic_id)}
        self.missing = absent.union(partition for partition in self._counted if self.absences[partition.topic])
        self._newly_shown = self._newly_shown | (set(self.unscanned) - shown)

    def _take_metadata(self, metadata: Metadata) -> None:
        """The census-only partitions. Brokers learn of changes at different times, so one absence means nothing."""
        present = {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in metadata.topics.values()
            if self.options.counts(topic)
            for number in topic.partitions
        }
        names = {partition.topic for partition in present}
        hidden = {topic.name for topic in metadata.topics.values() if topic.is_hidden}
        for name in {partition.topic for partition in self._counted} | names:
            self.absences[name] = 0 if name in names else 1 if name in hidden else self.absences[name] + 1
        kept = {
            partition: topic_id
            for partition, topic_id in self._counted.items()
            if 0 < self.absences[partition.topic] < ABSENCES_OF_A_DELETED_TOPIC
        }
        if self._counted.keys() - {*kept, *present}:
            self.round_due_s = 0.0  # only a round shows that a partition is gone
        self._counted = {**kept, **present}
        topics = {partition.topic for partition in self._counted}
        self.absences = Counter({name: self.absences[name] for name in topics})


def _is_shown(metadata: Metadata, partition: TopicPartition, topic_id: str) -> bool:
    topic = metadata.topics.get(partition.topic)
    return topic is not None and topic.topic_id == topic_id and partition.partition in topic.partitions


def behind_at(following: SourceOffset) -> dict[TopicPartition, Position]:
    """The scanned partitions that are behind.

    The batch does not plan to read them to their ends, or goes back to where an earlier batch stopped: it may stop
    again.
    """
    return {
        partition: at
        for partition, at in following.read_positions.items()
        if _can_be_described(at, partition) and (at.offset < at.listed or partition in following.reread)
    }


def _can_be_described(position: Position | NotBegun, partition: TopicPartition) -> TypeGuard[Position]:
    return isinstance(position, Position) and is_data(partition) and not position.is_stale


def take_census(cluster: Cluster, census: Census) -> Iterator[Fact]:
    """Describes the partitions between two listings; a partition with an incomplete bracket counts as failed."""
    here = _those_known(cluster, census)
    if len(here) < len(census.asked):  # the driver may know a new topic before this worker does
        _look_around(cluster)
        here = _those_known(cluster, census)
    before = cluster.list_offsets(here)
    listed = [partition for partition in here if isinstance(before[partition], ListedOffset)]
    described = describe_producers(cluster, listed)
    after = cluster.list_offsets(described, isolation=READ_COMMITTED)
    # DescribeProducers names topics, without their ids: a leader may already describe a re-created topic.
    ids = _ids_of(cluster, {partition.topic for partition in described})
    taken: dict[TopicPartition, CensusListing] = {}
    for partition, producers in described.items():
        asked, low, stable = census.asked[partition], before[partition], after[partition]
        if isinstance(producers, Problem) or isinstance(low, Problem) or isinstance(stable, Problem):
            continue
        below = low.offset if asked.below is None else asked.below
        is_whole = low.leader_epoch == stable.leader_epoch and below <= low.offset
        if not is_whole or ids.get(partition.topic) != asked.topic_id:
            continue
        taken[partition] = asked.listing(below, low, stable)
        for producer in producers:
            start_offset = producer.txn_start_offset
            if start_offset is not None and start_offset < below:
                yield OpenDescribed(
                    partition=partition,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    start_offset=start_offset,
                    last_timestamp_ms=producer.last_timestamp_ms,
                    listed_ms=census.listed_ms,
                )
    failed = frozenset(census.asked) - taken.keys()
    if len(taken) < len(here):
        _look_around(cluster)  # a leader may have moved: the next census needs new metadata
    scanned = frozenset(partition for partition in failed if census.asked[partition].is_scanned)
    yield CensusTaken(taken, failed | census.missing, census.is_round, scanned)


def _ids_of(cluster: Cluster, topics: set[str]) -> dict[str, str]:
    """The current ids of topics; none if no broker answers."""
    try:
        return {name: topic.topic_id for name, topic in cluster.named(topics).items()} if topics else {}
    except BrokerError:
        return {}


def _those_known(cluster: Cluster, census: Census) -> list[TopicPartition]:
    topics = cluster.metadata.topics if cluster.metadata is not None else {}
    return [
        partition
        for partition, asked in census.asked.items()
        if partition.topic in topics and topics[partition.topic].topic_id == asked.topic_id
    ]


def _look_around(cluster: Cluster) -> bool:
    """Refreshes the metadata. Returns whether a broker answered."""
    try:
        cluster.refresh()
    except BrokerError:
        return False
    return True
