"""How the job asks its source to read ranges again.

Spark gives a source no way back: what a task could not read, and what the state found out later, is known in the
driver's own process, while the next range is planned in the source's process beside it, on the same machine. A
small file between the two carries the wish. It is level-triggered: the state repeats an open gap in every batch
until a re-read has closed it, so a lost or stale file costs a round and never an answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from txnwatch.state.bucket_state import NEEDS_CENSUS
from txnwatch.state.emitted import CensusWanted, Emitted, OutstandingGap
from txnwatch.state.ids import TopicPartition


def wishes_of(emitted: Iterable[Emitted], doubted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """What the source is asked for after a batch: gaps to be read again, and partitions to be described.

    `doubted` are partitions whose leader has contradicted a candidate: our view of them must be looked into.
    """
    wishes = dict.fromkeys(doubted, NEEDS_CENSUS)
    for said in emitted:
        if isinstance(said, CensusWanted):
            wishes.setdefault(said.partition, NEEDS_CENSUS)
        elif isinstance(said, OutstandingGap):
            wishes[said.partition] = said.from_offset
    return wishes


def write_wishes(path: Path, wishes: Mapping[TopicPartition, int]) -> None:
    """Replaces the wishes: partition -> offset to read again from; -1: a census, or a coordinator's whole log."""
    text = json.dumps({str(partition): start for partition, start in sorted(wishes.items())})
    try:
        if path.read_text() == text:
            return
    except (OSError, ValueError):
        pass
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)  # noqa: PTH105 - atomic, also over an existing file


def read_wishes(path: Path | None) -> dict[TopicPartition, int]:
    """The wishes, empty if there are none or the file is not there or damaged."""
    if path is None:
        return {}
    try:
        return {TopicPartition.parse(text): start for text, start in json.loads(path.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}
