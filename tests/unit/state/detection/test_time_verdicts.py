"""The verdicts that rest on time: thresholds, clocks, and what keeps them silent."""

from __future__ import annotations

from itertools import pairwise

import pytest

from support.facts import NAME, ORDERS, PRODUCER, START_MS, TIMEOUT_MS, BucketRun, seen, transaction
from txnwatch.state.model.findings import CoverInDoubt, Finding, TransactionCandidate, TransactionMoved
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS, DetectionPolicy, Verdict

POLICY = DetectionPolicy()
QUARTER_HOUR_MS = 900_000
LATE_AFTER_MS = POLICY.scan_interval_ms(None) + POLICY.late_buffer_ms


def run_until(run: BucketRun, moment_ms: int) -> list[Finding]:
    """One batch at a moment of our clock."""
    run.now_ms = moment_ms - run.step_ms
    return run.batch()


def verdicts(emitted: list[Finding]) -> list[Verdict]:
    return [finding.verdict for finding in emitted if isinstance(finding, TransactionCandidate)]


def watching(state: S = S.ONGOING, **changes: object) -> BucketRun:
    """What began, or was prepared, at START_MS was seen at once."""
    run = BucketRun(now_ms=START_MS - BucketRun.step_ms)
    run.batch(transaction(1, state, ORDERS, **changes))
    return run


AT = {
    "young": (TIMEOUT_MS - 1, S.ONGOING, TIMEOUT_MS, []),
    "a default client past its timeout, the coordinator is about to abort it": (
        TIMEOUT_MS + LATE_AFTER_MS,
        S.ONGOING,
        TIMEOUT_MS,
        [],
    ),
    "past timeout, scan interval and buffer": (TIMEOUT_MS + LATE_AFTER_MS + 1, S.ONGOING, TIMEOUT_MS, [Verdict.LATE]),
    "a long timeout at four fifths": (720_000, S.ONGOING, QUARTER_HOUR_MS, []),
    "a long timeout past four fifths": (720_001, S.ONGOING, QUARTER_HOUR_MS, [Verdict.LONG_RUNNING]),
    "a short timeout never warns early": (130_000, S.ONGOING, 120_000, []),
    "two-phase commit is never late": (10**12, S.ONGOING, TWO_PHASE_TIMEOUT_MS, []),
    "prepared for half a minute": (POLICY.stuck_prepare_ms, S.PREPARE_COMMIT, TIMEOUT_MS, []),
    "prepared for longer": (POLICY.stuck_prepare_ms + 1, S.PREPARE_ABORT, TIMEOUT_MS, [Verdict.STUCK_PREPARE]),
    "complete": (10**9, S.COMPLETE_COMMIT, TIMEOUT_MS, []),
}


@pytest.mark.parametrize(("age_ms", "state", "timeout_ms", "expected"), AT.values(), ids=AT.keys())
def test_thresholds(age_ms: int, state: S, timeout_ms: int, expected: list[Verdict]) -> None:
    run = watching(state, timeout_ms=timeout_ms)
    assert verdicts(run_until(run, START_MS + age_ms)) == expected


LATE_FROM = {
    "the brokers' value": (None, 60_000, 60_000),
    "the brokers' value, a short one": (None, 2_000, 2_000),
    "no broker has a value": (None, None, 10_000),
    "the flag's value, whatever the brokers have": (500, 60_000, 500),
}


@pytest.mark.parametrize(("flag_ms", "broker_ms", "interval_ms"), LATE_FROM.values(), ids=LATE_FROM.keys())
def test_late_waits_for_the_brokers_own_scan_interval(
    flag_ms: int | None, broker_ms: int | None, interval_ms: int
) -> None:
    run = BucketRun(DetectionPolicy(coordinator_scan_interval_ms=flag_ms), now_ms=START_MS - BucketRun.step_ms)
    run.batch(transaction(1, S.ONGOING, ORDERS), scan_interval_ms=broker_ms)
    run.now_ms += TIMEOUT_MS + interval_ms + POLICY.late_buffer_ms - run.step_ms
    assert verdicts(run.batch(scan_interval_ms=broker_ms)) == []
    assert verdicts(run.batch(scan_interval_ms=broker_ms)) == [Verdict.LATE]


def test_a_scan_interval_that_has_become_shorter_counts_at_once() -> None:
    run = BucketRun(now_ms=START_MS - BucketRun.step_ms)
    run.batch(transaction(1, S.ONGOING, ORDERS), scan_interval_ms=600_000)
    run.now_ms += TIMEOUT_MS + 10_000 + POLICY.late_buffer_ms
    assert verdicts(run.batch(scan_interval_ms=600_000)) == []
    assert verdicts(run.batch(scan_interval_ms=2_000)) == [Verdict.LATE]


def test_backlog_of_the_coordinators_log_raises_no_storm() -> None:
    run = watching()
    run.now_ms += 10**7
    assert run.batch(stale_coordinator=frozenset({log_numbered(0)})) == []
    assert verdicts(run.batch()) == [Verdict.LATE]


def test_another_stale_log_partition_does_not_matter() -> None:
    run = watching()
    run.now_ms += 10**7
    assert verdicts(run.batch(stale_coordinator=frozenset({log_numbered(1)}))) == [Verdict.LATE]


def test_an_early_warning_becomes_late_without_waiting_for_its_repeat() -> None:
    run = watching(timeout_ms=QUARTER_HOUR_MS)
    assert verdicts(run_until(run, START_MS + 720_001)) == [Verdict.LONG_RUNNING]
    for _ in range(60):
        run.batch()
    assert verdicts(run_until(run, START_MS + QUARTER_HOUR_MS + LATE_AFTER_MS + 1)) == [Verdict.LATE]


def test_candidates_repeat_with_doubling_pauses() -> None:
    run = watching()
    run.now_ms += 10**7
    reported_at = [run.now_ms for _ in range(32) if verdicts(run.batch())]
    assert [later - earlier for earlier, later in pairwise(reported_at)] == [
        1_000,
        2_000,
        4_000,
        8_000,
    ]


def test_a_candidate_has_the_view_and_how_long_it_is_overdue() -> None:
    run = watching()
    run.batch(seen(0, 10, data=4))
    run.now_ms += 10**7
    (candidate,) = [finding for finding in run.batch() if isinstance(finding, TransactionCandidate)]
    assert candidate.view.transactional_id == NAME
    assert candidate.overdue_ms == run.now_ms - START_MS - TIMEOUT_MS - LATE_AFTER_MS


ENDS = {
    "aborted by the coordinator": (S.ONGOING, transaction(2, S.PREPARE_ABORT, ORDERS), Verdict.LATE),
    "completed": (S.PREPARE_COMMIT, transaction(2, S.COMPLETE_COMMIT), Verdict.STUCK_PREPARE),
    "the next transaction": (S.ONGOING, transaction(2, S.ONGOING, ORDERS, start_ms=START_MS + 10**7), Verdict.LATE),
}


@pytest.mark.parametrize(("state", "then", "verdict"), ENDS.values(), ids=ENDS.keys())
def test_a_candidate_is_withdrawn_when_the_transaction_moves_on(state: S, then: object, verdict: Verdict) -> None:
    run = watching(state)
    run.now_ms += 10**7
    assert verdicts(run.batch()) == [verdict]
    (moved, *_) = run.batch(then)  # type: ignore[arg-type]
    assert isinstance(moved, TransactionMoved)
    assert (moved.producer_id, moved.verdict) == (PRODUCER, verdict)


DOUBTED_FROM = {
    "two-phase, hourly": (S.ONGOING, TWO_PHASE_TIMEOUT_MS, POLICY.two_phase_check_ms),
    "late": (S.ONGOING, TIMEOUT_MS, TIMEOUT_MS + LATE_AFTER_MS),
    "not before it is late": (S.ONGOING, QUARTER_HOUR_MS, QUARTER_HOUR_MS + LATE_AFTER_MS),
    "stuck in Prepare*": (S.PREPARE_ABORT, TIMEOUT_MS, POLICY.stuck_prepare_ms),
}


@pytest.mark.parametrize(("state", "timeout_ms", "age_ms"), DOUBTED_FROM.values(), ids=DOUBTED_FROM.keys())
def test_the_coordinator_is_asked_about_the_spans_of_an_old_transaction(state: S, timeout_ms: int, age_ms: int) -> None:
    run = watching(state, timeout_ms=timeout_ms)
    run.batch(seen(0, 10, data=4))
    assert doubted(run_until(run, START_MS + age_ms)) == []
    assert doubted(run_until(run, START_MS + age_ms + 500)) == [(PRODUCER, ORDERS, 4)]


def test_a_two_phase_transaction_is_asked_for_hourly() -> None:
    run = watching(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    run.batch(seen(0, 10, data=4))
    hours = [
        minutes / 60
        for minutes in range(10, 240, 10)
        if doubted(run_until(run, START_MS + minutes * 60_000)) and not verdicts(run.batch())
    ]
    assert [later - earlier for earlier, later in pairwise(hours)] == pytest.approx([1.0] * (len(hours) - 1), abs=0.2)
    assert len(hours) == 3


def test_a_question_about_new_data_does_not_wait_for_the_repeat_of_an_earlier_one() -> None:
    run, other = BucketRun(now_ms=START_MS - BucketRun.step_ms), TopicPartition("orders", 1)
    run.batch(transaction(1, S.ONGOING, ORDERS, other, timeout_ms=TWO_PHASE_TIMEOUT_MS), seen(0, 10, data=4))
    assert doubted(run_until(run, START_MS + POLICY.two_phase_check_ms + 1_000)) == [(PRODUCER, ORDERS, 4)]
    run.batch(seen(0, 10, data=7, partition=other, listed_ms=run.now_ms + run.step_ms))
    asked = [doubted(run.batch()) for _ in range(10)]
    assert [found for found in asked if found] == [[(PRODUCER, other, 7)]]
    assert not asked[0], "young data is not asked about"
    later = run_until(run, START_MS + 2 * POLICY.two_phase_check_ms + 1_000)
    assert len(doubted(later)) == 2, "the repeat of the first question is not put off"


def test_nothing_is_doubted_that_is_not_held_or_not_read_to_its_end() -> None:
    run = watching(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    run.now_ms += 10**7
    assert doubted(run.batch()) == [], "nothing is open"
    assert doubted(run.batch(seen(0, 10, data=4), stale_coordinator=frozenset({log_numbered(0)}))) == []
    assert doubted(run.batch()) == [(PRODUCER, ORDERS, 4)]


def test_the_next_transaction_is_young_again() -> None:
    run = watching(timeout_ms=TWO_PHASE_TIMEOUT_MS)
    run.batch(seen(0, 10, data=4))
    run.now_ms += 10**7
    assert doubted(run.batch())
    begun_ms = run.now_ms
    assert (
        doubted(run.batch(transaction(2, S.ONGOING, ORDERS, start_ms=begun_ms, timeout_ms=TWO_PHASE_TIMEOUT_MS))) == []
    )
    assert doubted(run_until(run, begun_ms + POLICY.two_phase_check_ms + 1_000))


def doubted(emitted: list[Finding]) -> list[tuple[int, TopicPartition, int]]:
    found = (finding.candidate for finding in emitted if isinstance(finding, CoverInDoubt))
    return [(candidate.producer_id, candidate.partition, candidate.span.start_offset) for candidate in found]


def test_more_partitions_for_the_same_transaction_take_nothing_back() -> None:
    run = watching()
    run.now_ms += 10**7
    assert verdicts(run.batch()) == [Verdict.LATE]
    assert run.batch(transaction(2, S.ONGOING, ORDERS)) == []
