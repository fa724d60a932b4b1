"""The effect of a census on spans: it opens and closes them, the log goes first, and proofs start late enough."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, PAYMENTS, BucketRun, a_marker, census, notice, seen, transaction
from txnwatch.state.model.facts import CensusTaken, Fact, NoticeKind
from txnwatch.state.model.findings import (
    CensusReason,
    CensusRequest,
    CensusResult,
    Finding,
    Mismatch,
    SpanCandidate,
    SpanEnd,
    SpanEnded,
    StrayWrite,
    ViewHealed,
)
from txnwatch.state.model.transaction import TransactionState as S

DATA = [seen(0, 50, data=10)]
SHOWN: dict[str, tuple[list[Fact], list[Fact], int | None]] = {
    "what the log has as well": (DATA, census(10), 10),
    "what we never saw": ([], census(30), 30),
    "further back than the log shows": (DATA, census(4), 4),
    "later than what we hold: a marker was missed": (DATA, census(20), 20),
    "nothing, but the log goes first": (DATA, census(), 10),
    "nothing, and a marker may be above the high watermark": (DATA, census(stable=10), 10),
    "above the end that was listed before": ([], census(100), None),
    "another topic of the same name": (DATA, census(3, topic_id="new"), 3),
    "another topic with nothing open": (DATA, census(topic_id="new"), None),
    "another topic, as the one before is gone": (
        DATA,
        [*census(3, topic_id="new"), notice(NoticeKind.DELETED, 0)],
        3,
    ),
    "a topic that is gone meanwhile": (DATA, [*census(4), notice(NoticeKind.DELETED, 0)], None),
    "a partition the batch failed to read": (DATA, [*census(4), notice(NoticeKind.LOST, 60)], 10),
}


@pytest.mark.parametrize(("before", "facts", "start"), SHOWN.values(), ids=SHOWN.keys())
def test_a_census_shows_the_open_transactions(before: list[Fact], facts: list[Fact], start: int | None) -> None:
    run = BucketRun()
    run.batch(*before)
    run.batch(*facts)
    span = run.producer().spans.get(ORDERS)
    assert (span.start_offset if span is not None else None) == start


def spans_after(run: BucketRun, *batches: list[Fact], **exceptions: Any) -> list[Finding]:
    emitted: list[Finding] = []
    for facts in batches:
        emitted.extend(run.batch(*facts, **exceptions))
    return emitted


def test_a_span_that_a_census_does_not_show_is_dropped_once_the_log_is_read_further() -> None:
    run = BucketRun()
    findings = spans_after(run, DATA, [], [], census(), [])
    assert not run.producer().spans
    assert [ended.how for ended in findings if isinstance(ended, SpanEnded)] == [SpanEnd.CENSUS]
    assert [(healed.start_offset, healed.mismatch) for healed in findings if isinstance(healed, ViewHealed)] == [
        (10, Mismatch.CLOSED)
    ]


def test_a_marker_that_is_read_first_is_no_mismatch() -> None:
    run = BucketRun()
    findings = spans_after(
        run, DATA, [*census(), transaction(1, S.COMPLETE_ABORT)], [seen(50, 60, marker=a_marker(55))]
    )
    assert not run.producer().spans
    assert not [healed for healed in findings if isinstance(healed, ViewHealed)]


@pytest.mark.parametrize("unproven", [{"stale_data": {ORDERS}}, {"limited_data": {ORDERS}}])
def test_nothing_is_dropped_where_the_log_was_not_read_further(unproven: dict[str, Any]) -> None:
    run = BucketRun()
    spans_after(run, DATA, census())
    spans_after(run, [], [], **unproven)
    assert run.producer().spans[ORDERS].start_offset == 10
    run.batch()
    assert not run.producer().spans


def test_a_span_that_is_about_to_be_dropped_is_no_candidate() -> None:
    run = BucketRun()
    spans_after(run, DATA, census())
    findings = [*run.batch(stale_data={ORDERS}), *run.batch(stale_data={ORDERS}), *run.batch()]
    assert not [candidate for candidate in findings if isinstance(candidate, SpanCandidate)]


def test_a_mismatch_is_not_one_where_reading_has_just_begun() -> None:
    first, later = BucketRun(), BucketRun()
    assert not [finding for finding in first.batch(*census(30, first=True)) if isinstance(finding, ViewHealed)]
    assert [finding.mismatch for finding in later.batch(*census(30)) if isinstance(finding, ViewHealed)] == [
        Mismatch.OPEN
    ]


def hanging(emitted: list[Finding]) -> list[SpanCandidate]:
    return [finding for finding in emitted if isinstance(finding, SpanCandidate)]


def test_a_span_that_a_census_opens_is_evaluated_from_the_next_barrier_on() -> None:
    run = BucketRun()
    assert [bool(hanging(run.batch(*facts))) for facts in (census(30, first=True), [], [])] == [False, False, True]


def test_without_a_scan_the_census_is_the_reading() -> None:
    run = BucketRun()
    shown = census(30, scanned=False, is_round=True)
    assert not hanging(run.batch(*shown)), "T of this batch is older than what is shown"
    assert not hanging(run.batch()), "the first look"
    assert not hanging(run.batch()), "not seen open since the first look"
    assert not hanging(run.batch(*shown)), "seen again, but T of this batch is older than that"
    (candidate,) = hanging(run.batch())
    assert (candidate.first_barrier, candidate.second_barrier) == (2, 5)


def test_a_proof_that_needs_a_census_asks_for_it() -> None:
    run = BucketRun()
    run.batch(*census(30, scanned=False))
    assert run.batch() == [CensusRequest(ORDERS)]
    assert run.batch() == [CensusRequest(ORDERS)]
    assert run.batch(*census(30, scanned=False)) == [CensusResult(described=(ORDERS,), is_round=False)]


def test_without_a_scan_a_barrier_at_which_the_span_is_held_starts_the_proof_again() -> None:
    run = BucketRun()
    shown = census(30, scanned=False)
    spans_after(run, shown, [])
    assert not hanging(run.batch(*shown, transaction(1, S.ONGOING, ORDERS)))
    assert not hanging(run.batch(transaction(2, S.COMPLETE_ABORT)))
    assert not hanging(run.batch())
    assert not hanging(run.batch(*shown))
    assert hanging(run.batch())


NOT_SHOWN: dict[str, tuple[list[Fact], ...]] = {
    "and the last stable offset is past it": (census(scanned=False),),
    "twice, while another transaction holds the last stable offset": (
        census(scanned=False, stable=5),
        census(scanned=False, stable=5),
    ),
    "because its topic is gone": ([CensusTaken({}, frozenset({PAYMENTS}), is_round=True)],),
}


@pytest.mark.parametrize("batches", NOT_SHOWN.values(), ids=NOT_SHOWN.keys())
def test_without_a_scan_what_is_not_shown_is_over(batches: tuple[list[Fact], ...]) -> None:
    run = BucketRun()
    run.batch(*census(30, scanned=False))
    for facts in batches:
        assert ORDERS in run.producer().spans
        run.batch(*facts)
    assert ORDERS not in run.producer().spans


@pytest.mark.parametrize(
    "facts",
    [
        census(scanned=False, stable=5),
        [CensusTaken({}, frozenset({ORDERS}), is_round=True)],
        [CensusTaken({}, frozenset({PAYMENTS}), is_round=False)],
    ],
    ids=["once, under the last stable offset of another", "failed", "asked for others only"],
)
def test_without_a_scan_what_was_not_asked_stays(facts: list[Fact]) -> None:
    run = BucketRun()
    run.batch(*census(30, scanned=False))
    run.batch(*facts)
    assert ORDERS in run.producer().spans


FAILED: list[Fact] = [CensusTaken({}, frozenset({ORDERS}), failed_scanned=frozenset({ORDERS}))]
ASKED_AGAIN = CensusRequest(ORDERS, CensusReason.FAILED)


@pytest.mark.parametrize(
    "answer",
    [census(30), census(scanned=False), [notice(NoticeKind.DELETED, 0)]],
    ids=["described", "while it is behind", "gone"],
)
def test_a_census_that_failed_is_asked_for_until_there_is_an_answer(answer: list[Fact]) -> None:
    run = BucketRun()
    assert run.batch(*FAILED) == [ASKED_AGAIN, CensusResult((ORDERS,), is_round=False)]
    assert ASKED_AGAIN in run.batch(), "a request can be lost"
    assert ASKED_AGAIN in run.batch(*FAILED)
    assert run.counts[0].due_ms == 0, "a barrier is needed to ask at"
    assert ASKED_AGAIN not in run.batch(*answer)
    assert ASKED_AGAIN not in run.batch()


def test_and_for_as_long_as_its_leader_is_away() -> None:
    run = BucketRun()
    run.batch(*FAILED)
    for _ in range(200):
        run.batch(stale_data=frozenset({ORDERS}))
    assert run.batch() == [ASKED_AGAIN]


def test_a_newer_epoch_on_the_same_span_is_a_stray_write() -> None:
    run = BucketRun()
    run.batch(*census(30, scanned=False))
    (stray,) = [
        finding for finding in run.batch(*census(30, scanned=False, epoch=1)) if isinstance(finding, StrayWrite)
    ]
    assert stray.joined == (30, 0, None, 1, None)
    assert not [
        finding for finding in run.batch(*census(30, scanned=False, epoch=1)) if isinstance(finding, StrayWrite)
    ]


def test_data_after_an_end_that_was_not_seen_is_a_span_of_its_own() -> None:
    run = BucketRun()
    spans_after(run, DATA, census())
    findings = run.batch(seen(100, 150, data=120))
    assert run.producer().spans[ORDERS].start_offset == 120
    assert [healed.mismatch for healed in findings if isinstance(healed, ViewHealed)] == [Mismatch.CLOSED]


def test_only_the_log_has_the_epoch_with_which_data_begins() -> None:
    """A census names the epoch of the last batch; what lies before it may be another transaction's."""
    run = BucketRun()
    run.batch(*census(10))
    assert (run.producer().spans[ORDERS].start_epoch, run.producer().spans[ORDERS].epoch) == (None, 0)
    run.batch(seen(20, 30, data=25, last_epoch=1))
    assert run.producer().spans[ORDERS].start_epoch is None, "its beginning lies below what was read"

    again = BucketRun()
    again.batch(*census(10))
    again.batch(seen(0, 20, data=10, epoch=3))
    assert again.producer().spans[ORDERS].start_epoch == 3


def test_an_earlier_start_has_another_first_epoch() -> None:
    run = BucketRun()
    run.batch(*DATA)
    run.batch(*census(4))
    assert run.producer().spans[ORDERS].start_epoch is None


def test_the_rest_of_a_described_span_after_a_truncation_is_not_absorbed() -> None:
    run = BucketRun()
    run.batch(*census(10))
    run.batch(notice(NoticeKind.TRUNCATED, 15))
    emitted = run.batch(seen(15, 30, data=20))
    assert not [finding for finding in emitted if isinstance(finding, StrayWrite)]
