"""What a picture is made of: the store at one moment, and the open lists by partition. Pure: no I/O, no clock.

If a leader shows a last stable offset, because it stands or a census has listed it, the holder of the partition is the
transaction that begins there, and no other is named as the holder: if none of the open lists begins there, the holder
is not in them. If no such offset is shown, because nothing is written or no census has listed one yet, it is the lowest
start that the lists have.

Law: only what a list shows as held counts as standing. A marker that another client has written ends the data of a
transaction, and leaves its incident open. The one exception is a hang whose partition no list has: a fresh read has
shown it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from txnwatch.page.store import KnownNow, PageStore
from txnwatch.page.truth import CALM, Facts, PageTruth, judge
from txnwatch.page.words import worst_first
from txnwatch.state.model.findings import CensusOffsets, OpenTransaction
from txnwatch.state.model.incident import GroupState, IncidentEvent
from txnwatch.state.model.values import Offset, ProducerId, TimestampMs, TopicPartition
from txnwatch.state.model.verdicts import rank


@dataclass(frozen=True, kw_only=True)
class Knowledge:
    """Everything that a picture is made of.

    Attributes:
        ends: the end of each scanned partition; empty while it is not known.
        series: the watcher's own figures over time, by name.
    """

    store: PageStore
    seen: KnownNow
    now_ms: TimestampMs
    ends: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @cached_property
    def facts(self) -> Facts:
        """What decides whether the page may be green."""
        seen = self.seen
        verdicts = None if seen.incidents is None else [event.verdict for event in seen.incidents if event.is_open]
        reach = seen.reach
        return Facts(
            now_ms=self.now_ms,
            judged_within_ms=seen.judged_within_ms,
            is_source_read=seen.is_source_read,
            judged_ms=seen.judged_ms,
            access=self.store.access,
            is_ready=seen.is_ready,
            is_log_read=reach.is_log_read if reach is not None else None,
            unproven=reach.unproven if reach is not None else None,
            undecided=reach.undecided_spans if reach is not None else None,
            open_verdicts=verdicts,
            undelivered=seen.undelivered,
        )

    @cached_property
    def truth(self) -> PageTruth:
        """The state of the page."""
        return judge(self.facts)

    @cached_property
    def open_incidents(self) -> Sequence[IncidentEvent]:
        """The open incidents: those that hurt somebody first, then the worst verdict, then the oldest."""
        return sorted(worst_first(event for event in self.seen.incidents or () if event.is_open), key=self._hurts)

    def _hurts(self, event: IncidentEvent) -> tuple[int, int, int]:
        if event.verdict in CALM:
            return 3, rank(event.verdict), 0
        hurt = sum(group.state is GroupState.STOPPED for group in event.consumer_groups) + len(event.waiting_groups)
        return 0 if hurt else 1 if self.spans.held_by(event) else 2, rank(event.verdict), -hurt

    @cached_property
    def ended_incidents(self) -> Sequence[IncidentEvent]:
        """The incidents that ended within a day, the last one first."""
        ended = (event for event in self.seen.incidents or () if event.resolution is not None)
        return sorted(ended, key=lambda event: -event.time_ms)

    def is_watched(self, at: TopicPartition) -> bool | None:
        """Whether a partition is watched; None if that is not known."""
        if at in self.ends or at in self.spans.listed or at in self.spans.by_partition:
            return True  # it may be newer than the list of topics
        topics = self.seen.topics
        return at.partition < topics.get(at.topic, 0) if topics is not None else None

    @cached_property
    def has_unlisted(self) -> bool:
        """Whether more is open than the lists have: what they show of a partition may be a part."""
        return self.seen.totals.open > sum(1 for _ in transactions_of(self.seen))

    @cached_property
    def spans(self) -> Spans:
        """The open lists, by partition."""
        return _spans_of(self)


class HeldBack(NamedTuple):
    """One open transaction on one partition."""

    start: Offset
    transaction: OpenTransaction


class Spans(NamedTuple):
    """What the open lists show, and the offsets of their partitions.

    Attributes:
        by_partition: what is open on a partition, the lowest start first.
        by_producer: the partitions on which each producer of the lists has open data.
        standing: the last stable offsets that stand, and those that a census has listed.
        scanned: the ends of the scanned partitions.
        listed: what the last census has listed, of the others.
    """

    by_partition: Mapping[TopicPartition, list[HeldBack]]
    by_producer: Mapping[ProducerId, frozenset[TopicPartition]]
    standing: Mapping[TopicPartition, Offset]
    scanned: Mapping[TopicPartition, Offset]
    listed: Mapping[TopicPartition, CensusOffsets]

    def holder(self, at: TopicPartition) -> HeldBack | None:
        """The transaction that holds a partition; None if it is not in the lists."""
        held, stands = self.by_partition.get(at, ()), self.standing.get(at)
        return next((span for span in held if stands is None or span.start == stands), None)

    def last_stable(self, at: TopicPartition) -> Offset | None:
        """The last stable offset that the leader shows, or the lowest start; None if nothing is known."""
        holder = self.holder(at)
        return holder.start if holder is not None else self.standing.get(at)

    def behind(self, at: TopicPartition) -> list[HeldBack]:
        """What is open above the last stable offset. What is below it has ended, and its end is not read yet."""
        stable = self.last_stable(at)
        return [span for span in self.by_partition.get(at, ()) if stable is not None and span.start > stable]

    def held_by(self, event: IncidentEvent) -> list[TopicPartition]:
        """The partitions that the transaction of an incident holds back."""
        if event.topic is not None:
            at = TopicPartition(event.topic, event.partition or 0)
            stands = self.standing.get(at)
            is_passed = stands is not None and event.txn_start_offset is not None and stands > event.txn_start_offset
            return [] if is_passed else [at]
        return [
            at
            for at in sorted(self.by_producer.get(event.producer_id, ()))
            if (held := self.holder(at)) is not None and held.transaction.producer_id == event.producer_id
        ]

    def data_of(self, producer_id: ProducerId) -> frozenset[TopicPartition] | None:
        """Where a producer has open data; None if it is in no list."""
        return self.by_producer.get(producer_id)

    def end(self, at: TopicPartition) -> Offset | None:
        """The end of a partition; None if it is not known."""
        listed = self.listed.get(at)
        return self.scanned.get(at, listed.end if listed is not None else None)

    def hidden(self, at: TopicPartition) -> int | None:
        """How many records are between the last stable offset and the end; None if one of them is not known."""
        stable, end = self.last_stable(at), self.end(at)
        return max(0, end - stable) if end is not None and stable is not None else None


def _spans_of(knowledge: Knowledge) -> Spans:
    """The open lists of a micro-batch, by partition."""
    seen, by_partition = knowledge.seen, defaultdict[TopicPartition, list[HeldBack]](list)
    by_producer: dict[ProducerId, frozenset[TopicPartition]] = {}
    listed = {offsets.partition: offsets for bucket in seen.by_census for offsets in bucket.offsets}
    blocked = {place.partition: place.offset for bucket in seen.lists for place in bucket.blocked}
    for transaction in transactions_of(seen):
        data = set()
        for partition, start, _ in transaction.spans:
            if partition in listed and start < listed[partition].last_stable:
                continue  # it has ended
            by_partition[partition].append(HeldBack(start, transaction))
            if start >= blocked.get(partition, start):
                data.add(partition)
        by_producer[transaction.producer_id] = frozenset(data)
    for held in by_partition.values():
        held.sort(key=lambda span: span.start)
    standing = {at: listed[at].last_stable for at in listed.keys() & by_partition.keys()} | blocked
    return Spans(by_partition, by_producer, standing, knowledge.ends, listed)


def transactions_of(seen: KnownNow) -> Iterable[OpenTransaction]:
    """All open transactions of the lists."""
    return itertools.chain.from_iterable(bucket.transactions for bucket in seen.lists)
