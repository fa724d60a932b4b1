"""How a hanging transaction would have ended: known only where the coordinator's records leave no other owner."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from support.facts import ORDERS, PAYMENTS, START_MS, a_marker, transaction
from support.outcomes import first_leader, said
from txnwatch.state.detection.view import begun, follow
from txnwatch.state.evidence.outcome import expected_outcome
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, Marker, Span
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition

SPAN = Span("orders-id", 50, 0, 0, 55, START_MS, START_MS, 1)
SPAN_1 = replace(SPAN, start_epoch=1, epoch=1)
Record = tuple  # state, producer epoch, start, partitions
INIT = (S.EMPTY, 0, None)


def after(*records: Record) -> CoordinatorView | None:
    """The view after these records of one producer id, read without a gap, in a log without an election."""
    view: CoordinatorView | None = None
    for number, (state, epoch, start_ms, *held) in enumerate(records, 1):
        view = follow(view, begun(recorded(number, state, epoch, start_ms, *held)))
    return view


def recorded(
    offset: int, state: S, epoch: int, start_ms: int | None, *held: TopicPartition, by: int = 0
) -> CoordinatorView:
    """A record of the log, appended under the leader epoch `by`."""
    changes = {"producer_epoch": epoch, "start_ms": start_ms, "coordinator_epoch": by}
    return transaction(offset, state, *held, **changes).view


def ended(
    commit: bool,  # noqa: FBT001 - the one thing every case sets
    *,
    epoch: int = 0,
    end_epoch: int | None = None,
    start: int = 1_000,
    on: tuple[TopicPartition, ...] = (ORDERS,),
) -> list[Record]:
    """One transaction from Ongoing to Complete*."""
    prepare, complete = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    last = epoch if end_epoch is None else end_epoch
    return [(S.ONGOING, epoch, start, *on), (prepare, last, start, *on), (complete, last, start)]


COMMITTED, ABORTED = after(INIT, *ended(True)), after(INIT, *ended(False))
ITS_ABORT, ITS_COMMIT = a_marker(40, commit=False), a_marker(40, commit=True)
BOTH = (ORDERS, PAYMENTS)

CASES: dict[str, tuple[CoordinatorView | None, Span, Marker | None, int | None, str]] = {
    # one transaction since InitProducerId: the epoch is its own
    "committed, the partition never had a marker": (COMMITTED, SPAN, None, None, "commit"),
    "aborted, the partition never had a marker": (ABORTED, SPAN, None, None, "abort"),
    "committed, some marker was there that we did not see": (COMMITTED, SPAN, None, 4, "marker_unknown"),
    "aborted, some marker was there that we did not see": (ABORTED, SPAN, None, 4, "marker_unknown"),
    "aborted with its marker, data after it": (ABORTED, SPAN, ITS_ABORT, 0, "none"),
    "committed with its marker, data after it": (COMMITTED, SPAN, ITS_COMMIT, 0, "none"),
    "the marker before is of another outcome": (ABORTED, SPAN, ITS_COMMIT, 0, "marker_unknown"),
    "timed out: the end raised the epoch": (after(INIT, *ended(False, end_epoch=1)), SPAN, None, None, "abort"),
    "a marker of the epoch before InitProducerId": (
        after((S.EMPTY, 1, None), *ended(True, epoch=1)),
        SPAN_1,
        a_marker(40, epoch=0, commit=True),
        0,
        "commit",
    ),
    # transaction.version 0 and 1: an epoch has many owners
    "aborted, but one before it committed there under the same epoch": (
        after(INIT, *ended(True), *ended(False, start=2_000)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    "the same, timed out, and its marker may be the one before": (
        after(INIT, *ended(True), *ended(False, start=2_000, end_epoch=1)),
        SPAN,
        a_marker(40, commit=True),
        0,
        "epoch_shared",
    ),
    "the same after an abort marker that may be of an even earlier one": (
        after(INIT, *ended(False), *ended(True, start=2_000), *ended(False, start=3_000)),
        SPAN,
        ITS_ABORT,
        0,
        "epoch_shared",
    ),
    "its beginning was not read": (after(*ended(False)[1:]), SPAN, None, None, "epoch_shared"),
    "what came before its beginning was not read": (after(*ended(False)), SPAN, None, None, "epoch_shared"),
    # transaction.version 2: every transaction has its own
    "aborted, and the one before had another epoch": (
        after(INIT, *ended(True, end_epoch=1), *ended(False, epoch=1, end_epoch=2, start=2_000)),
        SPAN_1,
        a_marker(40, epoch=1, commit=True),
        0,
        "abort",
    ),
    "committed, and the one before had another epoch": (
        after(INIT, *ended(True, end_epoch=1), *ended(True, epoch=1, end_epoch=2, start=2_000)),
        SPAN_1,
        a_marker(40, epoch=1, commit=True),
        0,
        "commit",
    ),
    "data of the epoch that its end handed out": (after(INIT, *ended(True, end_epoch=1)), SPAN_1, None, 0, "none"),
    "data of an earlier transaction's epoch": (
        after(INIT, *ended(True, end_epoch=1), *ended(False, epoch=1, end_epoch=2, start=2_000)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    "went over to version 2 under an epoch that had been used": (
        after(INIT, *ended(True), *ended(False, end_epoch=1, start=2_000)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    "went back to version 1: its marker and the one before have one epoch": (
        after(INIT, *ended(True, end_epoch=1), *ended(True, epoch=1, start=2_000)),
        SPAN_1,
        a_marker(40, epoch=1, commit=True),
        0,
        "epoch_shared",
    ),
    "its epoch was raised by the end before, and answered again: both have markers of one epoch": (
        after(INIT, *ended(True, end_epoch=1), (S.EMPTY, 1, None), *ended(True, epoch=1, start=2_000)),
        SPAN_1,
        a_marker(40, epoch=1, commit=True),
        0,
        "epoch_shared",
    ),
    "its epoch was raised by the end before, and answered again, and raised by its own end": (
        after(INIT, *ended(True, end_epoch=1), (S.EMPTY, 1, None), *ended(True, epoch=1, end_epoch=2, start=2_000)),
        SPAN_1,
        a_marker(40, epoch=1, commit=True),
        0,
        "commit",
    ),
    "an abort of nothing has not the partitions of the commit before": (
        after(INIT, *ended(True), (S.COMPLETE_ABORT, 1, 2_000)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    # whose data it is
    "the last transaction held other partitions": (
        after(INIT, *ended(False, on=(PAYMENTS,))),
        SPAN,
        None,
        None,
        "not_a_participant",
    ),
    "it held this one among others": (after(INIT, *ended(False, on=BOTH)), SPAN, None, None, "abort"),
    "two epochs in one span": (ABORTED, replace(SPAN, epoch=1), None, None, "data_mixed"),
    # no transaction
    "initialised under this epoch, nothing was ever added": (after(INIT), SPAN, None, None, "none"),
    "initialised under a later epoch": (after((S.EMPTY, 1, None)), SPAN, None, None, "epoch_shared"),
    # past an InitProducerId: the last transaction before it
    "committed, and initialised anew": (after(INIT, *ended(True), (S.EMPTY, 1, None)), SPAN, None, None, "commit"),
    "aborted, and initialised anew": (after(INIT, *ended(False), (S.EMPTY, 1, None)), SPAN, None, None, "abort"),
    "aborted, and initialised anew twice": (
        after(INIT, *ended(False), (S.EMPTY, 1, None), (S.EMPTY, 2, None)),
        SPAN,
        None,
        None,
        "abort",
    ),
    "aborted with its marker, and initialised anew": (
        after(INIT, *ended(False), (S.EMPTY, 1, None)),
        SPAN,
        ITS_ABORT,
        0,
        "none",
    ),
    "fenced, and a marker of the transaction before": (
        after((S.EMPTY, 1, None), *ended(False, epoch=1, end_epoch=2), (S.EMPTY, 3, None)),
        SPAN_1,
        a_marker(40, epoch=0, commit=True),
        0,
        "abort",
    ),
    "initialised anew after an epoch of several": (
        after(INIT, *ended(True), *ended(False, start=2_000), (S.EMPTY, 1, None)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    "initialised anew, and data of an epoch before the last transaction's": (
        after(INIT, *ended(True, end_epoch=1), *ended(False, epoch=1, end_epoch=2, start=2_000), (S.EMPTY, 3, None)),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    "an InitProducerId that was sent twice, answered after a transaction": (
        after(INIT, *ended(True), INIT),
        SPAN,
        None,
        None,
        "epoch_shared",
    ),
    # nobody knows
    "live elsewhere": (after(INIT, (S.ONGOING, 0, 1_000, PAYMENTS)), SPAN, None, None, "transaction_live"),
    "the coordinator never knew it": (None, SPAN, None, None, "no_record"),
    "the coordinator forgot it": (replace(ABORTED, state=S.DEAD), SPAN, None, None, "id_expired"),
    "the coordinator forgot it before anything was added": (
        replace(after(INIT), state=S.DEAD),
        SPAN,
        None,
        None,
        "id_expired",
    ),
    "moved on to another producer id": (replace(ABORTED, superseded_by=9), SPAN, None, None, "producer_id_superseded"),
    # a Prepare* whose append has failed, and which stays in the log
    "its commit failed, and may be repeated": (after(INIT, *ended(True)[:2]), SPAN, None, None, "transaction_live"),
    "its commit failed, and it was aborted": (
        after(INIT, *ended(True)[:2], *ended(False, end_epoch=1)[1:]),
        SPAN,
        None,
        None,
        "abort",
    ),
    "the same, and it has its abort marker": (
        after(INIT, *ended(True)[:2], *ended(False, end_epoch=1)[1:]),
        SPAN,
        a_marker(40, epoch=1, commit=False),
        0,
        "none",
    ),
    "the abort of its coordinator failed, and it was committed": (
        after(INIT, *ended(False, end_epoch=1)[:2], *ended(True)[1:]),
        SPAN,
        None,
        None,
        "commit",
    ),
    # a log that was read anew from its beginning, all of it under one leader
    "aborted, and the log was read anew": (replace(ABORTED, reading=1), SPAN, None, None, "abort"),
    "initialised, and the log was read anew": (replace(after(INIT), reading=1), SPAN, None, None, "none"),
}


@pytest.mark.parametrize(("view", "span", "marker", "coordinator_epoch", "outcome"), CASES.values(), ids=CASES.keys())
def test_expected_outcome(
    view: CoordinatorView | None, span: Span, marker: Marker | None, coordinator_epoch: int | None, outcome: str
) -> None:
    """None stands for a partition whose whole log has no marker of the producer, and whose leader knows of none."""
    history = SpanHistory(span.start_epoch, marker, is_first=marker is None and coordinator_epoch is None)
    found = expected_outcome(ORDERS, span.epoch, first_leader(view), history, coordinator_epoch)
    assert said(found) == outcome


RAISED = after(INIT, *ended(True, end_epoch=1))
TIMED_OUT = after(INIT, *ended(False, end_epoch=1))
FORGETS: dict[str, tuple[CoordinatorView | None, SpanHistory, int, str]] = {
    "nobody read its beginning": (COMMITTED, SpanHistory(), None, "data_mixed"),
    "the log's beginning is gone, and so may be what its leader knew": (
        COMMITTED,
        SpanHistory(0),
        None,
        "marker_unknown",
    ),
    "the same, but the end raised the epoch: aborted": (TIMED_OUT, SpanHistory(0), None, "abort"),
    "the same, committed: what would publish data has to be seen": (RAISED, SpanHistory(0), None, "marker_unknown"),
    "the same, and its leader knows of a marker that is not there": (RAISED, SpanHistory(0), 0, "marker_unknown"),
    "the log is whole, whatever its leader answers": (COMMITTED, SpanHistory(0, None, True), 3, "commit"),
}


@pytest.mark.parametrize(("view", "history", "coordinator_epoch", "outcome"), FORGETS.values(), ids=FORGETS.keys())
def test_a_forgotten_marker_proves_no_outcome(
    view: CoordinatorView | None, history: SpanHistory, coordinator_epoch: int | None, outcome: str
) -> None:
    assert said(expected_outcome(ORDERS, 0, first_leader(view), history, coordinator_epoch)) == outcome


def test_a_gap_before_a_transaction_may_hide_another_owner_of_its_epoch() -> None:
    begin = recorded(2, S.ONGOING, 0, START_MS, ORDERS)
    assert follow(after(INIT), begun(begin)).epoch_use == "first"
    assert follow(after(INIT), begun(begin), is_consecutive=False).epoch_use == "shared"


def test_the_previous_outcome_is_unknown_if_the_init_is_not_consecutive() -> None:
    unread = follow(ABORTED, begun(recorded(9, S.EMPTY, 1, None)), is_consecutive=False)
    history = SpanHistory(SPAN.start_epoch, None, is_first=True)
    again = follow(ABORTED, unread)  # joined with what was known before the range
    for view in (unread, again):
        assert said(expected_outcome(ORDERS, SPAN.epoch, first_leader(view), history, None)) == "epoch_shared"


def read_in(*ranges: list[Record]) -> CoordinatorView | None:
    """The view after these ranges: each is followed by itself first, as a fold does it, and then joined."""
    known: CoordinatorView | None = None
    number = 0
    for records in ranges:
        view: CoordinatorView | None = None
        for state, epoch, start_ms, *held in records:
            number += 1
            read = begun(recorded(number, state, epoch, start_ms, *held))
            view = read if view is None else follow(view, read)
        assert view is not None
        known = follow(known, view)
    return known


INIT_1, INIT_2, INIT_3 = ((S.EMPTY, epoch, None) for epoch in (1, 2, 3))
TWICE: dict[str, tuple[list[Record], int]] = {
    "answered again after a commit, and aborted": ([INIT_1, INIT_2, *ended(True, epoch=2), INIT_2], 2),
    "the same, and initialised anew": (
        [INIT_1, INIT_2, *ended(True, epoch=2), INIT_2, *ended(False, epoch=2), INIT_3],
        2,
    ),
    "an epoch that an end has raised, answered again": (
        [INIT, *ended(True, end_epoch=1), INIT_1, *ended(True, epoch=1, start=2_000), INIT_2],
        1,
    ),
    "two with one start, as a clock that was set back makes them": ([INIT, *ended(True), *ended(True), INIT_1], 0),
}


@pytest.mark.parametrize(("records", "epoch"), TWICE.values(), ids=TWICE.keys())
def test_an_epoch_that_was_handed_out_twice_has_no_only_owner_wherever_ranges_begin(
    records: list[Record], epoch: int
) -> None:
    history = SpanHistory(epoch, None, is_first=True)
    for cut in range(1, len(records)):
        view = read_in(records[:cut], records[cut:])
        assert said(expected_outcome(ORDERS, epoch, first_leader(view), history, None)) == "epoch_shared", cut
