"""The proof, as a table: what each barrier may emit about a span, and what keeps it silent.

Every case is a timeline of batches; `expected` is what each barrier emits. Please add cases here.
Notation: D data read, M marker read, T coordinator's record read; a batch is one line, its barrier at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from support.facts import (
    NAME,
    ORDERS,
    OTHER,
    PAYMENTS,
    BucketRun,
    a_marker,
    gone,
    log_notice,
    notice,
    seen,
    transaction,
)
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.findings import OutstandingGap, SpanCandidate, SpanEnd, SpanEnded
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import log_numbered

HANG = "hanging"
SILENT = ""


@dataclass(frozen=True)
class Batch:
    facts: tuple[Fact, ...] = ()
    expected: str = SILENT
    exceptions: dict[str, Any] = field(default_factory=dict)


def batch(*facts: Fact, expected: str = SILENT, **exceptions: Any) -> Batch:
    return Batch(facts, expected, exceptions)


STRAY = seen(0, 10, data=5)
HELD = transaction(1, S.ONGOING, ORDERS)
COMPLETE = transaction(3, S.COMPLETE_ABORT)

CASES: dict[str, tuple[str, list[Batch]]] = {
    "stray write of an id nobody knows": (
        "open at barrier 1, still open and still unowned at barrier 2: two looks, not one",
        [batch(STRAY), batch(expected=HANG)],
    ),
    "an ordinary transaction": (
        "held at every look until its marker, which lies below the end listed after Complete*",
        [
            batch(HELD, STRAY),
            batch(),
            batch(transaction(2, S.PREPARE_COMMIT, ORDERS)),
            batch(seen(10, 20, marker=a_marker(15, commit=True)), COMPLETE),
            batch(),
        ],
    ),
    "Complete* is read before the marker": (
        "the marker is below the next end: the first look finds it unowned, the second finds it closed",
        [batch(HELD, STRAY), batch(COMPLETE), batch(seen(10, 20, marker=a_marker(15))), batch()],
    ),
    "data of a transaction that has begun and ended between two listings of T": (
        "the data was listed first; its owner is complete at T, its marker comes with the next data",
        [batch(STRAY, COMPLETE), batch(seen(10, 20, marker=a_marker(12)))],
    ),
    "lost marker": (
        "complete at the coordinator, never closed on the partition",
        [batch(HELD, STRAY), batch(COMPLETE), batch(expected=HANG)],
    ),
    "late write after the marker": (
        "the marker closed the transaction, what follows it has no owner",
        [
            batch(HELD, STRAY),
            batch(COMPLETE, seen(10, 20, marker=a_marker(12))),
            batch(seen(20, 30, data=25)),
            batch(expected=HANG),
        ],
    ),
    "late write in the same batch as the marker": (
        "the fold leaves only what is open after the last marker",
        [batch(HELD, STRAY), batch(COMPLETE, seen(10, 30, marker=a_marker(12), data_after=25)), batch(expected=HANG)],
    ),
    "live transaction of the producer elsewhere": (
        "it holds another partition: no marker is owed to this one",
        [batch(transaction(1, S.ONGOING, PAYMENTS), STRAY), batch(expected=HANG)],
    ),
    "next transaction takes the partition in at the second look": (
        "its marker will close the old data too: not hanging, absorbed",
        [batch(STRAY), batch(HELD), batch()],
    ),
    "taken in at one look and left alone again": (
        "a covered look starts the proof anew: its marker may lie between D and T of the next barrier",
        [batch(STRAY), batch(HELD), batch(COMPLETE), batch(expected=HANG)],
    ),
    "a tombstone for the live id": (
        "the coordinator forgot it",
        [batch(HELD, STRAY), batch(gone(2)), batch(expected=HANG)],
    ),
    "the id has moved on to another producer id": (
        "the old one is complete by that record",
        [
            batch(HELD, STRAY),
            batch(transaction(2, S.COMPLETE_COMMIT, superseded_by=OTHER)),
            batch(expected=HANG),
        ],
    ),
    "the coordinator's log was not answered": (
        "a stale partition of the log proves nothing about an unknown producer id",
        [batch(STRAY, stale_coordinator=frozenset({log_numbered(3)})), batch(), batch(expected=HANG)],
    ),
    "another partition of the log was not answered": (
        "a known id lives on its own log partition only: 3 does not matter, 0 does",
        [
            batch(HELD, STRAY),
            batch(COMPLETE, stale_coordinator=frozenset({log_numbered(0)})),
            batch(stale_coordinator=frozenset({log_numbered(3)})),
            batch(stale_coordinator=frozenset({log_numbered(0)})),
            batch(expected=HANG),
        ],
    ),
    "the partition was not answered at the second look": (
        "D(k+1) is missing: the marker may be in what was not listed",
        [batch(STRAY), batch(stale_data=frozenset({ORDERS})), batch(expected=HANG)],
    ),
    "another partition was not answered": (
        "it has no effect on this one",
        [batch(STRAY), batch(stale_data=frozenset({PAYMENTS}), expected=HANG)],
    ),
    "a limit cut reading short of the second end": (
        "listed is one thing, read to is another",
        [batch(STRAY), batch(limited_data=frozenset({ORDERS})), batch(expected=HANG)],
    ),
    "reading far behind finds the marker later": (
        "hours of backlog: unowned at every T, closed once read",
        [
            batch(STRAY, limited_data=frozenset({ORDERS})),
            batch(limited_data=frozenset({ORDERS})),
            batch(seen(10, 20, marker=a_marker(12))),
        ],
    ),
    "a gap in the partition": (
        "the marker may be in the gap; a re-read that closes it lets the verdict come",
        [
            batch(STRAY),
            batch(notice(NoticeKind.GAP, 10), expected="gap"),
            batch(expected="gap"),
            batch(reread={ORDERS: 10}, expected=HANG),
        ],
    ),
    "a gap whose re-read brings the marker": (
        "and so it did",
        [
            batch(STRAY),
            batch(notice(NoticeKind.GAP, 10), expected="gap"),
            batch(seen(10, 30, marker=a_marker(12)), reread={ORDERS: 10}),
            batch(),
        ],
    ),
    "a gap in the coordinator's log": (
        "unknown producer ids could be in any part of it",
        [
            batch(STRAY),
            batch(log_notice(NoticeKind.GAP, 4, log_partition=2), expected="gap"),
            batch(reread={log_notice(NoticeKind.GAP, 4, log_partition=2).partition: 4}, expected=HANG),
        ],
    ),
    "the open data was truncated away": (
        "nothing is left to hang",
        [batch(STRAY), batch(notice(NoticeKind.TRUNCATED, 5), expected="gap"), batch(expected="gap")],
    ),
    "the topic was deleted": (
        "and its spans with it",
        [batch(STRAY), batch(notice(NoticeKind.DELETED, 0)), batch()],
    ),
    "a topic of the same name was deleted before": (
        "topic ids distinguish them",
        [batch(STRAY), batch(notice(NoticeKind.DELETED, 0, topic_id="an older one"), expected=HANG)],
    ),
}


SHORT = {SpanCandidate: HANG, OutstandingGap: "gap"}


@pytest.mark.parametrize(("why", "timeline"), CASES.values(), ids=CASES.keys())
def test_the_table_of_verdicts(why: str, timeline: list[Batch]) -> None:
    run = BucketRun()
    for number, step in enumerate(timeline, start=1):
        emitted = run.batch(*step.facts, **step.exceptions)
        found = {SHORT[type(finding)] for finding in emitted if type(finding) in SHORT}
        assert found == ({step.expected} if step.expected else set()), f"barrier {number}: {why}"


def test_a_candidate_carries_both_views_and_both_barriers() -> None:
    run = BucketRun()
    run.batch(HELD, STRAY)
    run.batch(COMPLETE, seen(10, 30, marker=a_marker(12), data_after=25))
    (candidate,) = run.batch()
    assert isinstance(candidate, SpanCandidate)
    assert (candidate.first_barrier, candidate.second_barrier) == (2, 3)
    assert candidate.view is not None
    assert candidate.view.transactional_id == NAME
    assert candidate.span.start_offset == 25


def test_a_candidate_is_repeated_with_doubling_pauses_until_it_ends() -> None:
    run = BucketRun()
    run.batch(STRAY)
    reported_at = [run.now_ms for _ in range(40) if run.batch()]
    pauses = [later - earlier for earlier, later in pairwise(reported_at)]
    assert pauses == [1_000, 2_000, 4_000, 8_000]
    (ended,) = run.batch(seen(30, 40, marker=a_marker(35)))
    assert isinstance(ended, SpanEnded)
    assert (ended.how, ended.marker) == (SpanEnd.MARKER, a_marker(35))
    assert [run.batch() for _ in range(5)] == [[]] * 5


def test_an_emitted_span_that_is_absorbed_ends_with_the_marker_of_the_next_transaction() -> None:
    run = BucketRun()
    run.batch(STRAY)
    assert run.batch()
    run.batch(HELD, seen(10, 20, data=15))
    (ended,) = run.batch(COMPLETE, seen(20, 30, marker=a_marker(22, commit=True)))
    assert isinstance(ended, SpanEnded)
    assert ended.how is SpanEnd.ABSORBED


def test_a_span_that_was_never_reported_ends_without_an_event() -> None:
    run = BucketRun()
    run.batch(STRAY)
    assert run.batch(seen(10, 20, marker=a_marker(12))) == []


def test_looks_that_prove_nothing_are_counted_by_why() -> None:
    run = BucketRun()
    run.batch(STRAY, stale_coordinator=frozenset({log_numbered(1)}))
    assert run.counts[0].waiting == (("coordinator_log_not_read_to_its_end", 1),)
    run.batch()
    run.batch(stale_data=frozenset({ORDERS}))
    assert run.counts[0].waiting == (("partition_not_read_to_its_end", 1),)
