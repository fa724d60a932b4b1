"""Who ended the last transaction of an id: every form of the records, and what compaction leaves of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import PRODUCER
from txnwatch.state.evidence.past_ends import CAUSE_MEANS, EndCause, PastEnd, ended_with, past_ends
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.log.coordinator_log import LogRecord, history_of
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

C = EndCause
START_MS, TIMEOUT_MS = 1_000, 60_000
SOON_MS, LATE_MS = START_MS + 5_000, START_MS + TIMEOUT_MS
HELD = (("orders", (0,)),)
Log = list[tuple[int, TransactionLogValue | None]]  # each record with its timestamp


def of(state: S, epoch: int, at_ms: int, *, version: int = 0, start_ms: int | None = START_MS) -> Log:
    held = HELD if state.is_live else None if state is S.EMPTY else ()
    value = TransactionLogValue(1, PRODUCER, epoch, TIMEOUT_MS, state, held, at_ms, start_ms)
    return [(at_ms, replace(value, client_transaction_version=version))]


def init(epoch: int, at_ms: int) -> Log:
    return of(S.EMPTY, epoch, at_ms, start_ms=None)


def aborted(epoch: int, at_ms: int, *, version: int = 0) -> Log:
    return of(S.PREPARE_ABORT, epoch, at_ms, version=version) + of(S.COMPLETE_ABORT, epoch, at_ms + 10, version=version)


def committed(epoch: int, at_ms: int, *, version: int = 0) -> Log:
    return of(S.PREPARE_COMMIT, epoch, at_ms, version=version) + of(
        S.COMPLETE_COMMIT, epoch, at_ms + 10, version=version
    )


OLD, NEW = of(S.ONGOING, 3, START_MS), of(S.ONGOING, 3, START_MS, version=2)
CASES: dict[str, tuple[Log, EndCause]] = {
    "committed": (OLD + committed(3, SOON_MS), C.CLIENT),
    "aborted by an old client": (OLD + aborted(3, SOON_MS), C.CLIENT),
    "aborted by an old client after its timeout": (OLD + aborted(3, LATE_MS), C.CLIENT),
    "the timeout": (OLD + aborted(4, LATE_MS), C.TIMEOUT),
    "the timeout, then the application starts again": (OLD + aborted(4, LATE_MS) + init(5, LATE_MS + 9), C.TIMEOUT),
    "a fence": (OLD + aborted(4, SOON_MS) + init(5, SOON_MS + 9), C.FENCE),
    "a fence whose InitProducerId is not repeated yet": (OLD + aborted(4, SOON_MS), C.FENCE),
    "aborted by a client that raises the epoch, and goes on": (
        NEW + aborted(4, SOON_MS, version=2) + of(S.ONGOING, 4, SOON_MS + 9, version=2, start_ms=SOON_MS + 9),
        C.CLIENT,
    ),
    "the same, after its timeout": (
        NEW + aborted(4, LATE_MS, version=2) + of(S.ONGOING, 4, LATE_MS + 9, version=2, start_ms=LATE_MS + 9),
        C.CLIENT,
    ),
    "a client that raises the epoch, or a fence": (NEW + aborted(4, SOON_MS, version=2), C.CLIENT_OR_FENCE),
    "the same, then the application starts again": (
        NEW + aborted(4, SOON_MS, version=2) + init(5, SOON_MS + 9),
        C.CLIENT_OR_FENCE,
    ),
    "a client that raises the epoch, or the timeout": (NEW + aborted(4, LATE_MS, version=2), C.CLIENT_OR_TIMEOUT),
    "compaction has left the end alone": (aborted(4, SOON_MS)[1:], C.UNKNOWN),
    "compaction has left a commit alone": (committed(4, SOON_MS)[1:], C.CLIENT),
    "an abort of nothing": (init(3, START_MS) + aborted(4, SOON_MS, version=2), C.UNKNOWN),
}


def history(log: Log, *, whole_from: int | None = 0) -> list[PastEnd]:
    records = [LogRecord(0, offset, at_ms, "app", value, whole_from) for offset, (at_ms, value) in enumerate(log)]
    return past_ends(history_of(records))


@pytest.mark.parametrize(("log", "cause"), CASES.values(), ids=CASES.keys())
def test_who_ended_the_first_transaction(log: Log, cause: EndCause) -> None:
    assert history(log)[0].cause is cause


def test_an_abort_behind_a_hole_may_be_of_a_later_transaction() -> None:
    (end,) = history(NEW + aborted(5, SOON_MS, version=2), whole_from=None)
    assert end.cause is C.UNKNOWN


def test_a_tombstone_ends_nothing_and_hides_no_end() -> None:
    (end,) = history([*OLD, *committed(3, SOON_MS), (SOON_MS + 99, None)])
    assert (end.is_commit, end.complete_ms, end.open_for_ms) == (True, SOON_MS + 10, SOON_MS - START_MS)


def test_a_repeated_decision_is_one_end() -> None:
    (end,) = history(OLD + of(S.PREPARE_COMMIT, 3, SOON_MS) + committed(3, SOON_MS + 1))
    assert (end.decided.record_timestamp_ms, end.complete_ms) == (SOON_MS, SOON_MS + 11)


TWO = OLD + committed(3, SOON_MS) + of(S.ONGOING, 3, LATE_MS, start_ms=LATE_MS)
MARKERS = {
    "of the first": (Marker(9, 3, True, 0, SOON_MS + 5), True),
    "before the decision": (Marker(9, 3, True, 0, SOON_MS - 1), False),
    "after its end": (Marker(9, 3, True, 0, SOON_MS + 11), False),
    "of another epoch": (Marker(9, 4, True, 0, SOON_MS + 5), False),
    "of the other kind": (Marker(9, 3, False, 0, SOON_MS + 5), False),
}


@pytest.mark.parametrize(("marker", "is_its"), MARKERS.values(), ids=MARKERS.keys())
def test_a_marker_belongs_to_the_end_that_was_decided_before_it(marker: Marker, *, is_its: bool) -> None:
    assert (ended_with(history(TWO), marker) is not None) is is_its


def test_every_cause_has_a_text() -> None:
    assert CAUSE_MEANS.keys() == set(EndCause)
