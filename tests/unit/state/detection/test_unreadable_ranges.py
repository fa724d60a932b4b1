"""A range that its leader cannot read, time after time: given up, and made whole by a census; never by silence."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, BucketRun, census, log_notice, notice, seen
from txnwatch.state.model.facts import NoticeKind
from txnwatch.state.model.findings import Finding, OutstandingGap, PartitionAlarm, SpanCandidate
from txnwatch.state.model.values import NEVER_MS, TRANSACTION_STATE_TOPIC, Remedy, TopicPartition

LOG_0 = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
AGAIN: dict[str, Any] = {"reread": {ORDERS: 30}}


def gaps(findings: list[Finding]) -> dict[TopicPartition, int]:
    return {one.partition: one.gap for one in findings if isinstance(one, OutstandingGap)}


def kinds(findings: list[Finding]) -> list[str]:
    return [one.notice.kind for one in findings if isinstance(one, PartitionAlarm)]


def failed(run: BucketRun, tries: int, *, pause_ms: int = 6_000) -> list[Finding]:
    """The range [30, ...) is tried so many times, and fails; returns the last findings."""
    findings = run.batch(notice(NoticeKind.GAP, 30))
    for _ in range(tries - 1):
        run.pass_time(pause_ms)
        findings = run.batch(notice(NoticeKind.GAP, 30), **AGAIN)
    return findings


def test_a_range_that_fails_for_a_while_is_given_up_and_a_census_closes_it() -> None:
    run = BucketRun()
    run.batch(seen(0, 30, data=5))
    findings = failed(run, 3)
    assert kinds(findings) == ["lost"]
    assert gaps(findings) == {ORDERS: Remedy.CENSUS}
    assert gaps(run.batch(*census(5))) == {}


def test_a_hang_behind_it_is_reported_after_the_census() -> None:
    run = BucketRun()
    run.batch(seen(0, 30, data=5))
    failed(run, 3)
    run.batch(*census(50))
    assert run.producer().spans[ORDERS].start_offset == 50
    findings = [one for _ in range(3) for one in run.batch()]
    assert [one.span.start_offset for one in findings if isinstance(one, SpanCandidate)] == [50]


@pytest.mark.parametrize(("tries", "pause_ms"), [(2, 60_000), (8, 100)], ids=["too few tries", "too short a while"])
def test_an_election_is_waited_for(tries: int, pause_ms: int) -> None:
    findings = failed(BucketRun(), tries, pause_ms=pause_ms)
    assert (kinds(findings), gaps(findings)) == (["gap"], {ORDERS: 30})


def test_a_range_that_was_read_and_fails_later_gets_all_attempts_again() -> None:
    run = BucketRun()
    failed(run, 2)
    assert gaps(run.batch(**AGAIN)) == {}
    assert kinds(failed(run, 2)) == ["gap"]


def test_a_range_that_failed_and_is_lost_then_is_forgotten_with_the_census() -> None:
    """What failed must not be waited for any longer: an idle watch leaves out its barriers."""
    run = BucketRun()
    run.batch(notice(NoticeKind.GAP, 30))
    run.batch(notice(NoticeKind.TRUNCATED, 20))
    run.batch(*census(below=30))
    assert run.bucket.readings == {}
    assert run.counts[0].due_ms == NEVER_MS


def test_a_later_unreadable_range_is_given_up_too() -> None:
    run = BucketRun()
    failed(run, 3)
    for _ in range(3):
        run.pass_time(6_000)
        findings = run.batch(notice(NoticeKind.GAP, 60))
    assert gaps(findings) == {ORDERS: Remedy.CENSUS}


def test_a_hang_is_reported_even_if_something_new_cannot_be_read_in_every_batch() -> None:
    """Each census was planned beside a whole reading that was not had: it is the reading then."""
    run, starts = BucketRun(), []
    for number in range(100):
        run.pass_time(1_000)
        taken = census(50, below=100 + number) if number % 10 == 0 else []
        findings = run.batch(notice(NoticeKind.GAP, 100 + number), *taken)
        starts += [one.span.start_offset for one in findings if isinstance(one, SpanCandidate)]
    assert gaps(findings) == {ORDERS: Remedy.CENSUS}
    assert set(starts) == {50}


def test_the_coordinators_log_is_never_given_up() -> None:
    run = BucketRun()
    run.batch(seen(0, 30, data=5), log_notice(NoticeKind.GAP, 9))
    for _ in range(20):
        run.pass_time(60_000)
        findings = run.batch(log_notice(NoticeKind.GAP, 9), reread={LOG_0: 9})
        assert (kinds(findings), gaps(findings)) == (["gap"], {LOG_0: 9})
        (alarm,) = [one for one in findings if isinstance(one, PartitionAlarm)]
        assert "a census cannot replace this log" in alarm.notice.detail
        assert not any(isinstance(one, SpanCandidate) for one in findings)
    assert gaps(findings)[LOG_0] != Remedy.NEW_READING
