"""Decides which barriers to skip: on an idle cluster, one barrier every few seconds is enough.

Why skipping is safe: a barrier can give a new result only through new facts, or because time has passed.

New facts are impossible if every partition answers, ends at the same offset under the same leader epoch as before and
is read to that end, and if no census is due and no re-read is requested.

Time is covered by the agenda of each bucket: the state names the next time at which it must run. That time is "at once"
for everything that waits for a barrier and not for a time: an open span that no live transaction holds, a gap, a
partition whose leader did not answer. So the two checks of a proof are never delayed. The driver adds "at once" while
an incident is open or a sink has undelivered events. It writes the time and the number of the barrier to a file, after
the requests of the batch. If any of this information is missing, the barrier takes place.

At least every `IDLE_S` a barrier takes place, because heartbeats, metrics and events of other instances need it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from txnwatch.state.model.findings import BucketCount
from txnwatch.state.model.ids import BarrierNumber
from txnwatch.state.model.quantities import AT_ONCE, TimestampMs
from txnwatch.state.text.outside_json import read_json
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.reread_file import replace_text

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
    """Replaces the file. Call it after the requests of the batch are written (reread_requests.py)."""
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
