"""The file in which the driver tells the process of the source what it wants.

Spark has no channel from the driver to a source. The driver knows which ranges a task could not read, which gaps the
state found later, and when the next barrier is due. The source plans the next batch in a process of its own, beside the
driver on the same machine. One file carries all of it.

Law: the file has one writer, one reader and one value. It is replaced as a whole, so a reader never sees parts of two
values. It is level-triggered: the state repeats an open gap in every batch until a re-read closes it. So a lost or
outdated file delays a re-read by one round, and causes one more barrier, but loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from txnwatch.state.model.facts import DataRead, TopicVolume
from txnwatch.state.model.findings import BucketCount, CensusReason
from txnwatch.state.model.values import BarrierNumber, Offset, TimestampMs, TopicPartition
from txnwatch.streaming.source.planner import RereadRequest

# When the next barrier is due: lister.py skips barriers before that time, and has the argument.


class NextBarrierDue(NamedTuple):
    """The last finished barrier, and when (local clock, ms) the next one is due."""

    barrier: BarrierNumber
    due_ms: TimestampMs


def next_barrier_due(counts: Sequence[BucketCount], buckets: int, ledger_ms: TimestampMs) -> NextBarrierDue | None:
    """When the next barrier is due: as soon as a bucket or the ledger needs one. None if a bucket is missing."""
    if len(counts) != buckets:
        return None
    return NextBarrierDue(counts[0].barrier, min(ledger_ms, *(count.due_ms for count in counts)))


# The value and the file.


class _FileContent(msgspec.Struct):
    requests: list[tuple[str, Offset | None, str]]
    next_due: tuple[BarrierNumber, TimestampMs] | None
    volumes: dict[str, TopicVolume]


class DriverRequests(NamedTuple):
    """What the driver wants of the source.

    Attributes:
        requests: ranges to read again, and partitions to describe.
        next_due: when the next barrier is due; None if that is not known.
        volumes: what the last micro-batch has read of the topics.
    """

    requests: frozenset[RereadRequest] = frozenset()
    next_due: NextBarrierDue | None = None
    volumes: Mapping[str, TopicVolume] = MappingProxyType({})


_NOTHING = DriverRequests()
_STORED = msgspec.json.Decoder(_FileContent)


class DriverFile:
    """The writer of the file.

    Args:
        path: its place; a file beside it is used while it is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(
        self,
        requests: Collection[RereadRequest] = (),
        next_due: NextBarrierDue | None = None,
        read: Iterable[DataRead] = (),
    ) -> None:
        """Replaces the value after a micro-batch, or before a query: the barriers of another one mean nothing to it.

        Raises:
            OSError: the file cannot be written.
        """
        rows = [(str(request.partition), request.start, request.why or "") for request in requests]
        temporary = self.path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(_FileContent(rows, next_due, _volumes(read))))
        os.replace(temporary, self.path)  # noqa: PTH105 - atomic, also over an existing file


def read_driver_file(path: str | None) -> DriverRequests:
    """The value; nothing is wanted if there is no file, or if it is damaged."""
    if path is None:
        return _NOTHING
    try:
        stored = _STORED.decode(Path(path).read_bytes())
        requests = frozenset(
            RereadRequest(TopicPartition.parse(text), start, CensusReason(why) if why else None)
            for text, start, why in stored.requests
        )
    except (OSError, ValueError, RecursionError):
        return _NOTHING
    next_due = NextBarrierDue(*stored.next_due) if stored.next_due is not None else None
    return DriverRequests(requests, next_due, stored.volumes)


def _volumes(read: Iterable[DataRead]) -> dict[str, TopicVolume]:
    """What all tasks of a micro-batch have read."""
    volumes: dict[str, TopicVolume] = {}
    for data in read:
        for topic, volume in data.topics.items():
            volumes[topic] = volume.plus(volumes[topic]) if topic in volumes else volume
    return volumes
