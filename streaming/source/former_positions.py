"""Where a former checkpoint has read to: a new query with a new state continues there.

The source's process cannot read the checkpoint's file system. So the job writes the positions to a file on its machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.source.offsets import is_data
from txnwatch.streaming.source.reread_file import replace_text

_ROWS = msgspec.json.Decoder(list[tuple[str, str, Offset | None]])


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


def write_former_positions(path: Path, positions: Mapping[TopicPartition, FormerPosition]) -> None:
    """Replaces the file."""
    replace_text(path, json.dumps([[str(partition), *at] for partition, at in sorted(positions.items())]))


def read_former_positions(path: Path | None) -> dict[TopicPartition, FormerPosition] | None:
    """The positions; None if there is no file, or if it is damaged."""
    if path is None:
        return None
    try:
        rows = _ROWS.decode(path.read_text())
        return {TopicPartition.parse(text): FormerPosition(topic_id, offset) for text, topic_id, offset in rows}
    except (OSError, ValueError):
        return None
