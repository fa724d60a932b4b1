"""The files in which the driver tells the process of the source what it wants: one reader and one writer each."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from txnwatch.state.model.findings import BucketCount, CensusReason
from txnwatch.state.model.values import AT_ONCE, BarrierNumber, Offset, TimestampMs, TopicPartition
from txnwatch.state.text import read_json
from txnwatch.streaming.source.granted_requests import RereadRequest
from txnwatch.streaming.source.offsets import Position, SourceOffset, is_data

# The file with which the job asks its source to read ranges again and to describe partitions.
#
# Spark has no feedback channel to a source. The driver process knows which ranges a task could not read, and which gaps
# the state found later. The source's process, beside it on the same machine, plans the next range. A small file carries
# the requests from one to the other. It is level-triggered: the state repeats an open gap in every batch until a
# re-read closes it. So a lost or outdated file delays a re-read by one round, but loses nothing.

_ROWS = msgspec.json.Decoder(list[tuple[str, Offset | None, str]])


def write_requests(path: Path, requests: Collection[RereadRequest]) -> None:
    """Replaces the requests."""
    rows = ([str(request.partition), request.start, request.why or ""] for request in requests)
    text = json.dumps(sorted(rows, key=json.dumps))
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    replace_text(path, text)


def replace_text(path: Path, text: str) -> None:
    """Replaces a file atomically: a reader gets the whole old or the whole new content."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)  # noqa: PTH105 - atomic, also over an existing file


def read_requests(path: Path | None) -> set[RereadRequest]:
    """The requests; none if the file is missing or damaged."""
    if path is None:
        return set()
    try:
        return {
            RereadRequest(TopicPartition.parse(text), start, CensusReason(why) if why else None)
            for text, start, why in _ROWS.decode(path.read_text())
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return set()


# Where a former checkpoint has read to: a new query with a new state continues there.
#
# The source's process cannot read the checkpoint's file system. So the job writes the positions to a file on its
# machine.

_POSITION_ROWS = msgspec.json.Decoder(list[tuple[str, str, Offset | None]])


class FormerPosition(NamedTuple):
    """Everything below `offset` was read; None if the leader had never answered."""

    topic_id: str
    offset: Offset | None


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


def positions_text(positions: Mapping[TopicPartition, FormerPosition] | None) -> str:
    """The positions as the text of a file; None is `null`."""
    if positions is None:
        return "null"
    return json.dumps([[str(partition), *at] for partition, at in sorted(positions.items())])


def positions_from(text: str) -> dict[TopicPartition, FormerPosition] | None:
    """The positions in the text of a file; None if it is damaged, or if there are none in it."""
    try:
        rows = _POSITION_ROWS.decode(text)
        return {TopicPartition.parse(name): FormerPosition(topic_id, offset) for name, topic_id, offset in rows}
    except ValueError:
        return None


def write_former_positions(path: Path, positions: Mapping[TopicPartition, FormerPosition]) -> None:
    """Replaces the file."""
    replace_text(path, positions_text(positions))


def read_former_positions(path: Path | None) -> dict[TopicPartition, FormerPosition] | None:
    """The positions; None if there is no file, or if it is damaged."""
    if path is None:
        return None
    try:
        return positions_from(path.read_text())
    except (OSError, ValueError):
        return None


# Decides which barriers to skip: on an idle cluster, one barrier every few seconds is enough.
#
# Why skipping is safe: a barrier can give a new result only through new facts, or because time has passed.
#
# New facts are impossible if every partition answers, ends at the same offset under the same leader epoch as before and
# is read to that end, and if no census is due and no re-read is requested.
#
# Time is covered by the agenda of each bucket: the state names the next time at which it must run. That time is "at
# once" for everything that waits for a barrier and not for a time: an open span that no live transaction holds, a gap,
# a partition whose leader did not answer. So the two checks of a proof are never delayed. The driver adds "at once"
# while an incident is open or a sink has undelivered events. It writes the time and the number of the barrier to a
# file, after the requests of the batch. If any of this information is missing, the barrier takes place.
#
# At least every `IDLE_S` a barrier takes place, because heartbeats, metrics and events of other instances need it.

IDLE_S = 5.0


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


def write_next_barrier(path: Path, next_due: NextBarrierDue) -> None:
    """Replaces the file. Call it after the requests of the batch are written (granted_requests.py)."""
    replace_text(path, json.dumps(next_due))


def read_next_barrier(path: Path | None) -> NextBarrierDue | None:
    """The last written value; None if the file is missing or damaged. Call it before the requests are read."""
    if path is None:
        return None
    try:
        barrier, due_ms = read_json(path.read_text())
    except (OSError, ValueError, TypeError):
        return None
    if type(barrier) is not int or type(due_ms) is not int:
        return None
    return NextBarrierDue(BarrierNumber(barrier), TimestampMs(due_ms))


def can_skip(previous: SourceOffset, following: SourceOffset, next_due: NextBarrierDue | None) -> bool:
    """Whether the barrier of `following` can be skipped. The caller checks that no census and no request is due."""
    if next_due is None or next_due.barrier != previous.barrier or next_due.due_ms <= following.coordinator_listed_ms:
        return False
    return _is_unchanged(previous, following)


def _is_unchanged(previous: SourceOffset, following: SourceOffset) -> bool:
    if (
        following.clock_set_by_ms
        or following.begun
        or following.reread
        or following.gone
        or previous.begun
        or previous.reread
    ):
        return False  # what the last batch began to read counts as read only at the next barrier
    is_whole = all(
        isinstance(at, Position) and not at.is_stale and at.offset == at.listed for at in following.positions.values()
    )
    following_shared = (following.cluster_id, following.backlog_end, following.scan_interval_ms)
    previous_shared = (previous.cluster_id, previous.backlog_end, previous.scan_interval_ms)
    return is_whole and following_shared == previous_shared and following.positions == previous.positions
