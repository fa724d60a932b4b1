"""Stray writes: two epochs in one span, or an owner after two barriers without one; reported once, ended once."""

from __future__ import annotations

import itertools

import pytest

from support import batches
from support.facts import NAME, ORDERS, PRODUCER, START_MS, TOPIC_IDS, BucketRun, a_marker, notice, seen, transaction
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.findings import Finding, SpanCandidate, SpanEnd, SpanEnded, StrayWrite
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.streaming.log.partition_fold import PartitionFold

# d0: data of epoch 0, c1: a commit marker of epoch 1; one offset each. Findings: (start, epoch, joined at, by epoch).
LOGS: dict[str, tuple[str, list[tuple[int, int, int, int]]]] = {
    "one epoch": ("d0 d0 c0 d0 c0", []),
    "a marker between the epochs": ("d0 c1 d1 c2", []),
    "left open": ("d0 d1", [(0, 0, 1, 1)]),
    "taken in and committed": ("d0 d1 c1", [(0, 0, 1, 1)]),
    "after a healthy one": ("d0 c0 d0 d0 d2 a3", [(2, 0, 4, 2)]),
    "two epochs on, reported once": ("d0 d1 d2 a3", [(0, 0, 1, 1)]),
    "a healthy one after it": ("d0 d1 c1 d1 c2", [(0, 0, 1, 1)]),
}


def fold(log: list[str], start: int, end: int) -> list[Fact]:
    found = PartitionFold(start, end)
    for offset in range(start, end):
        kind, epoch = log[offset][0], int(log[offset][1:])
        if kind == "d":
            found.feed(batches.a_batch(offset, producer_id=PRODUCER, producer_epoch=epoch))
        else:
            found.feed(batches.a_marker(offset, commit=kind == "c", producer_id=PRODUCER, producer_epoch=epoch))
    return list(found.facts(ORDERS, TOPIC_IDS[ORDERS.topic], START_MS))


def stray(emitted: list[Finding]) -> list[StrayWrite]:
    return [finding for finding in emitted if isinstance(finding, StrayWrite)]


@pytest.mark.parametrize(("text", "expected"), LOGS.values(), ids=LOGS.keys())
def test_two_epochs_in_one_span_are_detected_wherever_the_ranges_end(
    text: str, expected: list[tuple[int, int, int, int]]
) -> None:
    log = text.split()
    for count in range(len(log)):
        for cuts in itertools.combinations(range(1, len(log)), count):
            run = BucketRun()
            emitted: list[Finding] = [*run.batch(transaction(1, S.ONGOING, ORDERS))]
            for start, end in itertools.pairwise((0, *cuts, len(log))):
                emitted.extend(run.batch(*fold(log, start, end)))
            assert [finding.joined[:4] for finding in stray(emitted)] == expected, f"cut at {cuts}"


def test_an_incident_about_absorbed_data_ends_as_absorbed() -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    run.batch(seen(10, 20, data=15, epoch=1))
    (ended,) = [
        finding for finding in run.batch(seen(20, 30, marker=a_marker(25, epoch=1))) if isinstance(finding, SpanEnded)
    ]
    assert (ended.how, ended.span.start_offset) == (SpanEnd.ABSORBED, 5)


def test_in_one_range_the_fact_has_the_marker_too() -> None:
    run = BucketRun()
    (found,) = stray(run.batch(*fold(["d0", "d1", "c1"], 0, 3)))
    assert found.joined.marker is not None
    assert (found.joined.marker.offset, found.joined.marker.commit) == (2, True)


def test_it_is_named_by_the_coordinators_record_of_the_same_batch() -> None:
    (found,) = stray(BucketRun().batch(transaction(1, S.COMPLETE_COMMIT), *fold(["d0", "d1", "c1"], 0, 3)))
    assert found.view is not None
    assert found.view.transactional_id == NAME


def test_an_owner_after_two_barriers_without_one_has_absorbed_it() -> None:
    run = BucketRun()
    assert not stray(run.batch(seen(0, 10, data=5)))
    (found,) = stray(run.batch(transaction(1, S.ONGOING, ORDERS)))
    assert (found.joined.start_offset, found.looks) == (5, (1, 2))
    assert not stray(run.batch(transaction(2, S.ONGOING, ORDERS))), "once"


@pytest.mark.parametrize("exceptions", [{"stale_data": {ORDERS}}, {"limited_data": {ORDERS}}])
def test_an_owner_proves_nothing_where_the_partition_was_not_read_further(exceptions: dict[str, set[object]]) -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    assert not stray(run.batch(transaction(1, S.ONGOING, ORDERS), **exceptions))


def test_an_absorbed_span_can_still_hang_later() -> None:
    run = BucketRun()
    run.batch(seen(0, 10, data=5))
    run.batch(transaction(1, S.ONGOING, ORDERS))
    findings = [*run.batch(transaction(2, S.COMPLETE_ABORT)), *run.batch()]
    assert [candidate.span.start_offset for candidate in findings if isinstance(candidate, SpanCandidate)] == [5]


@pytest.mark.parametrize("kind", [NoticeKind.GAP, NoticeKind.LOST])
@pytest.mark.parametrize("together", [True, False])
def test_a_marker_that_was_not_read_makes_no_stray_write(kind: NoticeKind, *, together: bool) -> None:
    run = BucketRun()
    run.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    later = seen(20, 30, data=21, epoch=1)
    notices = [notice(kind, 10, end=20), later] if together else [notice(kind, 10, end=20)]
    assert not stray([*run.batch(*notices), *run.batch(later)])
