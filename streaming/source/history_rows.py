"""Rows of a batch query for episodes: one for each transaction that ended, and one for each range that was not read.

A batch query is not repeated. So its result also lists the missing parts: a partition without a leader, and a range
that retention removed, that was truncated, or that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.source.fact_rows import EPISODE, Row, notice_row
from txnwatch.streaming.source.offsets import SourceOffset, is_data


def unlisted(end: SourceOffset) -> tuple[PartitionNotice, ...]:
    """Notices for partitions whose leader did not answer during planning. Nothing of them is read."""
    detail = "its leader did not answer: the partition is not read"
    return tuple(
        PartitionNotice(NoticeKind.GAP, partition, at.topic_id, 0, 0, detail)
        for partition, at in sorted(end.positions.items())
        if at.is_stale
    )


def episode_rows(reads: Iterable[RangeRead], missing: Iterable[PartitionNotice]) -> Iterator[Row]:
    """The rows of one task."""
    for notice in missing:
        if is_data(notice.partition):
            yield notice_row(notice)
    for read in reads:
        if not is_data(read.partition):
            continue
        for fold in (*read.earlier, read.fold):
            yield from _ended(read, fold)
        for notice in read.notices:
            yield notice_row(notice)


def _ended(read: RangeRead, fold: PartitionFold) -> Iterator[Row]:
    for episode in fold.episodes:
        yield {
            "kind": EPISODE,
            "topic": read.partition.topic,
            "partition": read.partition.partition,
            "topic_id": read.topic_id,
            "producer_id": episode.producer_id,
            "producer_epoch": episode.producer_epoch,
            "txn_start_offset": episode.start_offset,
            "last_offset": episode.last_offset,
            "last_timestamp_ms": episode.last_timestamp_ms,
            "last_marker_offset": episode.marker.offset,
            "last_marker_epoch": episode.marker.producer_epoch,
            "last_marker_commit": episode.marker.commit,
            "last_marker_coordinator_epoch": episode.marker.coordinator_epoch,
            "last_marker_timestamp_ms": episode.marker.timestamp_ms,
        }
