"""A series of takeovers: two clients use one id, or one starts again and again; all else is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import PRODUCER
from txnwatch.state.evidence.contention import FEWEST_TAKEOVERS, LONGEST_PAUSE_MS, Contention, SeriesOf, contention_of
from txnwatch.state.evidence.past_ends import past_ends
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

START_MS, STEP_MS = 1_000_000, 1_100
VALUE = TransactionLogValue(1, PRODUCER, 0, 600_000, S.EMPTY, None, 0, None)
Log = list[tuple[int, TransactionLogValue]]


def given(epoch: int, at_ms: int) -> tuple[int, TransactionLogValue]:
    return at_ms, replace(VALUE, producer_epoch=epoch, last_update_ms=at_ms)


def transaction(epoch: int, at_ms: int, *, version: int = 0, raised: int = 1, state: S = S.PREPARE_ABORT) -> Log:
    """A transaction of one second and how it ended."""
    begun = replace(
        VALUE,
        producer_epoch=epoch,
        state=S.ONGOING,
        partitions=(("orders", (0,)),),
        start_ms=at_ms,
        client_transaction_version=version,
        last_update_ms=at_ms,
    )
    complete = S.COMPLETE_ABORT if state is S.PREPARE_ABORT else S.COMPLETE_COMMIT
    ended = replace(begun, producer_epoch=epoch + raised, state=state)
    return [
        (at_ms, begun),
        (at_ms + 1_000, ended),
        (at_ms + 1_005, replace(ended, state=complete, partitions=())),
    ]


def storm(
    takeovers: int, *, first_ms: int = START_MS, pause_ms: int = STEP_MS, version: int = 0, asked: int = 2
) -> Log:
    """Each transaction is aborted for the next InitProducerId, and the last one is open."""
    log: Log = [given(0, first_ms - 1)]
    at_ms, epoch = first_ms, 0
    for _ in range(takeovers):
        log += transaction(epoch, at_ms, version=version)
        epoch += asked
        at_ms += pause_ms
        log.append(given(epoch, at_ms - 1))
    return [*log, transaction(epoch, at_ms, version=version)[0]]


def found(log: Log) -> Contention | None:
    records = history_of(
        LogRecord(0, offset, at_ms, "app", value, 0) for offset, (at_ms, value) in enumerate(log) if value is not None
    )
    return contention_of(records, past_ends(records))


def test_a_storm_is_counted_from_its_first_transaction() -> None:
    assert found(storm(11)) == Contention(
        inits=12,
        aborted=11,
        first_ms=START_MS,
        last_ms=START_MS + 11 * STEP_MS - 1,
        first_epoch=0,
        last_epoch=22,
        of=SeriesOf.TAKEOVERS,
    )


def test_the_client_may_have_aborted_if_its_abort_raises_the_epoch_too() -> None:
    contention = found(storm(4, version=2))
    assert contention is not None
    assert (contention.aborted, contention.of) == (4, SeriesOf.EITHER)


def test_one_takeover_that_is_not_proven_makes_the_series_so() -> None:
    log = storm(3)[:-1] + storm(2, first_ms=START_MS + 10 * STEP_MS, version=2)
    contention = found(log)
    assert contention is not None
    assert (contention.aborted, contention.of) == (5, SeriesOf.EITHER)


def test_only_the_last_series_counts() -> None:
    contention = found(storm(5)[:-1] + storm(3, first_ms=START_MS + 10 * LONGEST_PAUSE_MS))
    assert contention is not None
    assert (contention.aborted, contention.inits) == (3, 4)


OWN = {
    "it names its epoch, and its transaction is aborted for it": storm(11, asked=1),
    "it aborts first (librdkafka since 2.0), or it starts again": [
        one
        for epoch in range(9)
        for one in (
            given(epoch, START_MS + 2_000 * epoch),
            *transaction(epoch, START_MS + 2_000 * epoch + 1, raised=0),
        )
    ],
}


@pytest.mark.parametrize("log", OWN.values(), ids=OWN.keys())
def test_a_client_that_asks_for_a_new_epoch_after_each_error_is_a_series_of_its_own(log: Log) -> None:
    contention = found(log)
    assert contention is not None
    assert contention.of is SeriesOf.OWN


def test_takeovers_among_them_make_it_either() -> None:
    log = storm(3)[:-1] + storm(3, first_ms=START_MS + 10 * STEP_MS, asked=1)[1:]
    contention = found(log)
    assert contention is not None
    assert contention.of is SeriesOf.EITHER


NONE = {
    "fewer": storm(FEWEST_TAKEOVERS - 1),
    "restarts that are far apart": storm(11, pause_ms=2 * LONGEST_PAUSE_MS),
    "commits of producers that live for one transaction": [
        one
        for epoch in range(9)
        for one in (
            given(epoch, START_MS + 2_000 * epoch),
            *transaction(epoch, START_MS + 2_000 * epoch + 1, raised=0, state=S.PREPARE_COMMIT),
        )
    ],
    "nothing": [],
}


@pytest.mark.parametrize("log", NONE.values(), ids=NONE.keys())
def test_everything_else_is_no_storm(log: Log) -> None:
    assert found(log) is None
