"""Where the reading of a partition begins.

Law: a data partition may be read from any offset up to its last stable offset, because no open transaction begins below
that. So an earlier start changes no verdict about what is open; it shows more transactions that have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Protocol

from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.client import list_offsets as ends
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.source.former_positions import FormerPosition
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import EARLIEST, Offsets
from txnwatch.streaming.source.planner import is_begun


class ListOffsets(Protocol):
    """The request to the leaders of partitions."""

    def __call__(
        self, partitions: Collection[TopicPartition], timestamp: int = ..., isolation: int = ...
    ) -> Mapping[TopicPartition, ListedOffset | Problem]:
        """An answer for each partition."""


def start_offsets(
    previous: SourceOffset,
    listed: Mapping[TopicPartition, str],
    wanted: Offsets,
    former: Mapping[TopicPartition, FormerPosition] | None,
    ask: ListOffsets,
) -> dict[TopicPartition, Offset]:
    """The start offsets of partitions that are not read yet; none for a partition whose leader does not answer.

    Partitions that exist at the start begin at `wanted`; `latest` is the last stable offset. Partitions found later,
    and `__transaction_state`, begin at their log start. If an earlier query has read to the positions `former`, its
    partitions continue there; partitions that it did not know are new, and begin at their log start.

    Args:
        previous: the last offset.
        listed: the partitions of this round, with their topic ids.
        wanted: the option `startingOffsets`.
        former: where an earlier query has read to; None if there was none.
        ask: requests offsets from the leaders.
    """
    starts: dict[TopicPartition, Offset] = {}
    read_to: dict[TopicPartition, Offset] = {}
    by_start: dict[_Start, list[TopicPartition]] = {start: [] for start in _Start}
    for partition, topic_id in listed.items():
        known = previous.positions.get(partition)
        if is_begun(known) and known.topic_id == topic_id:
            continue
        if isinstance(wanted, dict) and partition in wanted and (previous.barrier == 0 or known is not None):
            starts[partition] = wanted[partition]
            continue
        start = _start(partition, topic_id, previous, wanted, former)
        if isinstance(start, _Start):
            by_start[start].append(partition)
        else:
            read_to[partition] = start
    first = _found(ask([*by_start[_Start.LOG_START], *read_to], timestamp=ends.EARLIEST))
    stable = _found(ask([*by_start[_Start.LAST_STABLE], *read_to], isolation=ends.READ_COMMITTED))
    starts.update({at: offset for at, offset in {**first, **stable}.items() if at not in read_to})
    both = first.keys() & stable.keys()
    starts.update({at: max(first[at], min(offset, stable[at])) for at, offset in read_to.items() if at in both})
    return starts


class _Start(Enum):
    LOG_START = auto()
    LAST_STABLE = auto()


def _start(
    partition: TopicPartition,
    topic_id: str,
    previous: SourceOffset,
    wanted: Offsets,
    former: Mapping[TopicPartition, FormerPosition] | None,
) -> _Start | Offset:
    """Where a partition begins; an offset is that of a former query."""
    if partition.topic == TRANSACTION_STATE_TOPIC or wanted == EARLIEST:
        return _Start.LOG_START
    earlier = former.get(partition) if former is not None else None
    if earlier is not None:
        if earlier.offset is None:
            return _Start.LAST_STABLE
        if earlier.topic_id == topic_id:
            return earlier.offset
    is_new = former is not None if previous.barrier == 0 else partition not in previous.positions
    return _Start.LOG_START if is_new else _Start.LAST_STABLE


def _found(answers: Mapping[TopicPartition, ListedOffset | Problem]) -> dict[TopicPartition, Offset]:
    return {partition: at.offset for partition, at in answers.items() if isinstance(at, ListedOffset)}
