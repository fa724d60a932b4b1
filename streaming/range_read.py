"""One range of one partition: what is still to be asked for, and how reading it went. Pure: asking is fetch.py's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from txnwatch.state.facts import NoticeKind, PartitionNotice
from txnwatch.state.ids import TopicPartition


class Fold(Protocol):
    """What walks the bytes of one range."""

    position: int
    leader_epoch: int

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been walked."""

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response."""


@dataclass(slots=True)
class RangeRead:
    """One range [start, end) of one partition, and how reading it went.

    Attributes:
        last_epoch: leader epoch of what was read before `start`; -1 if unknown, then no divergence is looked for.
        must_check: ask the leader once even if the range is empty, because its epoch has risen.
        new_fold: makes the fold for a (start, end).
        notices: what could not be read, or had to be taken back.
        absences: fresh metadata in a row that did not have the topic under this id.
        last_stable_offset: as the leader's last answer had it, -1 before there was one.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    last_epoch: int
    must_check: bool
    new_fold: Callable[[int, int], Fold]
    fold: Any = None
    notices: list[PartitionNotice] = field(default_factory=list)
    is_over: bool = False
    absences: int = 0
    last_stable_offset: int = -1

    def __post_init__(self) -> None:
        self.fold = self.new_fold(self.start, self.end)
        if self.end < self.start:
            # It ends below what was read, but it may have been cut further down and grown again: the leader tells.
            self.must_check = True

    @property
    def needs_fetch(self) -> bool:
        """Whether anything is left to ask for."""
        return not self.is_over and (self.must_check or not self.fold.is_done)

    def notice(self, kind: NoticeKind, start: int, end: int, detail: str) -> None:
        """Reports something about the partition."""
        self.notices.append(PartitionNotice(kind, self.partition, self.topic_id, start, end, detail))

    def gap(self, detail: str) -> None:
        """Gives up on the rest of the range for now.

        Where the leader has changed and nobody has told whether the log was cut, what was read before is in doubt
        too: reading the same range again could not see that, only a reading from as far back as it takes.
        """
        kind = NoticeKind.LOST if self.must_check else NoticeKind.GAP
        self.notice(kind, self.fold.position, self.end, detail)
        self.is_over = True

    def truncated(self, to_offset: int, detail: str) -> None:
        """The log was cut at `to_offset`: what was folded from there on is void and is read again."""
        self.notice(NoticeKind.TRUNCATED, to_offset, self.start, detail)
        self.fold = self.new_fold(to_offset, max(to_offset, self.end))
        self.must_check = False
