"""One partition as the detector sees it: folded range by range and joined in a bucket's state, as in the job.

Law: only the product decides (PartitionFold, bucket.process); this is what source, planner and reader do around it.
A range that could not be read is a gap, and reading goes back to it. After a truncation a census shows what is open.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from support.facts import DictStore
from txnwatch.state.detection import bucket
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import (
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
)
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.log import partition_fold as fold

PARTITION = TopicPartition("orders", 0)
TOPIC_ID = "orders-id"
_POLICY = DetectionPolicy()
_OFFSET = struct.Struct(">q")


class Appended(NamedTuple):
    """A batch in the log, as a Fetch would bring it."""

    encoded: bytes
    next_offset: int

    @classmethod
    def at(cls, encoded: bytes, offset: int, next_offset: int) -> Appended:
        """The batch with the offset the leader gave it, which no checksum covers."""
        return cls(_OFFSET.pack(offset) + encoded[_OFFSET.size :], next_offset)


@dataclass
class LogWatcher:
    """What the state knows of a log; reading is at `position`, and `gap` is where it has to go back to."""

    position: int = 0
    gap: int | None = None
    number: int = 0
    store: DictStore = field(default_factory=DictStore)
    shared: BucketState = field(default_factory=BucketState)

    def read(self, log: Sequence[Appended], end: int) -> None:
        """Reads on to `end`."""
        self._batch(self._facts(log, self.position, end))
        self.position = end

    def go_back(self, log: Sequence[Appended], start: int, end: int) -> None:
        """Reads again from `start`, which lies at or before the gap, to `end`."""
        self._batch(self._facts(log, start, end), reread={PARTITION: start})
        self.position, self.gap = end, None

    def miss(self, end: int) -> None:
        """Cannot read on to `end` for now."""
        self.gap = self.position if self.gap is None else self.gap
        self._batch([self._notice(NoticeKind.GAP, self.position, end)])
        self.position = end

    def truncated(self, end: int, last_stable_offset: int, held: Mapping[int, tuple[int, int]]) -> None:
        """The log has been cut at `end`, where reading had been beyond it; `held` is what the leader has open."""
        self._batch([self._notice(NoticeKind.TRUNCATED, end, self.position)])
        self.census(end, last_stable_offset, held)
        self.census(end, last_stable_offset, held)
        self._batch([])
        self.position, self.gap = end, None

    def census(self, end: int, last_stable_offset: int, held: Mapping[int, tuple[int, int]]) -> None:
        """The leader describes {producer id: (start offset, epoch)} of what it has open."""
        self._batch(
            [
                CensusTaken({PARTITION: CensusListing(TOPIC_ID, end, last_stable_offset, is_scanned=True)}),
                *(
                    OpenDescribed(PARTITION, producer_id, epoch, start, self.number, self.number)
                    for producer_id, (start, epoch) in held.items()
                    if start < end
                ),
            ]
        )

    def _notice(self, kind: NoticeKind, start: int, end: int) -> PartitionNotice:
        return PartitionNotice(kind, PARTITION, TOPIC_ID, start, end, "made by a test")

    def _facts(self, log: Sequence[Appended], start: int, end: int) -> list[Fact]:
        folded = fold.PartitionFold(start, end)
        folded.feed(b"".join([batch.encoded for batch in log if batch.next_offset > start]))
        return list(folded.facts(PARTITION, TOPIC_ID, self.number))

    def _batch(self, facts: list[Fact], **exceptions: dict[TopicPartition, int]) -> None:
        self.number += 1
        barrier = Barrier(self.number, self.number, self.number, **exceptions)  # type: ignore[arg-type]
        bucket.process(self.shared, self.store, [*facts, barrier], _POLICY, reports_partitions=True)

    @property
    def open(self) -> dict[int, tuple[int, int]]:
        """{producer id: (start offset, epoch)} of everything open."""
        found = {}
        for producer_id in self.shared.agenda:
            producer = self.store.get(producer_id)
            span = producer.spans.get(PARTITION) if producer is not None else None
            if span is not None:
                found[producer_id] = span.start_offset, span.epoch
        return found
