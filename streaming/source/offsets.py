"""The source's offset: one value that is Spark's offset, the barrier and the plan of a batch.

Spark compares offsets as JSON text and replays a batch from the logged text alone. So the offset has everything that a
batch depends on (positions, listed ends, listing times, exceptions, ranges to read again), and the text is canonical.
Times are included: a replay uses the times of the first run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from msgspec.structs import replace as with_changes

from txnwatch.state.model.clocks import Clock, ClockBase, Leader
from txnwatch.state.model.errors import CheckpointError
from txnwatch.state.model.facts import Barrier, LastBatch, StandsAt
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    LONG_AGO,
    NO_TIME,
    BarrierNumber,
    BrokerId,
    CoordinatorAccess,
    CoordinatorEpoch,
    DurationMs,
    LeaderEpoch,
    ModelValue,
    Offset,
    TimestampMs,
    TopicPartition,
    is_data,
    is_log,
)

VERSION = 9


class Position(ModelValue, frozen=True):
    """How far one partition is read, whose leader has answered at least once.

    Attributes:
        offset: everything below it is read once the batch is done.
        epoch: the leader epoch under which `listed` was answered. Fetch sends it to detect a truncation.
        listed: the end in the leader's last answer.
        is_stale: the leader did not answer this time; `listed` is the previous value.
        leader: the broker that answered.
        connection: see Leader; always empty for data.
        whole_epoch: the leader epoch of the last listing to whose end the partition was read, if that is not the one of
            `listed`: the partition has been behind since, and its leader has changed. Else None.
    """

    topic_id: str
    offset: Offset
    epoch: LeaderEpoch
    listed: Offset
    leader: BrokerId
    is_stale: bool = False
    connection: str = ""
    whole_epoch: LeaderEpoch | None = None

    @property
    def read_under(self) -> LeaderEpoch:
        """The leader epoch of the last listing to whose end the partition was read."""
        return self.epoch if self.whole_epoch is None else self.whole_epoch


class NotBegun(ModelValue, frozen=True):
    """A partition whose leader has not answered yet, so reading has not begun; no barrier proves anything for it."""

    topic_id: str

    @property
    def is_stale(self) -> bool:
        """The leader did not answer."""
        return True


class LookedAt(ModelValue, frozen=True):
    """A partition that would be scanned, and is beyond the budget: it is looked at where it stands (scan_budget.py).

    Attributes:
        bytes_per_offset: what one of its offsets had when it was scanned; its ends show how much is written since.
        since: the first barrier at which it is not scanned.
    """

    topic_id: str
    bytes_per_offset: int
    since: BarrierNumber


def is_begun(position: Position | NotBegun | None) -> TypeGuard[Position]:
    """Whether reading of the partition has begun."""
    return isinstance(position, Position)


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The source's offset after one batch; see Barrier for the meaning of the exceptions.

    Attributes:
        barrier: number of the pair (D, T) of listings; 0 is the starting point, before any listing.
        positions: of data partitions and of partitions of `__transaction_state`.
        begun: partitions that this batch reads for the first time, by their first offset.
        reread: partitions whose range in this batch starts below the end of the last range, by its start.
        backlog_end: of partitions of `__transaction_state`: records below this offset existed before reading began or
            restarted. They are history.
        gone: partitions dropped since the last offset, with their topic id.
        scan_interval_ms: how often coordinators look for expired transactions; None until a broker answers.
        coordinator_access: how the coordinators' view is known; the state of one access is of no use to another.
        clock_base: since when our clock was not set; None at the beginning.
        clock_set_by_ms: by how much our clock was set since the last offset.
        standing: see Barrier.
        looked: partitions that are beyond the budget.
    """

    cluster_id: str
    barrier: BarrierNumber
    data_listed_ms: TimestampMs
    coordinator_listed_ms: TimestampMs
    positions: dict[TopicPartition, Position | NotBegun]
    begun: dict[TopicPartition, Offset] = field(default_factory=dict)
    reread: dict[TopicPartition, Offset] = field(default_factory=dict)
    gone: dict[TopicPartition, str] = field(default_factory=dict)
    backlog_end: dict[TopicPartition, Offset] = field(default_factory=dict)
    scan_interval_ms: DurationMs | None = None
    coordinator_access: CoordinatorAccess = CoordinatorAccess.LOG
    clock_base: ClockBase | None = None
    clock_set_by_ms: DurationMs = NO_TIME
    standing: dict[TopicPartition, StandsAt] = field(default_factory=dict)
    looked: dict[TopicPartition, LookedAt] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark: primitives only, keys sorted."""
        topics: dict[str, Any] = {}
        for partition, position in sorted(self.positions.items()):
            topic = topics.setdefault(partition.topic, {"id": position.topic_id, "partitions": {}})
            topic["partitions"][str(partition.partition)] = _position_out(position)
        return {
            "backlog_end": _starts_out(self.backlog_end),
            "barrier": self.barrier,
            "begun": _starts_out(self.begun),
            **({"clock": [*self.clock_base, self.clock_set_by_ms]} if self.clock_base is not None else {}),
            "cluster_id": self.cluster_id,
            "coordinator_listed_ms": self.coordinator_listed_ms,
            "coordinator_view": str(self.coordinator_access),
            "data_listed_ms": self.data_listed_ms,
            "gone": {str(partition): topic_id for partition, topic_id in sorted(self.gone.items())},
            **({"looked": _looked_out(self.looked)} if self.looked else {}),
            "reread": _starts_out(self.reread),
            "scan_interval_ms": self.scan_interval_ms,
            **(
                {"standing": {str(at): [*stands_at] for at, stands_at in sorted(self.standing.items())}}
                if self.standing
                else {}
            ),
            "topics": topics,
            "version": VERSION,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> SourceOffset:
        """Reads an offset that `to_json` wrote.

        Raises:
            CheckpointError: the offset is not txnwatch's, or another version of the source wrote it.
        """
        version = raw.get("version")
        if version is None:
            raise CheckpointError(
                "the checkpoint's offset has no version: it is another program's checkpoint; this txnwatch reads "
                f"version {VERSION}: start with a new --checkpoint directory"
            )
        if version != VERSION:
            raise CheckpointError(
                f"the checkpoint's offset has version {version}; this txnwatch reads version {VERSION}: start "
                "with a new --checkpoint directory"
            )
        *base, set_by_ms = raw.get("clock", [NO_TIME])
        positions = {
            TopicPartition(name, int(number)): _position_in(topic["id"], position)
            for name, topic in raw["topics"].items()
            for number, position in topic["partitions"].items()
        }
        return cls(
            raw["cluster_id"],
            raw["barrier"],
            raw["data_listed_ms"],
            raw["coordinator_listed_ms"],
            positions,
            _starts_in(raw["begun"]),
            _starts_in(raw["reread"]),
            {TopicPartition.parse(text): topic_id for text, topic_id in raw["gone"].items()},
            _starts_in(raw["backlog_end"]),
            raw["scan_interval_ms"],
            CoordinatorAccess(raw["coordinator_view"]),
            ClockBase(*base) if base else None,
            set_by_ms,
            {TopicPartition.parse(text): StandsAt(*fields) for text, fields in raw.get("standing", {}).items()},
            {TopicPartition.parse(text): LookedAt(*fields) for text, fields in raw.get("looked", {}).items()},
        )

    @classmethod
    def beginning(cls) -> SourceOffset:
        """Where every new query starts: nothing listed, nothing read."""
        return cls("", BarrierNumber(0), LONG_AGO, LONG_AGO, {})

    def bounded(self, ends: str | Mapping[TopicPartition, Offset]) -> SourceOffset:
        """A copy that reads no further than the given ends; a string in place of ends sets no bound."""
        if isinstance(ends, str):
            return self
        bounded = {p: self._up_to(p, at, ends.get(p, at.offset)) for p, at in self.read_positions.items()}
        return replace(self, positions={**self.positions, **bounded})

    def _up_to(self, partition: TopicPartition, at: Position, end: Offset) -> Position:
        return with_changes(at, offset=min(at.offset, max(self.begun.get(partition, FIRST_OFFSET), end)))

    @property
    def let_go(self) -> list[TopicPartition]:
        """The partitions that this batch scans no longer, because they are beyond the budget."""
        return [partition for partition, at in self.looked.items() if at.since == self.barrier]

    @property
    def read_positions(self) -> dict[TopicPartition, Position]:
        """The positions of the partitions whose reading has begun."""
        return {partition: at for partition, at in self.positions.items() if isinstance(at, Position)}

    def barrier_fact(
        self,
        clocks: Mapping[BrokerId, Clock],
        risen: frozenset[TopicPartition] = frozenset(),
        unfinished: frozenset[TopicPartition] = frozenset(),
        holes: Mapping[TopicPartition, Offset] | None = None,
        elected: frozenset[TopicPartition] = frozenset(),
        last_batches: Mapping[TopicPartition, LastBatch] | None = None,
        rechecked: Mapping[TopicPartition, LastBatch | None] | None = None,
    ) -> Barrier:
        """The barrier for every bucket; see TaskPlan and Barrier for the values that a batch adds."""
        read = self.read_positions
        return Barrier(
            number=self.barrier,
            data_listed_ms=self.data_listed_ms,
            coordinator_listed_ms=self.coordinator_listed_ms,
            stale_data=frozenset(p for p, at in self.positions.items() if is_data(p) and at.is_stale),
            limited_data=frozenset(p for p, at in read.items() if is_data(p) and at.offset < at.listed),
            stale_coordinator=unfinished.union(
                p
                for p, at in self.positions.items()
                if is_log(p) and (not isinstance(at, Position) or at.is_stale or at.offset < at.listed)
            ),
            reread=self.reread,
            risen=risen,
            leaders={
                p: Leader(at.leader, CoordinatorEpoch(at.epoch), at.connection)
                for p, at in read.items()
                if is_log(p) and not at.is_stale
            },
            clocks=clocks,
            scan_interval_ms=self.scan_interval_ms,
            holes=dict(holes or {}),
            has_coordinator_log=any(map(is_log, self.positions)),
            elected=elected,
            last_batches=dict(last_batches or {}),
            rechecked=dict(rechecked or {}),
            clock_set_by_ms=self.clock_set_by_ms,
            begun={p: start for p, start in self.begun.items() if is_data(p)},
            looked_at=frozenset(self.let_go),
            first_readings=frozenset(
                p for p, at in self.positions.items() if is_log(p) and (p in self.begun or isinstance(at, NotBegun))
            ),
            standing=self.standing,
        )


def _position_out(position: Position | NotBegun) -> list[int | str] | None:
    if isinstance(position, NotBegun):
        return None
    numbers = (position.offset, position.epoch, position.listed, position.leader, int(position.is_stale))
    if position.whole_epoch is not None:
        return [*numbers, position.connection, position.whole_epoch]
    return [*numbers, position.connection] if position.connection else [*numbers]


def _position_in(topic_id: str, raw: list[Any] | None) -> Position | NotBegun:
    if raw is None:
        return NotBegun(topic_id)
    offset, epoch, listed, leader, stale, *connection = raw
    numbers = Offset(offset), LeaderEpoch(epoch), Offset(listed), BrokerId(leader)
    return Position(topic_id, *numbers, bool(stale), *connection)


def _looked_out(looked: Mapping[TopicPartition, LookedAt]) -> dict[str, list[str | int]]:
    return {str(at): [look.topic_id, look.bytes_per_offset, look.since] for at, look in sorted(looked.items())}


def _starts_out(starts: Mapping[TopicPartition, Offset]) -> dict[str, Offset]:
    return {str(partition): start for partition, start in sorted(starts.items())}


def _starts_in(raw: Mapping[str, Offset]) -> dict[TopicPartition, Offset]:
    return {TopicPartition.parse(text): start for text, start in raw.items()}
