"""The query's progress, from Spark's report after each micro-batch; the source's offset in it has all listed ends."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import DurationMs, Offset
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.planner import is_begun


@dataclass(frozen=True, slots=True)
class Progress:
    """The last micro-batch.

    Attributes:
        phases_ms: the duration of each of Spark's phases.
        ends: each partition's end in its leader's last answer.
        reached: each partition's planned end of the batch; a task may have stopped before it (ReadLimitReached).
    """

    phases_ms: Mapping[str, DurationMs]
    ends: Mapping[TopicPartition, Offset]
    reached: Mapping[TopicPartition, Offset]

    def lag_offsets(self, left: Mapping[TopicPartition, Offset]) -> int:
        """How many listed offsets are not read yet; `left` has the offsets where tasks stopped."""
        return sum(max(0, end - min(self.reached[p], left.get(p, end))) for p, end in self.ends.items())

    def furthest_behind(self, left: Mapping[TopicPartition, Offset]) -> int:
        """The same number, of the partition that is furthest behind."""
        return max((end - min(self.reached[p], left.get(p, end)) for p, end in self.ends.items()), default=0)


def read_progress(progress: Mapping[str, Any] | None) -> Progress | None:
    """Parses Spark's StreamingQueryProgress, given as a mapping; None before the first micro-batch.

    Raises:
        OtherVersionError: the offset was written by another version of the source.
    """
    if progress is None or not progress["sources"]:
        return None
    end_offset = progress["sources"][0]["endOffset"]
    raw = json.loads(end_offset) if isinstance(end_offset, str) else end_offset
    if not raw:
        return None
    positions = SourceOffset.from_json(raw).positions
    begun = {partition: at for partition, at in positions.items() if is_begun(at)}
    return Progress(
        phases_ms=dict(progress["durationMs"]),
        ends={partition: at.listed for partition, at in begun.items()},
        reached={partition: at.offset for partition, at in begun.items()},
    )
