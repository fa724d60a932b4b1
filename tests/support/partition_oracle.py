"""A partition leader's transaction rules, batch by batch and without any cleverness: what the fold must agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from support.batches import a_batch, a_marker


class LeaderEntry(NamedTuple):
    """One batch of a random log."""

    kind: str
    offset: int
    count: int
    producer_id: int
    producer_epoch: int
    commit: bool = False

    @property
    def encoded(self) -> bytes:
        if self.kind == "marker":
            return a_marker(
                self.offset,
                commit=self.commit,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                timestamp=self.offset,
            )
        return a_batch(
            self.offset,
            count=self.count,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transactional=self.kind == "data",
            base_timestamp=self.offset,
        )

    @property
    def next_offset(self) -> int:
        return self.offset + self.count


@dataclass
class ModelLeader:
    """What a leader that appended these batches holds open: {producer id: (first offset, epoch)}.

    The rules of `ProducerAppendInfo` on replay: data opens or joins, another epoch keeps the first offset, a marker
    closes. tests/integration/test_producer_state_oracle.py asks the class itself.
    """

    open: dict[int, tuple[int, int]] = field(default_factory=dict)

    def append(self, entry: LeaderEntry) -> None:
        if entry.kind == "plain" or entry.producer_id < 0:
            return
        if entry.kind == "marker":
            self.open.pop(entry.producer_id, None)
            return
        start, _ = self.open.get(entry.producer_id, (entry.offset, 0))
        self.open[entry.producer_id] = (start, entry.producer_epoch)


def a_log(steps: list[tuple[str, int, int, int, bool]]) -> list[LeaderEntry]:
    """A log as leaders write it, from (kind, count, producer id, epoch step, commit)."""
    entries: list[LeaderEntry] = []
    offset = 0
    epochs: dict[int, int] = {}
    for kind, count, producer_id, epoch_step, commit in steps:
        # A leader refuses epochs that go back, unless it has forgotten the producer.
        epoch = epochs[producer_id] = max(0, epochs.get(producer_id, 0) + epoch_step)
        size = 1 if kind == "marker" else count
        entries.append(LeaderEntry(kind, offset, size, producer_id, epoch, commit))
        offset += size
    return entries
