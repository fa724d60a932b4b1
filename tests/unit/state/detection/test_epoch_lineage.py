"""Who used an epoch: what a record inherits, what it does not across an election, and which epochs are unused."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PAYMENTS, transaction
from support.outcome_life import decision_with
from support.outcomes import first_leader, said
from txnwatch.state.detection.view import begun, follow, is_begun_anew, is_unused
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.facts import FirstDecision
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import UNKNOWN_PREVIOUS, CoordinatorView, EpochUse
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import ProducerEpoch

Record = tuple[Any, ...]  # state, producer epoch, start, partitions
COMMIT, ABORT = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)


def read(offset: int, record: Record, by: int = 0) -> CoordinatorView:
    """The first record of a range, appended under the leader epoch `by`."""
    state, epoch, start_ms, *held = record
    fact = transaction(offset, state, *held, producer_epoch=epoch, start_ms=start_ms, coordinator_epoch=by)
    return begun(fact.view)


def after(records: Iterable[Record], by: Iterable[int] | None = None) -> CoordinatorView:
    """The view after records that were read in one range without a gap."""
    known: CoordinatorView | None = None
    listed = list(records)
    for offset, (record, leader) in enumerate(zip(listed, by or [0] * len(listed), strict=True)):
        view = read(offset, record, leader)
        known = view if known is None else follow(known, view)
    assert known is not None
    return known


def in_ranges(records: list[Record], cuts: Iterable[int]) -> CoordinatorView:
    """The view after ranges that are joined one after the other."""
    known: CoordinatorView | None = None
    for start, end in pairwise((0, *cuts, len(records))):
        view: CoordinatorView | None = None
        decided: FirstDecision | None = None
        for offset in range(start, end):
            one = read(offset, records[offset])
            decided = decision_with(decided, one, view, is_consecutive=True)
            view = one if view is None else follow(view, one)
        assert view is not None
        known = follow(known, view, decided)
    assert known is not None
    return known


def init(epoch: int) -> Record:
    return (S.EMPTY, epoch, None)


def ended(states: tuple[S, S], epoch: int, end_epoch: int | None = None, start_ms: int = 1_000) -> list[Record]:
    """One transaction on `orders`, from Ongoing to Complete*."""
    prepare, complete = states
    last = epoch if end_epoch is None else end_epoch
    return [(S.ONGOING, epoch, start_ms, ORDERS), (prepare, last, start_ms, ORDERS), (complete, last, start_ms)]


# By the last record: what it follows, and the use of its epoch if both are of one leader.
KINDS: dict[str, tuple[list[Record], Record, EpochUse]] = {
    "Ongoing": ([init(1)], (S.ONGOING, 1, 1_000, ORDERS), EpochUse.FIRST),
    "Ongoing after an end that raised the epoch": (
        [init(0), *ended(COMMIT, 0, 1)],
        (S.ONGOING, 1, 2_000, ORDERS),
        EpochUse.RAISED,
    ),
    "Ongoing with one more partition": (
        [init(1), (S.ONGOING, 1, 1_000, PAYMENTS)],
        (S.ONGOING, 1, 1_000, ORDERS),
        EpochUse.FIRST,
    ),
    "Prepare*": ([init(1), *ended(COMMIT, 1)[:1]], ended(COMMIT, 1)[1], EpochUse.FIRST),
    "Complete*": ([init(1), *ended(ABORT, 1)[:2]], ended(ABORT, 1)[2], EpochUse.FIRST),
}


@pytest.mark.parametrize(("before", "last", "use"), KINDS.values(), ids=KINDS.keys())
def test_a_record_inherits_the_use_of_its_epoch_only_from_one_of_its_leader(
    before: list[Record], last: Record, use: EpochUse
) -> None:
    leaders = [0] * len(before)
    assert after([*before, last], [*leaders, 0]).epoch_use is use
    elected = after([*before, last], [*leaders, 1])
    assert (elected.epoch_use, elected.coordinator_epoch) == (EpochUse.SHARED, 1)


@pytest.mark.parametrize("is_elected", [True, False])
def test_the_data_epoch_of_an_end_is_not_known_after_an_election(*, is_elected: bool) -> None:
    records = [init(0), *ended(COMMIT, 0, 1)]
    view = after(records, [0, 0, 0, int(is_elected)])
    assert view.data_epoch == (None if is_elected else 0)
    assert is_unused(view, 1) is not is_elected


@pytest.mark.parametrize("leaders", [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 2)])
def test_a_complete_record_keeps_the_partitions_across_elections(leaders: tuple[int, ...]) -> None:
    """They are those of its own Prepare*, which has the same start; the reason of a hang depends on them."""
    assert after([init(0), *ended(COMMIT, 0)], leaders).participants == {ORDERS}


@pytest.mark.parametrize(("leader", "previous"), [(0, ("commit", 0)), (1, (UNKNOWN_PREVIOUS, None))])
def test_an_init_inherits_the_end_before_it_only_from_one_of_its_leader(
    leader: int, previous: tuple[str, int | None]
) -> None:
    view = after([init(0), *ended(COMMIT, 0), init(1)], [0, 0, 0, 0, leader])
    assert (view.previous_outcome, view.previous_end_epoch) == previous
    assert view.participants == {ORDERS}
    assert (view.epoch_use, view.first_unused) == (EpochUse.FIRST, 1), "its own epoch is unused all the same"


@pytest.mark.parametrize(("leader", "lowest"), [(0, 3), (1, 4)])
def test_an_init_inherits_unused_epochs_only_from_one_of_its_leader(leader: int, lowest: int) -> None:
    assert after([init(3), init(4)], [0, leader]).first_unused == lowest


@pytest.mark.parametrize(("leader", "lowest"), [(0, 3), (1, None)])
def test_an_epoch_that_is_returned_again_after_an_election_may_have_been_used(leader: int, lowest: int | None) -> None:
    view = after([init(3), init(3)], [0, leader])
    assert view.first_unused == lowest
    assert view.epoch_use is (EpochUse.FIRST if lowest is not None else EpochUse.SHARED)


def test_an_election_within_a_range_counts_as_one_between_two_ranges() -> None:
    records, leaders = [init(0), *ended(ABORT, 0), init(1)], [0, 0, 0, 1, 1]
    for cut in range(1, len(records)):
        first = after(records[:cut], leaders[:cut])
        second: CoordinatorView | None = None
        for offset in range(cut, len(records)):
            one = read(offset, records[offset], leaders[offset])
            second = one if second is None else follow(second, one)
        assert second is not None
        joined = follow(first, second)
        assert joined.previous_outcome == UNKNOWN_PREVIOUS, cut
        assert joined.first_unused == 1, cut


# The records, and by epoch: "none" if no transaction owns its data, else the outcome or the doubt.
UNUSED: dict[str, tuple[list[Record], dict[int, str]]] = {
    "handed out": ([init(3)], {2: "epoch_shared", 3: "none", 4: "epoch_shared"}),
    "fenced once before anything began": ([init(3), init(4)], {2: "epoch_shared", 3: "none", 4: "none"}),
    "fenced twice": ([init(3), init(4), init(5)], {3: "none", 4: "none", 5: "none", 6: "epoch_shared"}),
    "raised by an end": ([init(0), *ended(COMMIT, 0, 1)], {0: "commit", 1: "none", 2: "epoch_shared"}),
    "raised by an end, and fenced": (
        [init(0), *ended(COMMIT, 0, 1), init(2)],
        {0: "commit", 1: "none", 2: "none", 3: "epoch_shared"},
    ),
    "raised by an end, and fenced twice": (
        [init(0), *ended(ABORT, 0, 1), init(2), init(3)],
        {0: "abort", 1: "none", 2: "none", 3: "none"},
    ),
    "raised by an end, and the raised epoch returned again": (
        [init(0), *ended(ABORT, 0, 1), init(1)],
        {0: "abort", 1: "none", 2: "epoch_shared"},
    ),
    "not raised by its end, and fenced": (
        [init(0), *ended(ABORT, 0), init(1)],
        {0: "abort", 1: "none", 2: "epoch_shared"},
    ),
    "timed out after a fence": (
        [init(0), init(1), *ended(ABORT, 1, 2), init(3)],
        {0: "epoch_shared", 1: "abort", 2: "none", 3: "none"},
    ),
    "used by two, and fenced": (
        [init(0), *ended(COMMIT, 0), *ended(ABORT, 0, start_ms=2_000), init(1)],
        {0: "epoch_shared", 1: "none"},
    ),
    "returned again after a transaction": ([init(3), *ended(COMMIT, 3), init(3)], {3: "epoch_shared"}),
    "the same, and fenced": ([init(3), *ended(COMMIT, 3), init(3), init(4)], {4: "none"}),
}


@pytest.mark.parametrize(("records", "said_of"), UNUSED.values(), ids=UNUSED.keys())
def test_an_epoch_under_which_nothing_has_begun_stays_without_an_owner_wherever_ranges_begin(
    records: list[Record], said_of: dict[int, str]
) -> None:
    cuts = [cut for count in (0, 1, 2) for cut in combinations(range(1, len(records)), count)]
    for cut in cuts:
        view = in_ranges(records, cut)
        found = {
            epoch: said(
                expected_outcome(ORDERS, epoch, first_leader(view), SpanHistory(epoch, None, is_first=True), None)
            )
            for epoch in said_of
        }
        assert all(found[epoch] in {said_of[epoch], "epoch_shared"} for epoch in said_of), (cut, found)
        if not cut:
            assert found == said_of


# Two transactions in a row, and the use of the epoch of the second.
NEXT: dict[str, tuple[list[Record], EpochUse]] = {
    "each end raises the epoch": ([init(0), *ended(COMMIT, 0, 1), *ended(COMMIT, 1, 2, 2_000)], EpochUse.RAISED),
    "the same, in one millisecond": ([init(0), *ended(COMMIT, 0, 1), *ended(COMMIT, 1, 2)], EpochUse.RAISED),
    "the second end does not raise it": ([init(0), *ended(COMMIT, 0, 1), *ended(COMMIT, 1, 1, 2_000)], EpochUse.SHARED),
    "the first end does not raise it": ([init(0), *ended(COMMIT, 0), *ended(COMMIT, 0, 1, 2_000)], EpochUse.SHARED),
    "no end raises it": ([init(0), *ended(ABORT, 0), *ended(COMMIT, 0, 0, 2_000)], EpochUse.SHARED),
    "no end raises it, in one millisecond": ([init(0), *ended(ABORT, 0), *ended(COMMIT, 0)], EpochUse.SHARED),
    "an end of nothing between": (
        [init(0), *ended(COMMIT, 0, 1), *ended(ABORT, 2, 2)[1:], *ended(COMMIT, 2, 3, 2_000)],
        EpochUse.SHARED,
    ),
}


@pytest.mark.parametrize(("records", "use"), NEXT.values(), ids=NEXT.keys())
def test_the_use_of_an_epoch_is_known_although_a_range_begins_within_the_transaction_before(
    records: list[Record], use: EpochUse
) -> None:
    for seen in range(len(records) - 2, len(records) + 1):
        whole = after(records[:seen])
        for cut in range(1, seen):
            view = in_ranges(records[:seen], [cut])
            assert (view.epoch_use, view.data_epoch) == (whole.epoch_use, whole.data_epoch), (seen, cut)
    assert whole.epoch_use is use


@pytest.mark.parametrize("start_ms", [1_000, 1_001])
@pytest.mark.parametrize("states", [COMMIT, ABORT])
def test_an_epoch_that_is_returned_again_after_a_transaction_is_shared_wherever_ranges_begin(
    states: tuple[S, S], start_ms: int
) -> None:
    """Also if both transactions began in one millisecond, and if a range is read again from an earlier offset."""
    records = [init(0), *ended(COMMIT, 0), init(0), *ended(states, 0, start_ms=start_ms)]
    for seen in range(6, len(records) + 1):
        for cut in range(1, seen):
            known = in_ranges(records[:seen], [cut])
            assert known.epoch_use is EpochUse.SHARED, (seen, cut)
            for again in range(1, cut + 1):
                assert follow(known, after(records[again:seen])).epoch_use is EpochUse.SHARED, (seen, cut, again)


def test_the_use_of_an_epoch_is_not_known_if_the_end_of_the_transaction_before_may_be_missing() -> None:
    records = [init(0), *ended(COMMIT, 0, 1), (S.ONGOING, 1, 2_000, ORDERS)]
    first, rest = after(records[:2]), after(records[2:])
    assert rest.epoch_use is EpochUse.NEXT
    prepared = decision_with(None, read(2, records[2]), None, is_consecutive=True)
    assert prepared is not None
    decided = decision_with(prepared, read(3, records[3]), None, is_consecutive=True)
    assert decided is not None
    assert follow(first, rest, decided).epoch_use is EpochUse.RAISED
    unproven: dict[str, tuple[CoordinatorView | None, FirstDecision | None, bool]] = {
        "nothing was known before": (None, decided, True),
        "records before the range are missing": (first, decided, False),
        "records in the range are missing": (first, decided._replace(is_first=False), True),
        "the end was not read": (first, None, True),
        "the decision can be taken back": (first, prepared, True),
        "the end is of another transaction": (first, decided._replace(start_ms=999), True),
        "the end gives another producer id": (first, decided._replace(producer_epoch=None), True),
        "another leader has appended the end": (replace(first, coordinator_epoch=9), decided, True),
    }
    for why, (prior, end, is_consecutive) in unproven.items():
        assert follow(prior, rest, end, is_consecutive=is_consecutive).epoch_use is EpochUse.SHARED, why


@pytest.mark.parametrize("records", [[init(3), init(4)], [init(0), *ended(COMMIT, 0, 1), init(2)]])
def test_unused_epochs_are_not_inherited_across_a_gap(records: list[Record]) -> None:
    *before, last = records
    view = follow(after(before), read(9, last), is_consecutive=False)
    assert view.first_unused == last[1]
    assert [is_unused(view, epoch) for epoch in range(last[1])] == [False] * last[1]


def test_an_epoch_that_is_returned_again_after_a_gap_may_have_been_used() -> None:
    view = follow(after([init(3)]), read(9, init(3)), is_consecutive=False)
    assert (view.epoch_use, view.first_unused, is_unused(view, 3)) == (EpochUse.SHARED, None, False)


def test_the_end_before_an_init_is_not_known_after_a_gap_before_the_range() -> None:
    view = follow(None, after([init(1), *ended(ABORT, 1), init(2)]), is_consecutive=False)
    assert (view.previous_outcome, view.previous_end_epoch) == (UNKNOWN_PREVIOUS, None)
    history = SpanHistory(1, None, is_first=True)
    assert said(expected_outcome(ORDERS, 1, first_leader(view), history, None)) == "epoch_shared"


def test_a_producer_id_that_its_id_has_left_has_no_unused_epoch() -> None:
    view = after([init(3)])
    assert is_unused(view, 3)
    assert not is_unused(replace(view, superseded_by=9), 3)


@pytest.mark.parametrize(
    ("records", "of", "expected"),
    [
        ([init(6)], 6, True),
        ([(S.COMPLETE_COMMIT, 5, 7), init(6)], 5, False),
        ([(S.COMPLETE_COMMIT, 5, 7), init(6)], 6, True),
        ([(S.COMPLETE_COMMIT, 5, 7), init(6), init(7)], 5, False),
    ],
    ids=["nothing is known", "of the last known transaction", "handed out after it", "after two fences"],
)
def test_a_fence_does_not_make_a_past_transaction_one_that_never_began(
    records: list[Record], of: int, *, expected: bool
) -> None:
    assert is_begun_anew(after(records), ProducerEpoch(of)) is expected
