"""Which requests of the job are due, with growing pauses between repeats, counted in barriers. Pure: no I/O, no clock.

A request is repeated in every batch until its gap is closed. It is granted at once, then after twice as many barriers
each time. A request for a partition that did not answer was not executed, so it stays due. A pause is forgotten when no
request names the partition. That of a last stable offset is kept until it has not been used for a while: the offset
stops again and again, and moves in between. So a census for another holder comes at most LONGEST_PAUSE barriers later.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.findings import CensusReason
from txnwatch.state.model.ids import BarrierNumber, TopicPartition
from txnwatch.state.model.quantities import FIRST_OFFSET, Offset
from txnwatch.streaming.source.offsets import SourceOffset, is_data
from txnwatch.streaming.source.reread_requests import RereadRequest

LONGEST_PAUSE: Final = 64


class GrantedRequests:
    """The requests that were granted before, with the barrier at which each is due again."""

    def __init__(self) -> None:
        self._granted: dict[RereadRequest, tuple[BarrierNumber, int]] = {}

    def __len__(self) -> int:
        return len(self._granted)

    def due(self, previous: SourceOffset, requests: set[RereadRequest]) -> set[RereadRequest]:
        """The requests whose pause has passed."""
        return {request for request in requests if previous.barrier >= self._granted.get(request, (0, 0))[0]}

    def count(self, following: SourceOffset, granted: set[RereadRequest], requests: set[RereadRequest]) -> None:
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
