"""Rows of a batch query for episodes: one for each transaction that ended, and one for each range that was not read.

A batch query is not repeated. So its result also lists the missing parts: a partition without a leader, and a range
that retention removed, that was truncated, or that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import FIRST_OFFSET
from txnwatch.state.model.record import Variant
from txnwatch.streaming.log.partition_fold import Episode
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.source.offsets import SourceOffset, is_data
from txnwatch.streaming.source.row_format import Row, RowFormat, row_of


class FinishedTransaction(Variant, frozen=True):
    """One transaction on one partition, with its marker.

    Attributes:
        episode: the transaction.
    """

    partition: TopicPartition
    topic_id: str
    episode: Episode


HISTORY: Final = RowFormat(FinishedTransaction | PartitionNotice)


def unlisted(end: SourceOffset) -> tuple[PartitionNotice, ...]:
    """Notices for partitions whose leader did not answer during planning. Nothing of them is read."""
    detail = "its leader did not answer: the partition is not read"
    return tuple(
        PartitionNotice(NoticeKind.GAP, partition, at.topic_id, FIRST_OFFSET, FIRST_OFFSET, detail)
        for partition, at in sorted(end.positions.items())
        if at.is_stale
    )


def episode_rows(reads: Iterable[RangeRead], missing: Iterable[PartitionNotice]) -> Iterator[Row]:
    """The rows of one task."""
    for notice in missing:
        if is_data(notice.partition):
            yield row_of(notice)
    for read in reads:
        if not is_data(read.partition):
            continue
        for fold in (*read.earlier, read.fold):
            for episode in fold.episodes:
                yield row_of(FinishedTransaction(read.partition, read.topic_id, episode))
        for notice in read.notices:
            yield row_of(notice)
