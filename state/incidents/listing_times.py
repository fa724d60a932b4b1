"""When the listings of the last barriers were made: an event has the times of both looks of its proof.

A candidate has the number of its first look and no time of it, because the state of a span keeps the number only. After
a restart between the looks the time is not known, and the event has null.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from txnwatch.state.model.findings import BucketCount, Finding
from txnwatch.state.model.values import BarrierNumber, TimestampMs

MOST: Final = 4_096  # at the default trigger, half an hour


class ListedAt(NamedTuple):
    """When the ends of a barrier were listed, by our clock; None if that is not known.

    Attributes:
        data_ms: those of the data partitions (D).
        log_ms: those of the coordinators' log (T).
    """

    data_ms: TimestampMs | None
    log_ms: TimestampMs | None


NOT_LISTED: Final = ListedAt(None, None)


@dataclass(slots=True)
class LookTimes:
    """The last barriers."""

    _times: dict[BarrierNumber, ListedAt] = field(default_factory=dict)

    def take(self, emitted: Iterable[Finding]) -> None:
        """Takes the barriers of a micro-batch; all buckets have the same one."""
        for finding in emitted:
            if isinstance(finding, BucketCount):
                listed_ms = finding.data_listed_ms
                self._times[finding.barrier] = ListedAt(listed_ms, listed_ms + finding.log_after_ms)
        while len(self._times) > MOST:
            del self._times[next(iter(self._times))]

    def of(self, barrier: BarrierNumber | None) -> ListedAt:
        """The times of a barrier."""
        return self._times.get(barrier, NOT_LISTED) if barrier is not None else NOT_LISTED
