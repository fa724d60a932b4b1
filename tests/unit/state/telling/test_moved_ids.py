"""What is said about an id whose records are in another partition of the coordinators' log than that of its name."""

from __future__ import annotations

import pytest

from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.telling.moved_ids import MovedId, last_text, moved_text, moved_warning, told_of
from txnwatch.state.telling.statements import StatementKind

MEANS = {
    S.ONGOING: "nothing of it was committed",
    S.PREPARE_COMMIT: "its end was decided",
    S.PREPARE_ABORT: "its end was decided",
    S.PREPARE_EPOCH_FENCE: "its end was decided",
    S.COMPLETE_COMMIT: "no transaction of it was open there",
    S.COMPLETE_ABORT: "no transaction of it was open there",
    S.EMPTY: "no transaction of it was open there",
    S.DEAD: "no transaction of it was open there",
    None: "a tombstone",
}


def moved(last: S | None) -> MovedId:
    return MovedId("checkout-1", 0, 4, 8, last, 7)


@pytest.mark.parametrize("last", [*S, None])
def test_only_a_transaction_whose_end_was_not_decided_was_surely_not_committed(last: S | None) -> None:
    assert MEANS[last] in last_text(moved(last))
    assert moved(last).has_open_end is (last is S.ONGOING)


def test_what_happened_has_both_partitions() -> None:
    text = moved_text(moved(S.ONGOING))
    assert "(KAFKA-7771): the records of this id are in __transaction_state-0" in text
    assert text.endswith("with 8 partitions it belongs to __transaction_state-4.")
    assert "records of 1 id (checkout-1)" in moved_warning("checkout-1", 1)
    assert "records of 3 ids (checkout-1" in moved_warning("checkout-1 and 2 more", 3)


def test_the_step_is_the_marker_with_the_condition_under_which_it_is_right() -> None:
    kinds = [one.kind for one in told_of(moved(S.ONGOING), "txnwatch abort")]
    assert kinds == [StatementKind.OUTCOME, StatementKind.SAFE, StatementKind.NEXT]
    _, safe, step = told_of(moved(S.ONGOING), "txnwatch abort")
    assert "unless its client was told that it is committed" in safe.text
    assert step.command == "txnwatch abort"
