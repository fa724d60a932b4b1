"""Who ended the last transaction of an id: every form of the records, and what compaction leaves of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.facts import PRODUCER
from txnwatch.state.evidence.past_ends import CAUSE_MEANS, EndCause, PastEnd, ended_with, ends_on, past_ends
from txnwatch.state.model.transaction import Marker
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
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
    "the timeout, or a fence after it": (OLD + aborted(4, LATE_MS), C.TIMEOUT_OR_FENCE),
    "the timeout, then the application starts again, or a fence after the timeout": (
        OLD + aborted(4, LATE_MS) + init(5, LATE_MS + 19),
        C.TIMEOUT_OR_FENCE,
    ),
    "the timeout, or a fence that waits for the markers": (
        OLD + of(S.PREPARE_ABORT, 4, LATE_MS),
        C.TIMEOUT_OR_FENCE,
    ),
    "a fence": (OLD + aborted(4, SOON_MS) + init(5, SOON_MS + 9), C.FENCE),
    "a fence whose InitProducerId is not repeated yet": (OLD + aborted(4, SOON_MS), C.FENCE_UNANSWERED),
    "its client asks for a new epoch": (OLD + aborted(4, SOON_MS) + init(4, SOON_MS + 9), C.CLIENT_ASKED),
    "a client that raises the epoch asks for a new one": (
        NEW + aborted(4, SOON_MS, version=2) + init(4, SOON_MS + 9),
        C.CLIENT_ASKED,
    ),
    "the timeout, then its client asks for a new epoch": (
        OLD + aborted(4, LATE_MS) + init(4, LATE_MS + 19),
        C.TIMEOUT_OR_ASKED,
    ),
    "its client asks twice, and nobody starts again": (
        OLD + aborted(4, SOON_MS) + init(4, SOON_MS + 9) + init(5, SOON_MS + 19),
        C.CLIENT_ASKED,
    ),
    "a fence, then the new instance asks for a new epoch": (
        OLD + aborted(4, SOON_MS) + init(5, SOON_MS + 9) + init(5, SOON_MS + 19),
        C.FENCE,
    ),
    "a client goes on under the raised epoch, and its abort was perhaps answered after a fence": (
        NEW + aborted(4, SOON_MS, version=2) + of(S.ONGOING, 4, SOON_MS + 19, version=2, start_ms=SOON_MS + 19),
        C.CLIENT_OR_FENCE,
    ),
    "the same, and its abort was perhaps answered after the timeout": (
        NEW + aborted(4, LATE_MS, version=2) + of(S.ONGOING, 4, LATE_MS + 19, version=2, start_ms=LATE_MS + 19),
        C.CLIENT_OR_TIMEOUT,
    ),
    "the append of its commit has failed, then the timeout": (
        OLD + committed(3, LATE_MS)[:1] + aborted(4, LATE_MS + 5_000),
        C.TIMEOUT_OR_FENCE,
    ),
    "the append of the coordinator's abort has failed, and its client commits": (
        OLD + aborted(4, SOON_MS)[:1] + committed(3, SOON_MS + 5),
        C.CLIENT,
    ),
    "the append of its abort has failed, and it goes on and commits": (
        OLD + aborted(3, SOON_MS)[:1] + OLD + committed(3, SOON_MS + 5),
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
    "records are missing, and more than a client raises the epoch": (
        NEW + aborted(5, SOON_MS, version=2),
        C.FENCE_UNANSWERED,
    ),
}


def history(log: Log, *, led_from: int | None = None) -> list[PastEnd]:
    """The ends in a log; from the offset `led_from` on, another coordinator has appended its records."""
    records = [
        LogRecord(0, offset, at_ms, "app", value, int(led_from is not None and offset >= led_from))
        for offset, (at_ms, value) in enumerate(log)
    ]
    return past_ends(history_of(records))


@pytest.mark.parametrize(("log", "cause"), CASES.values(), ids=CASES.keys())
def test_who_ended_the_first_transaction(log: Log, cause: EndCause) -> None:
    assert history(log)[0].cause is cause


BY_TWO = {"old": (OLD + aborted(4, SOON_MS), C.COORDINATOR)}
BY_TWO["new"] = (NEW + aborted(4, LATE_MS, version=2), C.CLIENT_OR_COORDINATOR)


@pytest.mark.parametrize(("log", "cause"), BY_TWO.values(), ids=BY_TWO.keys())
def test_two_coordinators_with_two_clocks_do_not_show_whether_the_timeout_has_passed(log: Log, cause: EndCause) -> None:
    (end,) = history(log, led_from=1)
    assert end.cause is cause


def test_the_records_of_one_start_are_one_end() -> None:
    (end,) = history(OLD + committed(3, SOON_MS)[:1] + aborted(4, LATE_MS + 5_000))
    assert (end.is_commit, end.open_for_ms, end.complete_ms) == (False, TIMEOUT_MS + 5_000, LATE_MS + 5_010)


BEFORE = NEW + committed(4, SOON_MS, version=2)
FAILED = of(S.ONGOING, 4, LATE_MS, version=2, start_ms=LATE_MS)


def aborted_empty(epoch: int, at_ms: int) -> Log:
    """What Kafka 4.4.0 has logged for EndTxn without a partition: the start is the time of the decision."""
    logged = aborted(epoch, at_ms, version=2)
    return [(at, replace(value, partitions=(), start_ms=at_ms)) for at, value in logged if value is not None]


@pytest.mark.parametrize("log", [BEFORE, BEFORE + FAILED, BEFORE + aborted_empty(5, LATE_MS - 5)])
def test_an_abort_of_nothing_is_no_end(log: Log) -> None:
    (end,) = history(log + aborted_empty(6, LATE_MS))
    assert (end.is_commit, end.cause, end.complete_ms) == (True, C.CLIENT, SOON_MS + 10)
    assert not history(init(3, START_MS) + aborted_empty(4, LATE_MS))


def test_an_end_of_which_compaction_has_left_nothing_else_is_told() -> None:
    """It may be one of nothing: its Prepare* record would have shown that."""
    (end,) = history(aborted_empty(4, LATE_MS)[1:])
    assert (end.is_commit, end.cause) == (False, C.UNKNOWN)


def test_a_decision_that_is_taken_back_is_no_end() -> None:
    assert not history(OLD + committed(3, SOON_MS)[:1] + OLD)


def test_an_abort_with_another_start_is_of_another_transaction() -> None:
    (end,) = history(NEW + [(at, value and replace(value, start_ms=LATE_MS)) for at, value in aborted(4, LATE_MS)])
    assert (end.cause, end.data_epoch) == (C.UNKNOWN, None)


def test_a_tombstone_ends_nothing_and_hides_no_end() -> None:
    (end,) = history([*OLD, *committed(3, SOON_MS), (SOON_MS + 99, None)])
    assert (end.is_commit, end.complete_ms, end.open_for_ms) == (True, SOON_MS + 10, SOON_MS - START_MS)


def test_a_repeated_decision_is_one_end_and_the_last_one_counts() -> None:
    (end,) = history(OLD + of(S.PREPARE_COMMIT, 3, SOON_MS) + committed(3, SOON_MS + 1))
    assert (end.decided.record_timestamp_ms, end.complete_ms) == (SOON_MS + 1, SOON_MS + 11)


TWO = OLD + committed(3, SOON_MS) + of(S.ONGOING, 3, LATE_MS, start_ms=LATE_MS)
FAR_MS = 3_600_000
MARKERS = {
    "of the first": (Marker(9, 3, True, 0, SOON_MS + 5), True),
    "by a clock that is behind": (Marker(9, 3, True, 0, SOON_MS - 1), True),
    "by a clock that is ahead": (Marker(9, 3, True, 0, SOON_MS + 11), True),
    "of an earlier transaction of the epoch, which the log does not have": (Marker(9, 3, True, 0, -FAR_MS), False),
    "of a later transaction of the epoch": (Marker(9, 3, True, 0, FAR_MS), False),
    "of another epoch": (Marker(9, 4, True, 0, SOON_MS + 5), False),
    "of the other kind": (Marker(9, 3, False, 0, SOON_MS + 5), False),
}


@pytest.mark.parametrize(("marker", "is_its"), MARKERS.values(), ids=MARKERS.keys())
def test_a_marker_belongs_to_the_end_of_its_epoch_and_kind(marker: Marker, *, is_its: bool) -> None:
    assert (ended_with(history(TWO), marker) is not None) is is_its


@pytest.mark.parametrize("at_ms", [-FAR_MS, SOON_MS, FAR_MS])
@pytest.mark.parametrize("log", [NEW + committed(4, SOON_MS, version=2), OLD + aborted(4, SOON_MS)])
def test_an_epoch_that_one_end_alone_has_needs_no_clock(log: Log, at_ms: int) -> None:
    (end,) = history(log)
    assert ended_with([end], Marker(9, 4, end.is_commit, 0, at_ms)) is end


def test_of_two_transactions_with_one_epoch_the_time_chooses() -> None:
    its_end = of(S.PREPARE_COMMIT, 3, LATE_MS + 5, start_ms=LATE_MS) + of(
        S.COMPLETE_COMMIT, 3, LATE_MS + 15, start_ms=LATE_MS
    )
    first, second = history(TWO + its_end)
    for end, at_ms in ((first, SOON_MS - 3), (first, SOON_MS + 13), (second, LATE_MS + 2), (second, LATE_MS + 99)):
        assert ended_with([first, second], Marker(9, 3, True, 0, at_ms)) is end


@pytest.mark.parametrize(("log", "epoch"), [(OLD + aborted(3, SOON_MS), 3), (NEW + aborted(4, SOON_MS, version=2), 4)])
def test_a_marker_that_the_next_coordinator_sends_again_is_of_the_same_end(log: Log, epoch: int) -> None:
    ends, first = history(log), Marker(7, epoch, False, 3, SOON_MS + 5)
    assert ended_with(ends, Marker(8, epoch, False, 4, SOON_MS + 6), [first]) is ends[0]
    by_hand = Marker(8, epoch, False, 3, SOON_MS + 6)
    assert ended_with(ends, by_hand, [first]) is None
    behind_another = Marker(9, epoch, False, 4, SOON_MS + 6)
    assert ended_with(ends, behind_another, [first, Marker(8, epoch, True, 4, SOON_MS + 6)]) is None


def test_a_partition_that_was_not_in_a_transaction_has_no_marker_of_it() -> None:
    (end,) = history(OLD + aborted(4, SOON_MS))
    assert ends_on([end], TopicPartition("orders", 0)) == [end]
    assert not ends_on([end], TopicPartition("orders", 1))


def test_every_cause_has_a_text() -> None:
    assert CAUSE_MEANS.keys() == set(EndCause)
