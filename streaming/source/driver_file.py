"""The file in which the driver tells the process of the source what it wants.

Spark has no channel from the driver to a source. The driver knows which ranges a task could not read, which gaps the
state found later, when the next barrier is due, and where a former state ends. The source plans the next batch in a
process of its own, beside the driver on the same machine. One file carries all of it.

Law: the file has one writer, one reader and one value. It is replaced as a whole, so a reader never sees parts of two
values. It is level-triggered: the state repeats an open gap in every batch until a re-read closes it. So a lost or
outdated file delays a re-read by one round, and causes one more barrier, but loses nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from txnwatch.state.model.findings import BucketCount, CensusReason
from txnwatch.state.model.values import AT_ONCE, BarrierNumber, Offset, TimestampMs, TopicPartition, is_data
from txnwatch.streaming.source.planner import RereadRequest

# Where the states of other versions have read to: a new query with a new state continues there.


class FormerPosition(NamedTuple):
    """Everything below `offset` was read; None if the leader had never answered."""

    topic_id: str
    offset: Offset | None


FormerPositions = Mapping[TopicPartition, FormerPosition]


def positions_in(raw: Mapping[str, Any]) -> dict[TopicPartition, FormerPosition]:
    """The data partitions of a source's offset, also if another version has written it.

    Law: `topics`, with the id and the first value of each partition, keep their meaning in every version of the offset.

    Raises:
        ValueError: it has no such positions.
    """
    try:
        found = {
            TopicPartition(name, int(number)): FormerPosition(topic["id"], None if at is None else at[0])
            for name, topic in raw["topics"].items()
            for number, at in topic["partitions"].items()
        }
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as exc:
        raise ValueError(f"expected positions by topic and partition, found something else ({exc!r})") from exc
    if not all(_is_valid(at) for at in found.values()):
        raise ValueError("expected a topic id, and an offset of 0 or more, for each partition")
    return {partition: at for partition, at in found.items() if is_data(partition)}


def _is_valid(at: FormerPosition) -> bool:
    has_offset = at.offset is None or (type(at.offset) is int and at.offset >= 0)
    return has_offset and isinstance(at.topic_id, str)


_POSITION_ROWS = msgspec.json.Decoder(list[tuple[str, str, Offset | None]] | None)


def positions_text(positions: FormerPositions | None) -> bytes:
    """The positions as JSON, one row for each partition; None is `null`."""
    if positions is None:
        return b"null"
    return msgspec.json.encode([(str(partition), *at) for partition, at in sorted(positions.items())])


def positions_from(text: bytes) -> dict[TopicPartition, FormerPosition] | None:
    """The positions that `positions_text` wrote; None also for a damaged text."""
    try:
        rows = _POSITION_ROWS.decode(text)
        return {TopicPartition.parse(name): FormerPosition(*at) for name, *at in rows} if rows is not None else None
    except (ValueError, RecursionError):
        return None


# When the next barrier is due: lister.py skips barriers before that time, and has the argument.


class NextBarrierDue(NamedTuple):
    """The last finished barrier, and when (local clock, ms) the next one is due."""

    barrier: BarrierNumber
    due_ms: TimestampMs


def next_barrier_due(counts: Sequence[BucketCount], buckets: int, *, can_wait: bool) -> NextBarrierDue | None:
    """When the next barrier is due: at once, unless every bucket and the ledger can wait. None if a bucket is missing.

    `can_wait`: no incident is open, and no candidate and no event is queued.
    """
    if len(counts) != buckets:
        return None
    return NextBarrierDue(counts[0].barrier, min(count.due_ms for count in counts) if can_wait else AT_ONCE)


# The value and the file.


class _FileContent(msgspec.Struct):
    requests: list[tuple[str, Offset | None, str]]
    next_due: tuple[BarrierNumber, TimestampMs] | None
    former: msgspec.Raw  # encoded once a query, and decoded only when a query starts


class DriverRequests(NamedTuple):
    """What the driver wants of the source.

    Attributes:
        requests: ranges to read again, and partitions to describe.
        next_due: when the next barrier is due; None if that is not known.
        former: the encoded positions that a new state continues; `former_positions` decodes them.
    """

    requests: frozenset[RereadRequest] = frozenset()
    next_due: NextBarrierDue | None = None
    former: bytes = b"null"

    @property
    def former_positions(self) -> dict[TopicPartition, FormerPosition] | None:
        """The positions; None if there are none."""
        return positions_from(self.former)


_NOTHING = DriverRequests()
_STORED = msgspec.json.Decoder(_FileContent)


class DriverFile:
    """The writer of the file.

    Args:
        path: its place; a file beside it is used while it is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._former = msgspec.Raw(_NOTHING.former)

    def begin(self, former: FormerPositions | None) -> None:
        """Replaces what an earlier query wanted: its barriers may be those of another state.

        Args:
            former: where a new state continues; None if that is not known, or if it continues nothing.

        Raises:
            OSError: the file cannot be written.
        """
        self._former = msgspec.Raw(positions_text(former))
        self.write((), None)

    def write(self, requests: Collection[RereadRequest], next_due: NextBarrierDue | None) -> None:
        """Replaces the value after a micro-batch.

        Raises:
            OSError: the file cannot be written.
        """
        rows = [(str(request.partition), request.start, request.why or "") for request in requests]
        temporary = self.path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(_FileContent(rows, next_due, self._former)))
        os.replace(temporary, self.path)  # noqa: PTH105 - atomic, also over an existing file


def read_driver_file(path: str | None) -> DriverRequests:
    """The value; nothing is wanted if there is no file, or if it is damaged."""
    if path is None:
        return _NOTHING
    try:
        found = _STORED.decode(Path(path).read_bytes())
        requests = frozenset(
            RereadRequest(TopicPartition.parse(text), start, CensusReason(why) if why else None)
            for text, start, why in found.requests
        )
    except (OSError, ValueError, RecursionError):
        return _NOTHING
    next_due = NextBarrierDue(*found.next_due) if found.next_due is not None else None
    return DriverRequests(requests, next_due, bytes(found.former))
