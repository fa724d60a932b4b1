"""Whether several clients use one transactional id, from the id's records in the coordinators' log.

A *takeover* is an InitProducerId that does not name the epoch of the open transaction, so the coordinator aborts that
transaction: another client does so, and an application that starts again after a crash. One takeover is usual, a series
of them is not.

The log does not name the clients. So a series is of two clients at once, or of one that ends and starts again and
again. With transaction.version 2 the log cannot tell a takeover from a client that aborts and starts again.

A client that continues after an error gets a new epoch, too, and this is no takeover. It names its epoch, and the
coordinator aborts the open transaction (`EndCause.CLIENT_ASKED`); or it aborts the transaction first, and then asks
(librdkafka since 2.0). Then the log does not tell it from a client that aborts, ends and starts again. Three of them in
a row are a series as well: something goes wrong there again and again.

Pure: no I/O, no clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from txnwatch.state.evidence.past_ends import EndCause, PastEnd
from txnwatch.state.model.transaction import CoordinatorView, TransactionState
from txnwatch.state.model.values import DurationMs, ProducerEpoch, TimestampMs, elapsed

FEWEST_TAKEOVERS: Final = 3
LONGEST_PAUSE_MS: Final = DurationMs(60_000)  # between two takeovers of a series


class SeriesOf(StrEnum):
    """Whose InitProducerIds a series is of, as far as the log shows it."""

    TAKEOVERS = "takeovers"
    OWN = "own"
    EITHER = "either"


_CAUSES: Final = {
    EndCause.FENCE: SeriesOf.TAKEOVERS,
    EndCause.CLIENT_OR_FENCE: SeriesOf.EITHER,
    EndCause.CLIENT: SeriesOf.OWN,
    EndCause.CLIENT_ASKED: SeriesOf.OWN,
}


class Contention(NamedTuple):
    """The last series of aborted transactions of an id, each with an InitProducerId behind it.

    Attributes:
        inits: how many InitProducerIds have got an epoch, from that of the first of these transactions.
        aborted: how many transactions were aborted.
        first_ms: when the first of them began.
        last_ms: when the last epoch was given.
        of: whose InitProducerIds they are, if it is the same for all; else EITHER.
    """

    inits: int
    aborted: int
    first_ms: TimestampMs
    last_ms: TimestampMs
    first_epoch: ProducerEpoch
    last_epoch: ProducerEpoch
    of: SeriesOf


def contention_of(records: Sequence[CoordinatorView | None], ends: Sequence[PastEnd]) -> Contention | None:
    """The last series that the records of an id show; `ends` are their ends (`past_ends`)."""
    series = _last_series(list(_takeovers(ends)))
    if len(series) < FEWEST_TAKEOVERS:
        return None
    (first, _), (_, last) = series[0], series[-1]
    assert first.decided.start_ms is not None
    assert first.data_epoch is not None
    kinds = {_CAUSES[end.cause] for end, _ in series}
    given = [
        record
        for record in records
        if record is not None
        and record.state is TransactionState.EMPTY
        and first.decided.start_ms < record.record_timestamp_ms <= last.record_timestamp_ms
    ]
    return Contention(
        inits=len(given) + 1,
        aborted=len(series),
        first_ms=first.decided.start_ms,
        last_ms=last.record_timestamp_ms,
        first_epoch=first.data_epoch,
        last_epoch=last.producer_epoch,
        of=kinds.pop() if len(kinds) == 1 else SeriesOf.EITHER,
    )


def _takeovers(ends: Sequence[PastEnd]) -> Iterator[tuple[PastEnd, CoordinatorView]]:
    """The ends before an InitProducerId that has got a higher epoch, each with the record of that."""
    for end in ends:
        after = end.after
        is_wanted = end.cause in _CAUSES and not end.is_commit
        if not is_wanted or after is None or after.state is not TransactionState.EMPTY:
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
