"""What the job asks its source for after a batch: ranges to read again, partitions to describe. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from txnwatch.state.detection.open_transactions import UNOWNED
from txnwatch.state.model.findings import (
    BlockedOffset,
    CensusReason,
    CensusRequest,
    Finding,
    OpenTransactions,
    OutstandingGap,
    ReadLimitReached,
)
from txnwatch.state.model.gap import Remedy
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import Offset
from txnwatch.streaming.source.offsets import is_data


class RereadRequest(NamedTuple):
    """One request to the source. A batch may both read a partition again and describe it.

    Attributes:
        start: the offset to read again from. None: describe a data partition, or read a whole coordinator partition
            again.
        why: the reason for a census. Each reason has its own backoff.
    """

    partition: TopicPartition
    start: Offset | None
    why: CensusReason | None = None


def census_of(partition: TopicPartition, why: CensusReason) -> RereadRequest:
    """A request for a census of a partition."""
    return RereadRequest(partition, None, why)


def requests_after(emitted: Collection[Finding], doubted: Iterable[TopicPartition]) -> set[RereadRequest]:
    """The requests after a batch: gaps to read again, and partitions to describe.

    `emitted` has the open transactions of every bucket, including those emitted in earlier batches. `doubted` are
    partitions whose leader contradicted a candidate: the leader must describe them again.
    """
    requests = {census_of(partition, CensusReason.DOUBT) for partition in doubted}
    requests.update(census_of(partition, CensusReason.STANDING) for partition in _held_by_nobody_known(emitted))
    unread: dict[TopicPartition, Offset] = {}
    for finding in emitted:
        if isinstance(finding, CensusRequest):
            requests.add(census_of(finding.partition, finding.why))
        elif isinstance(finding, OutstandingGap | ReadLimitReached):
            start = finding.gap if isinstance(finding, OutstandingGap) else finding.from_offset
            if isinstance(start, Remedy):
                why = CensusReason.GAP if is_data(finding.partition) else None
                requests.add(RereadRequest(finding.partition, None, why))
            else:
                unread[finding.partition] = min(start, unread.get(finding.partition, start))
    return requests | {RereadRequest(partition, start) for partition, start in unread.items()}


def _held_by_nobody_known(emitted: Collection[Finding]) -> Iterator[TopicPartition]:
    """Partitions whose last stable offset does not move, and where no known transaction with an owner begins.

    If a known transaction with an owner begins there, it holds the offset: no two transactions begin at one offset. A
    census would only show it again, and transactions above it that hold nothing yet.
    """
    open_lists = [finding for finding in emitted if isinstance(finding, OpenTransactions)]
    blocked = {offset for open_list in open_lists for offset in open_list.blocked}
    if not blocked:
        return
    owned = {
        BlockedOffset(span.partition, span.start_offset)
        for open_list in open_lists
        for transaction in open_list.transactions
        if transaction.state != UNOWNED
        for span in transaction.spans
    }
    for offset in sorted(blocked - owned):
        yield offset.partition
