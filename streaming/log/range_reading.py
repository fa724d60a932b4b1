"""A range of a log: where it is, what is left to fetch, and how the read went. Pure: fetch.py does the I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    LeaderEpoch,
    ModelValue,
    Offset,
    TopicPartition,
    is_log,
)
from txnwatch.streaming.wire.record_batch import NO_END


class Range(ModelValue, frozen=True):
    """A range [start, end) of the log of one partition. An end below the start means that the log was truncated.

    With NO_END it ends where the log ended when its leader first sent records of it.

    For `__transaction_state`: records below `backlog_end` existed before reading began or restarted. `is_first` marks
    the beginning of a first reading, when nothing of the partition is known: of the existing records, only live
    transactions are passed on. `is_tail` marks a range of new records that continues at the last end: compaction does
    not reach them unless reading is late.

    Attributes:
        last_epoch: leader epoch of what was read before `start`; None if unknown, then divergence cannot be detected.
        must_check: ask the leader once even if the range is empty, because another leader may have another log.
        listed_epoch: the leader epoch of the last listing to whose end the partition was read before this range; None
            if there was none.
        end_epoch: the leader epoch under which the end was listed. A broker that knows only an older one must not
            answer. None for a range that was not listed by epoch.
        is_recheck: the range is the last offset that was read. It is read again to see whether the leader has the same
            batch there (LastBatch).
    """

    partition: TopicPartition
    topic_id: str
    start: Offset
    end: Offset
    last_epoch: LeaderEpoch | None = None
    must_check: bool = False
    backlog_end: Offset = FIRST_OFFSET
    is_first: bool = False
    is_tail: bool = False
    listed_epoch: LeaderEpoch | None = None
    end_epoch: LeaderEpoch | None = None
    is_recheck: bool = False

    @property
    def is_history(self) -> bool:
        """Whether it is the beginning of a first reading, and all its records existed before."""
        return self.is_first and is_log(self.partition) and self.end <= self.backlog_end

    def part(self, start: Offset = FIRST_OFFSET, end: Offset | None = None) -> Range:
        """What the range has of [start, end)."""
        last = self.end if end is None else min(end, self.end)
        return Range(self.partition, self.topic_id, min(max(start, self.start), last), last)


class Fold(Protocol):
    """A consumer of the bytes of one range.

    Attributes:
        reads_records: whether it reads records of data batches, and not headers and markers only.
    """

    position: Offset
    end: Offset
    reads_records: bool

    @property
    def last_epoch(self) -> LeaderEpoch | None:
        """Leader epoch of the last batch; None before the first."""

    @property
    def is_done(self) -> bool:
        """Whether the whole range has been walked."""

    def feed(self, buffer: memoryview | bytes) -> None:
        """Walks the `records` of one Fetch response."""


F_co = TypeVar("F_co", bound=Fold, covariant=True)


@dataclass(slots=True)
class RangeReading(Generic[F_co]):
    """One range, and how reading it went; the type of its folds is that of `new_fold`.

    Attributes:
        new_fold: makes the fold for a (start, end).
        last_epoch, must_check: see Range; both change while the range is read.
        fold: what has been read since offsets were lost last.
        earlier: the folds of what was read before lost offsets.
        notices: what could not be read, or is void after a truncation.
        absences: how many times in a row fresh metadata did not have the topic under this id.
        last_stable_offset: from the last answer; None before the first one.
        size: bytes of records that brokers have sent.
        is_answered: whether a broker has answered without an error and without a truncation; a follower, with progress.
        is_denied: whether a leader has refused the read, because a right is missing.
        follower_lacks: whether a follower did not have the rest of the range.
        is_led_anew: whether a leader of another epoch than the listed one has answered, where a leader that restarts
            may keep its epoch.
    """

    wanted: Range
    new_fold: Callable[[Offset, Offset], F_co]
    last_epoch: LeaderEpoch | None = field(init=False)
    must_check: bool = field(init=False)
    fold: F_co = field(init=False)
    earlier: list[F_co] = field(default_factory=list)
    notices: list[PartitionNotice] = field(default_factory=list)
    is_over: bool = False
    absences: int = 0
    last_stable_offset: Offset | None = None
    size: int = 0
    is_answered: bool = False
    is_denied: bool = False
    follower_lacks: bool = False
    is_led_anew: bool = False
    _begin: Offset = field(init=False)

    def __post_init__(self) -> None:
        self._fold_from(self.start)
        self.last_epoch = self.wanted.last_epoch
        # A log that ends below what was read may have been truncated further down and grown again: ask the leader.
        self.must_check = self.wanted.must_check or self.end < self.start

    @property
    def partition(self) -> TopicPartition:
        """The partition of the range."""
        return self.wanted.partition

    @property
    def topic_id(self) -> str:
        """The topic id of the range."""
        return self.wanted.topic_id

    @property
    def start(self) -> Offset:
        """The first offset of the range."""
        return self.wanted.start

    @property
    def end(self) -> Offset:
        """The offset behind the range."""
        return self.wanted.end

    @property
    def needs_fetch(self) -> bool:
        """Whether anything is left to fetch."""
        return not self.is_over and (self.must_check or not self.fold.is_done)

    @property
    def last_fetched_epoch(self) -> LeaderEpoch | None:
        """Leader epoch of the last batch that was read; None if unknown."""
        epoch = self.fold.last_epoch
        return self.last_epoch if epoch is None else epoch

    @property
    def youngest_epoch(self) -> LeaderEpoch | None:
        """The lowest leader epoch of batches that are certainly younger than the last listing of the range's start.

        A leader appends above what it has listed. But where it may have lost that tail and kept its epoch, a replica
        that leads later may have the tail, of the same epoch.
        """
        listed = self.wanted.listed_epoch
        return LeaderEpoch(listed + 1) if listed is not None and self.is_led_anew else listed

    @property
    def place(self) -> tuple[Offset, bool, int, bool]:
        """A value that changes with every answer that makes progress, and when the leader is asked instead."""
        return self.fold.position, self.needs_fetch, len(self.notices), self.follower_lacks

    def saw_end(self, high_watermark: Offset | None) -> None:
        """The leader's log ends there; from its first answer on, so does a range whose end was not given."""
        if self.end == NO_END and high_watermark is not None:
            self.wanted = replace(self.wanted, end=high_watermark)
            self.fold.end = high_watermark

    def notice(
        self, kind: NoticeKind, start: Offset, end: Offset, detail: str, *, is_decode_failure: bool = False
    ) -> None:
        """Adds a notice about the partition."""
        notice = PartitionNotice(kind, self.partition, self.topic_id, start, end, detail, is_decode_failure)
        self.notices.append(notice)

    def gap(self, detail: str, *, is_decode_failure: bool = False) -> None:
        """Gives up the rest of the range for now.

        If the leader has changed and no answer has shown whether the log was truncated, what was read before is in
        doubt too. Then the notice is LOST and not GAP: reading the same range again could not show a truncation. Only a
        read from far enough back can.
        """
        kind = NoticeKind.LOST if self.must_check else NoticeKind.GAP
        self.notice(kind, self.fold.position, self.end, detail, is_decode_failure=is_decode_failure)
        self.is_over = True

    def gone(self) -> None:
        """Reports that the topic no longer exists under its id; of the coordinator's log only the planner may do so.

        The planner has listed offsets of that log that were not read here, so they must not count as read: they are a
        gap.
        """
        if is_log(self.partition):
            self.gap("the topic was deleted or re-created")
        else:
            self.notice(NoticeKind.DELETED, self.fold.position, self.end, "the topic was deleted or re-created")
            self.is_over = True

    def leave(self) -> None:
        """Leaves the rest of the range to a later batch, because this batch has read as much as it may."""
        self.notice(NoticeKind.LEFT, self.fold.position, self.end, "the batch reached its read limit")
        self.is_over = True

    def lost(self, up_to: Offset, detail: str) -> None:
        """Handles a log that now begins at `up_to`. The fold below is kept, and reading continues at `up_to`."""
        self.notice(NoticeKind.LOST, self.fold.position, up_to, detail)
        self.earlier.append(self.fold)
        self._fold_from(up_to)
        self.last_epoch = None

    def truncated(self, to_offset: Offset, detail: str, epoch: LeaderEpoch | None = None) -> None:
        """Handles a log that was truncated at `to_offset`; `epoch`, if known, is the largest one that both logs have.

        What was folded from there on is void. What the same fold has from below is still true, but is read again
        together with what the log has now.
        """
        self.notice(NoticeKind.TRUNCATED, to_offset, max(self.start, self.fold.position), detail)
        if to_offset <= self._begin and epoch is not None:
            self.last_epoch = epoch
        self._fold_from(min(to_offset, self._begin))
        self.must_check = False

    def replaced(self, detail: str, epoch: LeaderEpoch) -> None:
        """Handles a leader that has a log of its own from somewhere below: all that was read is in doubt."""
        self.truncated(self._begin, detail, epoch)

    def _fold_from(self, start: Offset) -> None:
        self._begin = start
        self.fold = self.new_fold(start, max(start, self.end))
