"""Whether several clients use one transactional id, from the id's records in the coordinators' log.

A *takeover* is an InitProducerId that does not name the epoch of the open transaction, so the coordinator aborts that
transaction: another client does so, and an application that starts again after a crash. One takeover is usual, a series
of them is not. A client that continues after an error names its epoch (`EndCause.CLIENT_ASKED`): that is no takeover.

The log does not name the clients. So a series is of two clients at once, or of one that ends and starts again and
again. With transaction.version 2 the log cannot tell a takeover from a client that aborts and starts again.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from txnwatch.state.evidence.past_ends import EndCause, PastEnd
from txnwatch.state.model.transaction import CoordinatorView, TransactionState
from txnwatch.state.model.values import DurationMs, ProducerEpoch, TimestampMs, elapsed

FEWEST_TAKEOVERS: Final = 3
LONGEST_PAUSE_MS: Final = DurationMs(60_000)  # between two takeovers of a series
_CAUSES = frozenset({EndCause.FENCE, EndCause.CLIENT_OR_FENCE})


class Contention(NamedTuple):
    """The last series of takeovers of an id.

    Attributes:
        inits: how many InitProducerIds have got an epoch, from that of the first transaction that was taken over.
        aborted: how many transactions were taken over.
        first_ms: when the first transaction that was taken over began.
        last_ms: when the last epoch was given.
        is_proven: whether each transaction was aborted for an InitProducerId; else its client may have aborted some.
    """

    inits: int
    aborted: int
    first_ms: TimestampMs
    last_ms: TimestampMs
    first_epoch: ProducerEpoch
    last_epoch: ProducerEpoch
    is_proven: bool


def contention_of(records: Sequence[CoordinatorView | None], ends: Sequence[PastEnd]) -> Contention | None:
    """The last series of takeovers that the records of an id show; `ends` are their ends (`past_ends`)."""
    series = _last_series(list(_takeovers(ends)))
    if len(series) < FEWEST_TAKEOVERS:
        return None
    (first, _), (_, last) = series[0], series[-1]
    assert first.decided.start_ms is not None
    assert first.data_epoch is not None
    given = [
        one
        for one in records
        if one is not None
        and one.state is TransactionState.EMPTY
        and first.decided.start_ms < one.record_timestamp_ms <= last.record_timestamp_ms
    ]
    return Contention(
        inits=len(given) + 1,
        aborted=len(series),
        first_ms=first.decided.start_ms,
        last_ms=last.record_timestamp_ms,
        first_epoch=first.data_epoch,
        last_epoch=last.producer_epoch,
        is_proven=all(end.cause is EndCause.FENCE for end, _ in series),
    )


def _takeovers(ends: Sequence[PastEnd]) -> Iterator[tuple[PastEnd, CoordinatorView]]:
    """The ends before an InitProducerId that has got a higher epoch, each with the record of that."""
    for end in ends:
        after = end.after
        if end.cause not in _CAUSES or after is None or after.state is not TransactionState.EMPTY:
            continue
        if elapsed(end.decided.record_timestamp_ms, after.record_timestamp_ms) <= LONGEST_PAUSE_MS:
            yield end, after


def _last_series(takeovers: list[tuple[PastEnd, CoordinatorView]]) -> list[tuple[PastEnd, CoordinatorView]]:
    series: list[tuple[PastEnd, CoordinatorView]] = []
    for end, after in reversed(takeovers):
        next_ms = series[-1][0].decided.record_timestamp_ms if series else after.record_timestamp_ms
        if series and elapsed(after.record_timestamp_ms, next_ms) > LONGEST_PAUSE_MS:
            break
        series.append((end, after))
    return series[::-1]
