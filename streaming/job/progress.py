"""How far the query is, as Spark tells it after each micro-batch: the source's offset has every end that was listed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txnwatch.state.model.ids import TopicPartition
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.planner import is_begun


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch.

    Attributes:
        phases_ms: where Spark spent it.
        ends: the end each partition's leader told last.
        reached: where its batch was to end; a task may have left something below (LeftUnread).
    """

    phases_ms: Mapping[str, int]
    ends: Mapping[TopicPartition, int]
    reached: Mapping[TopicPartition, int]

    def lag_offsets(self, left: Mapping[TopicPartition, int]) -> int:
        """Of what was listed, how much is not read yet; `left` is where tasks have stopped."""
        return sum(max(0, end - min(self.reached[p], left.get(p, end))) for p, end in self.ends.items())

    def furthest_behind(self, left: Mapping[TopicPartition, int]) -> int:
        """The most of it on one partition."""
        return max((end - min(self.reached[p], left.get(p, end)) for p, end in self.ends.items()), default=0)


def read_progress(progress: Mapping[str, Any] | None) -> Progress | None:
    """Spark's StreamingQueryProgress as a mapping, typed; None before the first micro-batch.

    Raises:
        CheckpointError: the offset was written by another version of the source.
    """
    if progress is None or not progress["sources"]:
        return None
    told = progress["sources"][0]["endOffset"]
    raw = json.loads(told) if isinstance(told, str) else told
    if not raw:
        return None
    positions = SourceOffset.from_json(raw).positions
    begun = {partition: at for partition, at in positions.items() if is_begun(at)}
    return Progress(
        phases_ms=dict(progress["durationMs"]),
        ends={partition: at.listed for partition, at in begun.items()},
        reached={partition: at.offset for partition, at in begun.items()},
    )
