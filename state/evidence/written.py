"""When the data of a hang was written: by the clock of its client, within what the brokers' clocks allow.

The timestamp of a record is its client's. It can be 0, or in seconds, or the time of an event of last year, or that of
a clock that is set wrong. So an age by it alone can be 57 years. Two timestamps of brokers come before the data: that
of the producer's last marker below it in its partition, and that of the InitProducerId that gave out its epoch, if
nothing has begun under that epoch since.

Pure: no I/O, no clock. Law: no decision rests on such a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from txnwatch.state.evidence.confirmation import SpanConfirmation
from txnwatch.state.model.findings import SpanCandidate
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import DurationMs, TimestampMs

FIRST_TRANSACTIONS_MS: Final = TimestampMs(1_498_608_000_000)  # the release of Kafka 0.11, 28 June 2017
_TOLERANCE_MS: Final = DurationMs(3_600_000)  # of two clocks that nobody calls wrong


class Written(NamedTuple):
    """When it was written.

    Attributes:
        stamp_ms: by its client's clock; None if its last batch has no timestamp.
        after_ms: a time by a broker's clock before which it was not written; None if the logs show none.
    """

    stamp_ms: TimestampMs | None
    after_ms: TimestampMs | None

    @property
    def is_impossible(self) -> bool:
        """Whether the timestamp of its client cannot be when it was written."""
        earliest_ms = FIRST_TRANSACTIONS_MS if self.after_ms is None else self.after_ms - _TOLERANCE_MS
        return self.stamp_ms is not None and self.stamp_ms < earliest_ms

    def at_ms(self, now_ms: TimestampMs) -> TimestampMs | None:
        """The time to count an age from, which is then never larger than the logs allow; None if nothing shows one."""
        if self.stamp_ms is None or (self.is_impossible and self.after_ms is None):
            return None
        return min(self.stamp_ms if self.after_ms is None else max(self.stamp_ms, self.after_ms), now_ms)


def written(candidate: SpanCandidate, confirmation: SpanConfirmation) -> Written:
    """When the open data of a confirmed hang was last written."""
    stamp_ms = confirmation.producer.last_timestamp_ms if confirmation.producer is not None else None
    view, marker = candidate.view, confirmation.history.last_marker
    before = [marker.timestamp_ms] if marker is not None else []
    if view is not None and view.state is TransactionState.EMPTY and view.producer_epoch == candidate.span.epoch:
        before.append(view.record_timestamp_ms)
    return Written(stamp_ms, max(before, default=None))
