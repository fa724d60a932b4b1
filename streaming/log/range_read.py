"""One range of one partition: what is still to be asked for, and how reading it went. Pure: asking is fetch.py's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition


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
        fold: what has been read, from where the log was whole last.
        earlier: what was read before that: below offsets that were lost.
        notices: what could not be read, or had to be taken back.
        absences: fresh metadata in a row that did not have the topic under this id.
        last_stable_offset: as the leader's last answer had it, -1 before there was one.
        size: bytes of records that leaders have sent.
        is_answered: whether a leader has answered without an error and without a truncation.
    """

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    last_epoch: int
    must_check: bool
    new_fold: Callable[[int, int], Fold]
    fold: Any = None
    earlier: list[Any] = field(default_factory=list)
    notices: list[PartitionNotice] = field(default_factory=list)
    is_over: bool = False
    absences: int = 0
    last_stable_offset: int = -1
    size: int = 0
    is_answered: bool = False
    _begin: int = field(init=False)

    def __post_init__(self) -> None:
        self._fold_from(self.start)
        if self.end < self.start:
            # It ends below what was read, but it may have been cut further down and grown again: the leader tells.
            self.must_check = True

    @property
    def needs_fetch(self) -> bool:
        """Whether anything is left to ask for."""
        return not self.is_over and (self.must_check or not self.fold.is_done)

    @property
    def place(self) -> tuple[int, bool, int]:
        """Changes with everything that an answer brings."""
        return self.fold.position, self.needs_fetch, len(self.notices)

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

    def gone(self) -> None:
        """The topic is not there any more under its id. Of the coordinator's log only the planner can tell so.

        What it listed of that log was not read, so it must not count as read.
        """
        if self.partition.topic == TRANSACTION_STATE_TOPIC:
            self.gap("the topic is gone, or another one has its name")
        else:
            self.notice(NoticeKind.DELETED, self.fold.position, self.end, "the topic is gone")
            self.is_over = True

    def leave(self) -> None:
        """Leaves the rest of the range for a later batch, because this one has read as much as it may."""
        self.notice(NoticeKind.LEFT, self.fold.position, self.end, "the batch had read as much as it may")
        self.is_over = True

    def lost(self, up_to: int, detail: str) -> None:
        """The log begins at `up_to` now. What was folded below is kept, and reading goes on there."""
        self.notice(NoticeKind.LOST, self.fold.position, up_to, detail)
        self.earlier.append(self.fold)
        self._fold_from(up_to)
        self.last_epoch = -1

    def truncated(self, to_offset: int, detail: str, epoch: int | None = None) -> None:
        """The log was cut at `to_offset`, which is what both logs have of `epoch`.

        What was folded from there on is void. What the same fold has from below is true, and is read again with what
        the log has now.
        """
        self.notice(NoticeKind.TRUNCATED, to_offset, max(self.start, self.fold.position), detail)
        if to_offset <= self._begin and epoch is not None:
            self.last_epoch = epoch
        self._fold_from(min(to_offset, self._begin))
        self.must_check = False

    def _fold_from(self, start: int) -> None:
        self._begin = start
        self.fold = self.new_fold(start, max(start, self.end))
