"""The fault that gives one producer id to two transactional ids: a quorum, or a log, that was restored from a backup.

Law: while a partition of the log has no leader, the reader has read all its records about a producer id that two ids
have, if it has read the partition once. So the partition keeps its leader until then (`has_unread_owner`), and the
producer id of a record that nobody can read is not given away. Without this law nothing could be told while a
partition has no leader: docs/decisions/0053 has the argument, and what remains of the case.

Its chances come from a source of their own, so a world without it stays the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from unittest import mock

from simulation.encoding import LoggedValue
from simulation.partition import PartitionLog
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, is_data
from txnwatch.streaming.source.offsets import SourceOffset

if TYPE_CHECKING:
    from simulation.world import World

TWO_IDS = "two ids with one producer id"
_SHARE_OF_IDS = 0.5


def share_producer_ids(world: World) -> set[int]:
    """Perhaps: a transactional id that gets its first producer id gets that of another one; returns those that do."""
    chance = random.Random(f"{TWO_IDS} {world.rng.getstate()[1][:8]}")
    shared: set[int] = set()
    if chance.random() >= world.setting.sharing or TWO_IDS not in world.setting.faults:
        return shared
    coordinators = world.coordinators
    init = coordinators.init

    def init_with_another(name: str, log: int, version: int, timeout_ms: int) -> None:
        known = coordinators.transactions.get(name)
        values = {one: other.value for one, other in coordinators.transactions.items() if one != name}
        others = sorted({value.producer_id for value in values.values() if value is not None} - unreadable_ids(world))
        is_first = known is None or (known.value is None and known.is_free)
        if not (is_first and others) or chance.random() >= _SHARE_OF_IDS:
            init(name, log, version, timeout_ms)
            return
        producer_id = chance.choice(others)
        shared.add(producer_id)
        world.seen[TWO_IDS] += 1
        world.note(f"{name} gets the producer id {producer_id} of another id")
        with mock.patch.object(coordinators, "new_producer_id", return_value=producer_id):
            init(name, log, version, timeout_ms)

    coordinators.init = init_with_another  # type: ignore[method-assign]
    return shared


def has_unread_owner(world: World, log: PartitionLog) -> bool:
    """Whether a record about a shared producer id is not read, in a log partition that was read to an end before."""
    return log.partition.topic == TRANSACTION_STATE_TOPIC and not world.shared.isdisjoint(_unread(world, log))


def unreadable_ids(world: World) -> set[int]:
    """The producer ids of unread records, in log partitions without a leader that were read to an end before."""
    return {producer_id for log in world.logs if not log.has_leader for producer_id in _unread(world, log)}


def _unread(world: World, log: PartitionLog) -> Iterator[int]:
    """The producer ids of the records that are not read in a log partition that was read to an end before."""
    read_to = world.read_whole_to.get(log.partition.partition)
    if read_to is None:
        return
    for entry in log.entries:
        if entry.offset >= read_to and isinstance(entry.body, LoggedValue) and entry.body.value is not None:
            yield entry.body.value.producer_id


def note_read(world: World, end: SourceOffset, barrier: Barrier, gaps: Mapping[TopicPartition, object]) -> None:
    """Takes how far a reader has read the log; and how far without a gap, if it has read a partition to an end once.

    `gaps` has the first offset that was not read; something else is a partition that has to be read from its beginning.
    """
    for at, position in end.read_positions.items():
        if is_data(at):
            continue
        world.read_to[at.partition] = position.offset
        is_whole = at not in gaps and at not in barrier.stale_coordinator
        if position.topic_id == world.logs[at.partition].topic_id and (is_whole or at.partition in world.read_whole_to):
            gap = gaps.get(at, position.offset)
            world.read_whole_to[at.partition] = gap if isinstance(gap, int) else 0
