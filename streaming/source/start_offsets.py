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


class Asks(Protocol):
    """ListOffsets of a round of listing."""

    def __call__(
        self, partitions: Collection[TopicPartition], timestamp: int = ..., isolation: int = ...
    ) -> Mapping[TopicPartition, ListedOffset | Problem]:
        """An answer for each partition."""


def start_offsets(
    previous: SourceOffset,
    listed: Mapping[TopicPartition, str],
    wanted: Offsets,
    former: Mapping[TopicPartition, FormerPosition],
    ask: Asks,
) -> dict[TopicPartition, Offset]:
    """The start offsets of partitions that are not read yet; none for a partition whose leader does not answer.

    Partitions that exist at the start begin at `wanted`; `latest` is the last stable offset. Partitions found later,
    and `__transaction_state`, begin at their log start. If an earlier query has read to the positions `former`, its
    partitions continue there, and all others are found later.

    Args:
        previous: the last offset.
        listed: the partitions of this round, with their topic ids.
        wanted: the option `startingOffsets`.
        former: where an earlier query has read to; empty if there was none.
        ask: requests offsets from the leaders.
    """
    starts: dict[TopicPartition, Offset] = {}
    at: dict[_Start, list[TopicPartition]] = {start: [] for start in _Start}
    for partition, topic_id in listed.items():
        known, earlier = previous.positions.get(partition), former.get(partition)
        if is_begun(known) and known.topic_id == topic_id:
            continue
        found_later = previous.barrier > 0 and known is None
        if partition.topic == TRANSACTION_STATE_TOPIC or found_later or wanted == EARLIEST:
            at[_Start.LOG_START].append(partition)
        elif isinstance(wanted, dict) and partition in wanted:
            starts[partition] = wanted[partition]
        else:
            at[_start(topic_id, earlier, former)].append(partition)
    first = _found(ask([*at[_Start.LOG_START], *at[_Start.FORMER]], timestamp=ends.EARLIEST))
    stable = _found(ask([*at[_Start.LAST_STABLE], *at[_Start.FORMER]], isolation=ends.READ_COMMITTED))
    for partition in at[_Start.FORMER]:
        offset = former[partition].offset
        if partition in first and partition in stable and offset is not None:
            starts[partition] = max(first[partition], min(offset, stable[partition]))
    starts.update({partition: first[partition] for partition in at[_Start.LOG_START] if partition in first})
    starts.update({partition: stable[partition] for partition in at[_Start.LAST_STABLE] if partition in stable})
    return starts


class _Start(Enum):
    LOG_START = auto()
    LAST_STABLE = auto()
    FORMER = auto()


def _start(topic_id: str, earlier: FormerPosition | None, former: Mapping[TopicPartition, FormerPosition]) -> _Start:
    """The start of a partition for which nobody wants an offset."""
    if earlier is None or earlier.topic_id != topic_id:
        return _Start.LOG_START if former else _Start.LAST_STABLE
    return _Start.LAST_STABLE if earlier.offset is None else _Start.FORMER


def _found(answers: Mapping[TopicPartition, ListedOffset | Problem]) -> dict[TopicPartition, Offset]:
    return {partition: at.offset for partition, at in answers.items() if isinstance(at, ListedOffset)}
