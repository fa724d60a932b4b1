"""How the job asks its source to read ranges again.

Spark gives a source no way back: what a task could not read, and what the state found out later, is known in the
driver's own process, while the next range is planned in the source's process beside it, on the same machine. A
small file between the two carries the wish. It is level-triggered: the state repeats an open gap in every batch
until a re-read has closed it, so a lost or stale file costs a round and never an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from txnwatch.state.detection.bucket_state import NEEDS_CENSUS
from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.findings import (
    CensusReason,
    CensusWanted,
    Emitted,
    LastStableStands,
    LeftUnread,
    OpenTransactions,
    OutstandingGap,
)
from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.source.offsets import is_data


class Wish(NamedTuple):
    """One thing that the source is asked for; a partition may be read again and described in the same batch.

    Attributes:
        start: from where to read again; -1: a census, or a coordinator's whole log.
        why: of a census; one reason that keeps coming back does not make another one wait.
    """

    partition: TopicPartition
    start: int
    why: CensusReason | None = None


def census_of(partition: TopicPartition, why: CensusReason) -> Wish:
    """The wish to have a partition described."""
    return Wish(partition, NEEDS_CENSUS, why)


def wishes_of(emitted: Collection[Emitted], doubted: Iterable[TopicPartition]) -> set[Wish]:
    """What the source is asked for after a batch: gaps to be read again, and partitions to be described.

    `emitted` has what every bucket has open, told in this batch or before. `doubted` are partitions whose leader has
    contradicted a candidate: our view of them must be looked into.
    """
    wishes = {census_of(partition, CensusReason.DOUBT) for partition in doubted}
    wishes.update(census_of(partition, CensusReason.STANDING) for partition in _held_by_nobody_known(emitted))
    unread: dict[TopicPartition, int] = {}
    for said in emitted:
        if isinstance(said, CensusWanted):
            wishes.add(census_of(said.partition, said.why))
        elif isinstance(said, OutstandingGap | LeftUnread) and said.from_offset < 0:
            why = CensusReason.GAP if is_data(said.partition) else None
            wishes.add(Wish(said.partition, said.from_offset, why))
        elif isinstance(said, OutstandingGap | LeftUnread):
            unread[said.partition] = min(said.from_offset, unread.get(said.partition, said.from_offset))
    return wishes | {Wish(partition, start) for partition, start in unread.items()}


def _held_by_nobody_known(emitted: Collection[Emitted]) -> Iterator[TopicPartition]:
    """Partitions whose last stable offset stands where no transaction begins that we know and that has an owner.

    Where one does, it is the one that holds the offset: no two begin at one offset. A census would show it once more,
    and besides it only what lies above it and holds nothing yet.
    """
    standing = [said for said in emitted if isinstance(said, LastStableStands)]
    if not standing:
        return
    open_now = (told for said in emitted if isinstance(said, OpenTransactions) for told in said.transactions)
    owned = {(span.partition, span.start_offset) for told in open_now if told.state != UNOWNED for span in told.spans}
    for said in standing:
        if (said.partition, said.offset) not in owned:
            yield said.partition


def write_wishes(path: Path, wishes: Collection[Wish]) -> None:
    """Replaces the wishes."""
    text = json.dumps(sorted([str(wish.partition), wish.start, wish.why or ""] for wish in wishes))
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    replace_text(path, text)


def replace_text(path: Path, text: str) -> None:
    """Puts a new file in the place of the old one: who reads it has the one or the other, whole."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)  # noqa: PTH105 - atomic, also over an existing file


def read_wishes(path: Path | None) -> set[Wish]:
    """The wishes, none if the file is not there or damaged."""
    if path is None:
        return set()
    try:
        return {
            Wish(TopicPartition.parse(text), start, CensusReason(why) if why else None)
            for text, start, why in json.loads(path.read_text())
        }
    except (OSError, ValueError, AttributeError, TypeError):
        return set()
