"""An election of the coordinators' log can remove records that nobody has read: which outcomes it makes unknown."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from msgspec.structs import replace

from support.facts import NAME, ORDERS, START_MS
from support.outcomes import said
from txnwatch.state.detection.view import begun, follow
from txnwatch.state.evidence.outcome import Doubt, expected_outcome
from txnwatch.state.model.incident import OutcomeDoubt as D
from txnwatch.state.model.ports import SpanHistory
from txnwatch.state.model.transaction import CoordinatorView, EpochUse, LossProof, Marker, Witness
from txnwatch.state.model.transaction import TransactionState as S

EPOCH = 2


def a_view(state: S, start_ms: int | None = START_MS) -> CoordinatorView:
    return CoordinatorView(
        *(NAME, 3, 9, state, EPOCH, 60_000, start_ms, START_MS, START_MS, frozenset({ORDERS})),
        data_epoch=EPOCH if state is not S.EMPTY else None,
        epoch_use=EpochUse.FIRST,
    )


HANDED_OUT = begun(a_view(S.EMPTY, None))
NEXT = replace(a_view(S.EMPTY, None), producer_epoch=EPOCH + 1, log_offset=10, participants=frozenset())
VIEWS: dict[str, CoordinatorView] = {
    "none": HANDED_OUT,
    "abort": a_view(S.COMPLETE_ABORT),
    "commit": a_view(S.COMPLETE_COMMIT),
}


class Case(NamedTuple):
    """The leader epoch of the record, that of the listing, that of the last marker, and what is said."""

    view: int | None
    log: int | None
    marker: int | None = None
    is_begun_under_it: bool = False
    doubt: D | None = None


E, B, N = D.LOG_ELECTION, D.BEGAN_BEFORE_ELECTION, D.LOG_NOT_LISTED
CASES: dict[str, Case] = {
    "the first leader": Case(0, 0),
    "the first leader, and the span began under it": Case(0, 0, is_begun_under_it=True),
    "the span began under the leader": Case(4, 4, is_begun_under_it=True),
    "the marker below it is of the leader": Case(4, 4, marker=4),
    "both": Case(4, 4, marker=4, is_begun_under_it=True),
    "the marker below it is of an earlier leader, but the span began under the present one": Case(4, 4, 3, True),
    "neither": Case(4, 4, doubt=B),
    "the marker below it is of an earlier leader": Case(4, 4, marker=3, doubt=B),
    "the marker below it is of the first leader": Case(4, 4, marker=0, doubt=B),
    "the marker below it is of a leader that was not listed yet": Case(4, 4, marker=5, doubt=B),
    "the record is of an earlier leader": Case(3, 4, is_begun_under_it=True, doubt=E),
    "the record is of an earlier leader, and so is the marker": Case(3, 4, marker=3, doubt=E),
    "the record is of an earlier leader, and the marker of the present one": Case(3, 4, marker=4, doubt=E),
    "the record is of the first leader, and there is another": Case(0, 1, is_begun_under_it=True, doubt=E),
    "the record is of a leader that was not listed yet": Case(5, 4, is_begun_under_it=True, doubt=E),
    "the epoch of the log is not known": Case(4, None, marker=4, is_begun_under_it=True, doubt=N),
    "the epoch of the log is not known, and the record is of the first leader": Case(0, None, doubt=N),
    "the leader of the record is not known": Case(None, 4, marker=4, is_begun_under_it=True, doubt=E),
    "neither epoch is known": Case(None, None, is_begun_under_it=True, doubt=N),
}


@pytest.mark.parametrize("outcome", VIEWS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_outcome_counts_only_under_one_leader_of_the_log(case: Case, outcome: str) -> None:
    marker = Marker(3, EPOCH - 1, True, case.marker, START_MS) if case.marker is not None else None
    witness = Witness(replace(VIEWS[outcome], coordinator_epoch=case.view), case.log, case.is_begun_under_it)
    history = SpanHistory(EPOCH, marker, is_first=marker is None)
    found = expected_outcome(ORDERS, EPOCH, witness, history, case.marker)
    assert said(found) == (case.doubt if case.doubt is not None else outcome)


@pytest.mark.parametrize("outcome", VIEWS)
@pytest.mark.parametrize(
    ("proof", "doubt"),
    [
        (LossProof.CONNECTION, None),
        (LossProof.NOTHING, D.LEADER_NOT_WATCHED),
    ],
)
@pytest.mark.parametrize("epoch", [0, 4])
def test_where_an_epoch_does_not_show_a_restart_only_the_connection_counts(
    epoch: int, proof: LossProof, doubt: D | None, outcome: str
) -> None:
    """Neither the first leader epoch nor a marker of the present one proves anything there."""
    marker = Marker(3, EPOCH - 1, True, epoch, START_MS)
    witness = Witness(replace(VIEWS[outcome], coordinator_epoch=epoch), epoch, is_begun_under_it=True, proof=proof)
    found = expected_outcome(ORDERS, EPOCH, witness, SpanHistory(EPOCH, marker), epoch)
    assert said(found) == (doubt if doubt is not None else outcome)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("by", "expected"), [(3, D.MARKER_UNKNOWN), (4, "none"), (5, D.MARKER_UNKNOWN)])
def test_only_a_marker_of_the_same_leader_can_be_that_of_the_transaction(
    by: int, expected: str, *, commit: bool
) -> None:
    """An election has removed a transaction whose end had raised the epoch, but not its marker.

    Then InitProducerId returned the epoch again, and the next transaction has a marker of the same epoch.
    """
    ended = VIEWS["commit" if commit else "abort"]
    marker = Marker(3, EPOCH, commit, by, START_MS)
    for view in (
        replace(ended, coordinator_epoch=4),
        follow(replace(ended, coordinator_epoch=4), begun(replace(NEXT, coordinator_epoch=4))),
    ):
        found = expected_outcome(ORDERS, EPOCH, Witness(view, 4, True), SpanHistory(EPOCH, marker), by)
        assert said(found) == expected


@pytest.mark.parametrize(
    ("view_epoch", "log_epoch", "detail"),
    [
        (3, 4, "__transaction_state-3: leader epoch 3 then, 4 now"),
        (4, 4, "__transaction_state-3: leader epoch 4"),
    ],
)
def test_the_doubt_names_the_election(view_epoch: int, log_epoch: int | None, detail: str) -> None:
    witness = Witness(replace(HANDED_OUT, coordinator_epoch=view_epoch), log_epoch)
    found = expected_outcome(ORDERS, EPOCH, witness, SpanHistory(EPOCH, None, is_first=True), None)
    assert isinstance(found, Doubt)
    assert found.detail == detail
    assert f"({detail}); an incident that a watcher had opened before has the outcome" in found.text


def test_an_election_is_no_reason_where_the_record_shows_no_end_anyway() -> None:
    """The reason is the one that would remain without the election."""
    history = SpanHistory(EPOCH, None, is_first=True)
    for state, doubt in ((S.ONGOING, D.TRANSACTION_LIVE), (S.DEAD, D.ID_EXPIRED)):
        witness = Witness(replace(HANDED_OUT, state=state, coordinator_epoch=3), 4)
        assert said(expected_outcome(ORDERS, EPOCH, witness, history, None)) == doubt
    assert said(expected_outcome(ORDERS, EPOCH, Witness(HANDED_OUT, 4), SpanHistory(), None)) == D.DATA_MIXED
