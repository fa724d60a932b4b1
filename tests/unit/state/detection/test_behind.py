"""A scanned partition that is behind: a census watches it until it has caught up; the change loses nothing."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, PAYMENTS, BucketRun, a_marker, notice, seen, transaction
from support.facts import census as census_of
from txnwatch.state.model.facts import CensusListing, CensusTaken, Fact, NoticeKind
from txnwatch.state.model.findings import (
    CensusRequest,
    Finding,
    OutstandingGap,
    PartitionAlarm,
    ReadLimitReached,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    ViewHealed,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import Remedy

BEHIND: dict[str, Any] = {"limited_data": {ORDERS}}
SCANNED_TO = 20


def census(*open_at: int, **changes: Any) -> list[Fact]:
    """A census of ORDERS, which is scanned and not read to its end."""
    taken, *opened = census_of(*open_at, scanned=False, **changes)
    assert isinstance(taken, CensusTaken)
    return [CensusTaken({ORDERS: CensusListing("orders-id", 100, *taken.taken[ORDERS][2:4], is_behind=True)}), *opened]


def hanging(emitted: list[Finding]) -> list[int]:
    return [finding.span.start_offset for finding in emitted if isinstance(finding, SpanCandidate)]


def ends(emitted: list[Finding]) -> list[SpanEnd]:
    return [finding.how for finding in emitted if isinstance(finding, SpanEnded)]


def reported_by_census(*before: Fact) -> BucketRun:
    """ORDERS is behind, and two rounds of its census have shown a hang at 50, which is reported."""
    run = BucketRun(step_ms=1_500)
    assert not hanging(run.batch(*before, *census(50), **BEHIND)), "T of this batch is older than what is shown"
    assert CensusRequest(ORDERS) in run.batch(**BEHIND)
    assert not hanging(run.batch(*census(50), **BEHIND))
    assert hanging(run.batch(**BEHIND)) == [50]
    return run


def test_a_hang_ahead_of_the_scan_is_proven_by_two_rounds() -> None:
    reported_by_census()


def test_a_hang_is_reported_while_every_batch_loses_another_range() -> None:
    """Retention has overtaken the scan by far more than a batch may read; the start of the hang is lost, too."""
    for start in (5, 50):
        run = BucketRun(step_ms=1_500)
        lost = [notice(NoticeKind.LOST, SCANNED_TO + number) for number in range(4)]
        findings = [finding for one in lost for finding in run.batch(one, *census(start), **BEHIND)]
        assert start in hanging(findings)


def test_a_census_that_was_to_rest_on_a_reading_counts_for_nothing_where_that_lost_a_range() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(notice(NoticeKind.LOST, 10), *census_of(below=20))
    assert run.producer().spans[ORDERS].census_absent_at is None
    assert OutstandingGap(ORDERS, Remedy.CENSUS) in run.batch()


def test_a_hang_that_the_scan_has_read_is_proven_by_the_census_as_well() -> None:
    run = BucketRun()
    run.batch(seen(0, SCANNED_TO, data=10), **BEHIND)
    assert not hanging(run.batch(*census(10), **BEHIND))
    assert hanging(run.batch(**BEHIND)) == [10], "uncovered at the first barrier, seen open by its leader after that"


def test_a_scanned_open_span_is_no_hang_unless_a_census_shows_it() -> None:
    run = BucketRun()
    for facts in ([seen(0, SCANNED_TO, data=10)], [], census(), [], census(), []):
        assert not hanging(run.batch(*facts, **BEHIND))
    assert ORDERS in run.producer().spans, "its marker is still to be read, and will show how it ended"
    run.batch(seen(SCANNED_TO, 30, marker=a_marker(25)), **BEHIND)
    assert ORDERS not in run.producer().spans


def test_older_transactions_that_the_scan_passes_are_not_the_one_ahead() -> None:
    """The scan reads one that was open at the end of a range, and its marker in the next: neither is the hang's."""
    run = reported_by_census()
    findings = run.batch(seen(20, 30, data=25), **BEHIND)
    findings += run.batch(seen(30, 40, marker=a_marker(35)), **BEHIND)
    assert ends(findings) == []
    assert run.producer().spans[ORDERS].start_offset == 50


def test_the_scan_takes_over_what_the_census_has_shown() -> None:
    run = reported_by_census()
    run.batch(seen(40, 60, data=42, marker=a_marker(45), data_after=50), **BEHIND)
    span = run.producer().spans[ORDERS]
    assert (span.start_offset, span.by_census, span.is_ahead_of_scan) == (50, False, False)
    assert hanging(run.batch(seen(60, 100))) == [50], "caught up: the log proves it now, without another look"
    assert ends(run.batch(seen(100, 110, marker=a_marker(105)))) == [SpanEnd.MARKER]


def test_a_marker_that_the_scan_passes_ends_what_the_census_has_shown() -> None:
    run = reported_by_census()
    findings = run.batch(seen(40, 60, data=50, marker=a_marker(55)), **BEHIND)
    assert ends(findings) == [SpanEnd.MARKER]


def test_a_marker_above_what_is_not_read_ends_a_span_and_may_not_be_the_one_that_closed_it() -> None:
    """The marker that closed the span may be in the rest that is read later, and other data may have followed it."""
    run = reported_by_census()
    run.batch(seen(40, 55, data=50), notice(NoticeKind.LEFT, 55), **BEHIND)
    (end,) = [one for one in run.batch(seen(70, 80, marker=a_marker(75)), **BEHIND) if isinstance(one, SpanEnded)]
    assert (end.how, end.marker) == (SpanEnd.MARKER, None)


def test_an_end_that_the_census_saw_is_not_undone_by_the_scan_that_comes_later() -> None:
    run = reported_by_census()
    assert ends(run.batch(*census(), **BEHIND)) == [SpanEnd.CENSUS]
    for facts in ([seen(40, 60, data=50)], census(), [], census(), [], [seen(60, 100, marker=a_marker(70))], []):
        findings = run.batch(*facts, **(BEHIND if run.number < 11 else {}))
        assert (hanging(findings), ends(findings)) == ([], [])
        assert not [healed for healed in findings if isinstance(healed, ViewHealed)]
    assert not run.producer().spans


def test_a_round_of_other_topics_does_not_take_away_what_is_ahead() -> None:
    run = reported_by_census()
    findings = run.batch(*census_of(partition=PAYMENTS, scanned=False, is_round=True), **BEHIND)
    assert ends(findings) == []
    assert ORDERS in run.producer().spans


def test_a_covered_transaction_ahead_is_no_hang() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), *census(50), **BEHIND)
    for facts in ([], census(50), []):
        assert not hanging(run.batch(*facts, **BEHIND))


LEFT = notice(NoticeKind.LEFT, 30)


def test_the_rest_of_a_range_causes_no_alarm_and_is_requested_until_it_is_read() -> None:
    run = BucketRun()
    assert run.batch(LEFT) == [ReadLimitReached(ORDERS, 30)]
    assert run.unproven[0].partitions == (), "a census shows what is open there"
    assert run.counts[0].behind == 1
    assert run.batch() == [ReadLimitReached(ORDERS, 30)]
    assert run.batch(notice(NoticeKind.LEFT, 60), reread={ORDERS: 30}) == [ReadLimitReached(ORDERS, 60)]
    assert run.batch(reread={ORDERS: 30}) == []
    assert run.counts[0].behind == 0


def test_the_log_proves_nothing_beyond_what_a_batch_left() -> None:
    run = BucketRun()
    run.batch(seen(0, 30, data=10), LEFT)
    assert [hanging(run.batch()) for _ in range(3)] == [[], [], []]
    assert hanging(run.batch(seen(30, 100), reread={ORDERS: 30})) == [10]


def test_reading_continues_at_the_end_of_a_batch_without_a_loss() -> None:
    """Data of a newer epoch that joins open data is a stray write; behind a gap nobody could know that."""
    for kind, expected in ((NoticeKind.LEFT, 1), (NoticeKind.GAP, 0)):
        run = BucketRun()
        run.batch(seen(0, 30, data=10), notice(kind, 30))
        findings = run.batch(seen(30, 50, data=40, epoch=1), reread={ORDERS: 30})
        assert len([stray for stray in findings if type(stray).__name__ == "StrayWrite"]) == expected


def test_a_census_planned_without_knowing_what_was_left_is_not_held_against_the_log() -> None:
    run = BucketRun()
    run.batch(LEFT)
    findings = run.batch(*census_of(50))
    assert not [healed for healed in findings if isinstance(healed, ViewHealed)]
    assert run.producer().spans[ORDERS].is_ahead_of_scan


@pytest.mark.parametrize("scanned", [True, False])
def test_a_census_of_what_was_not_read_as_planned_counts_only_where_it_is_the_reading(scanned: bool) -> None:  # noqa: FBT001
    run = BucketRun()
    run.batch(LEFT, *(census_of(50) if scanned else census(50)))
    assert (ORDERS in run.producer().spans) is not scanned


def test_a_topic_that_is_gone_leaves_nothing_to_be_read() -> None:
    run = BucketRun()
    run.batch(LEFT)
    findings = run.batch(notice(NoticeKind.DELETED, 0))
    assert not [one for one in findings if isinstance(one, ReadLimitReached | OutstandingGap)]
    assert [type(one) for one in findings] == [PartitionAlarm]
