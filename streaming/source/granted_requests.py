"""Which requests of the job are due, with growing pauses between repeats, counted in barriers. Pure: no I/O, no clock.

A request is repeated in every batch until its gap is closed. It is granted at once, then after twice as many barriers
each time. A request for a partition that did not answer was not executed, so it stays due. A pause is forgotten when no
request names the partition. That of a last stable offset is kept until it has not been used for a while: the offset
stops again and again, and moves in between. So a census for another holder comes at most LONGEST_PAUSE barriers later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

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
from txnwatch.state.model.values import FIRST_OFFSET, BarrierNumber, Offset, Remedy, TopicPartition, doubled, is_data
from txnwatch.streaming.source.offsets import SourceOffset

# What the job asks its source for after a batch: ranges to read again, partitions to describe. Pure: no I/O.


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


LONGEST_PAUSE: Final = 64


class GrantedRequests:
    """The requests that were granted before, with the barrier at which each is due again."""

    def __init__(self) -> None:
        self._granted: dict[RereadRequest, tuple[BarrierNumber, int]] = {}

    def __len__(self) -> int:
        return len(self._granted)

    def due(self, previous: SourceOffset, requests: Collection[RereadRequest]) -> set[RereadRequest]:
        """The requests whose pause has passed."""
        return {request for request in requests if previous.barrier >= self._granted.get(request, (0, 0))[0]}

    def count(self, following: SourceOffset, granted: set[RereadRequest], requests: Collection[RereadRequest]) -> None:
        """Doubles the pauses of the granted requests; forgets those that are no longer needed."""
        number = following.barrier - 1
        for request in granted:
            at = following.positions.get(request.partition)
            if at is None or not at.is_stale:
                times = self._granted[request][1] + 1 if request in self._granted else 0
                due = BarrierNumber(number + doubled(1, LONGEST_PAUSE, times))
                self._granted[request] = (due, times)
        partitions = {request.partition for request in requests}
        self._granted = {
            request: (due, times)
            for request, (due, times) in self._granted.items()
            if (request.partition in partitions or request.why is CensusReason.STANDING)
            and number < due + LONGEST_PAUSE
        }


def is_of_census(request: RereadRequest) -> bool:
    """Whether the request asks for a census, and not for a range of a log."""
    return request.start is None and is_data(request.partition)


def to_describe(requests: Iterable[RereadRequest], previous: SourceOffset) -> set[TopicPartition]:
    """Partitions to describe that are not listed. They are participants of a transaction, and may be hidden."""
    return {request.partition for request in requests if is_of_census(request)} - previous.positions.keys()


def to_read_again(requests: Iterable[RereadRequest]) -> dict[TopicPartition, Offset]:
    """Where to read again from: a whole coordinator partition from its beginning, a data partition from a gap."""
    found: dict[TopicPartition, Offset] = {}
    for request in requests:
        if not is_of_census(request):
            start = request.start or FIRST_OFFSET
            found[request.partition] = min(start, found.get(request.partition, start))
    return found
