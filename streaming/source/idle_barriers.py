"""Which barriers need not be: on a cluster where nothing happens, one in every few seconds is enough.

The argument. A barrier can say something new only through facts, or because time has passed. There are no facts to
read where every partition answers, ends where it ended before under the same leader epoch, and is read to that end,
and where no census is due and nothing is asked for again. What time alone brings is in each bucket's agenda: the state
names the next moment at which it has to look. That is "at once" for everything that waits for a barrier and not for a
time: an open span that no live transaction holds, a gap, a partition that is not told. So the two looks of a proof are
never put off. The driver adds "at once" while an incident is open or a sink waits, and writes the moment down beside
the barrier it belongs to, behind the batch's wishes. Whatever is missing here means that the barrier takes place.

Every `IDLE_S` one takes place in any case: heartbeats, metrics, and what other instances tell live on them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from txnwatch.streaming.source.offsets import NOT_BEGUN, SourceOffset
from txnwatch.streaming.source.reread_requests import replace_text

IDLE_S = 5.0


class Judged(NamedTuple):
    """What the driver says of a barrier whose batch is done: when (our clock, ms) the next one has to be."""

    barrier: int
    due_ms: int


def write_judged(path: Path, judged: Judged) -> None:
    """Replaces what was said of the barrier before; to be called once the batch's wishes are written."""
    replace_text(path, json.dumps(judged))


def read_judged(path: Path | None) -> Judged | None:
    """What was said last, None if the file is not there or damaged; to be called before the wishes are read."""
    if path is None:
        return None
    try:
        barrier, due_ms = json.loads(path.read_text())
    except (OSError, ValueError, TypeError):
        return None
    return Judged(barrier, due_ms) if type(barrier) is int and type(due_ms) is int else None


def need_not_be(previous: SourceOffset, following: SourceOffset, judged: Judged | None) -> bool:
    """Whether the barrier of `following`, which takes no census and grants no wish, can say nothing new."""
    if judged is None or judged.barrier != previous.barrier or judged.due_ms <= following.coordinator_listed_ms:
        return False
    return _tells_nothing(previous, following)


def _tells_nothing(previous: SourceOffset, following: SourceOffset) -> bool:
    if following.begun or following.reread or following.gone or previous.begun or previous.reread:
        return False  # what the last batch has begun counts as read only at the next barrier
    is_whole = all(
        not at.is_stale and at.offset == at.listed and at.offset != NOT_BEGUN for at in following.positions.values()
    )
    told = (following.cluster_id, following.news_from, following.scan_interval_ms)
    known = (previous.cluster_id, previous.news_from, previous.scan_interval_ms)
    return is_whole and told == known and following.positions == previous.positions
