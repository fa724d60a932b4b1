"""The consumer groups that open transactions hurt, by one look at many partitions.

`find-hanging` and `explain` ask for them. Names of groups come from clients, so every text is escaped where it is
printed.

Law: the number of requests grows neither with the transactions nor with their partitions. Each broker is asked which
groups it coordinates, and then for the offsets of 500 of them at a time, and for the members of 100 of those that lack
an offset; pending offsets are read from at most a few MB of `__consumer_offsets`. An answer is bounded too: the offsets
of at most MOST_PARTITIONS partitions are asked for, those that hide the most records first. What is left out is a
problem, and not an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from txnwatch.state.evidence.read_committed import affected_groups, hidden_records, observe
from txnwatch.state.model.incident import AffectedGroup, ConnectSetting, ConnectUse, IncidentEvent, WaitingGroup
from txnwatch.state.model.ports import ConsumerGroups, PartitionReading
from txnwatch.state.model.values import (
    ProducerId,
    SpanStart,
    TimestampMs,
    TopicPartition,
)
from txnwatch.state.text import counted, quoted, some


@dataclass(frozen=True, slots=True)
class GroupsAround:
    """The groups that open transactions hurt.

    Attributes:
        affected: by partition, the groups that read it, by one look at their committed offsets.
        waiting: on `__consumer_offsets`, the groups that wait for pending offsets, by span.
        problems: why groups may be missing.
        connect: by topic, what Kafka Connect keeps in it.
    """

    affected: Mapping[TopicPartition, tuple[AffectedGroup, ...]] = field(default_factory=dict)
    waiting: Mapping[SpanStart, tuple[WaitingGroup, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    connect: Mapping[str, ConnectUse] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """The groups of Connect's workers whose internal topics these are."""
        return tuple(use.group_id for use in self.connect.values() if use.group_id is not None)

    def waiting_for(self, span: SpanStart) -> tuple[WaitingGroup, ...]:
        """The groups whose offsets are pending in one open transaction."""
        return self.waiting.get(span, ())


MOST_PARTITIONS = 100
_NAMED = 5
UNASSIGNED = "what the members of {names} are assigned is not known: `explain` of the group says why"


class Hold(NamedTuple):
    """The open data of a producer on one partition, with the reading that shows it."""

    start: SpanStart
    reading: PartitionReading

    @property
    def is_first(self) -> bool:
        """Whether it holds the last stable offset: when it ends, the groups go on."""
        stable = self.reading.last_stable_offset
        return stable is not None and self.start.start_offset <= stable


def holds_of(producer_id: ProducerId, readings: Iterable[PartitionReading]) -> list[Hold]:
    """What a producer has open on some partitions; those that could not be read are left out."""
    return [
        Hold(SpanStart(reading.partition, producer_id, row.txn_start_offset), reading)
        for reading in readings
        if (row := reading.open_transaction(producer_id)) is not None and row.txn_start_offset is not None
    ]


def groups_of(groups: ConsumerGroups, holds: Iterable[Hold], now_ms: TimestampMs) -> GroupsAround:
    """The groups on the partitions of some open data; nothing is read if there is none."""
    all_holds = list(holds)
    if not all_holds:
        return GroupsAround()
    waiting = groups.waiting(hold.start for hold in all_holds)
    by_partition = {hold.reading.partition: hold.reading for hold in all_holds}
    ordered = sorted(by_partition.values(), key=lambda reading: (-(hidden_records(reading) or 0), reading.partition))
    asked, left = ordered[:MOST_PARTITIONS], ordered[MOST_PARTITIONS:]
    answer = groups.committed_offsets([reading.partition for reading in asked])
    affected: dict[TopicPartition, tuple[AffectedGroup, ...]] = {}
    for reading in asked:
        stable, end = reading.last_stable_offset, reading.high_watermark
        offsets = answer.offsets.get(reading.partition, ())
        if stable is not None and end is not None and offsets:
            seen = observe(None, stable, end, offsets, now_ms)
            affected[reading.partition] = affected_groups(seen, end, offsets, now_ms)
    unassigned = (UNASSIGNED.format(names=some([quoted(name) for name in answer.unassigned], _NAMED)),)
    problems = (*waiting.problems, *answer.problems, *(unassigned if answer.unassigned else ()))
    more = f"those of {counted(len(left), 'more partition')} were not read: explain one of them"
    return GroupsAround(affected, waiting.groups, (*problems, *((more,) if left else ())), answer.connect)


class Hurt(NamedTuple):
    """The groups that some open data hurts: those that stop at it, by partition, and those that wait for offsets.

    `connect` is the first internal topic of Kafka Connect among its partitions.
    """

    affected: Mapping[TopicPartition, tuple[AffectedGroup, ...]]
    waiting: tuple[WaitingGroup, ...]
    connect: ConnectUse | None = None

    def added_to(self, event: IncidentEvent) -> IncidentEvent:
        """The finding with the groups, as the event of a watcher has them."""
        affected = tuple(group for groups in self.affected.values() for group in groups)
        return replace(event, consumer_groups=affected, waiting_groups=self.waiting, connect=self.connect)

    @property
    def affected_names(self) -> tuple[str, ...]:
        """The names of the groups that stop, each once."""
        return tuple(dict.fromkeys(group.group_id for groups in self.affected.values() for group in groups))

    @property
    def waiting_names(self) -> tuple[str, ...]:
        """The names of the groups that wait, each once."""
        return tuple(dict.fromkeys(group.group_id for group in self.waiting))


def hurt_by(holds: Iterable[Hold], groups: GroupsAround) -> Hurt:
    """Who is hurt by some open data; data behind that of another transaction stops nobody yet."""
    all_holds = list(holds)
    affected = {
        hold.reading.partition: stopped
        for hold in all_holds
        if hold.is_first and (stopped := groups.affected.get(hold.reading.partition))
    }
    uses = [use for hold in all_holds if (use := groups.connect.get(hold.reading.partition.topic)) is not None]
    connect = min(uses, key=lambda use: (use.setting is ConnectSetting.STATUS, use.topic), default=None)
    return Hurt(affected, tuple(group for hold in all_holds for group in groups.waiting_for(hold.start)), connect)
