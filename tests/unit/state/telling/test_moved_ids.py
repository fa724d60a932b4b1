"""What is said about an id whose records are in another partition of the coordinators' log than that of its name."""

from __future__ import annotations

import pytest

from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.telling.moved_ids import MovedId, fence_text, known_text, last_text, moved_text

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


def test_what_happened_has_both_partitions() -> None:
    text = moved_text(moved(S.ONGOING))
    assert "(KAFKA-7771): the records of this id are in __transaction_state-0" in text
    assert text.endswith("with 8 partitions it belongs to __transaction_state-4.")


def test_an_id_that_has_started_again_is_known_under_another_producer_id() -> None:
    assert known_text(moved(S.ONGOING), 7).startswith("Its coordinator still knows it.")
    assert known_text(moved(S.ONGOING), 8).endswith("Its application has started again since, with producer id 8.")


def test_a_fence_would_create_the_id_again() -> None:
    text = fence_text(moved(S.ONGOING))
    assert "A fence would create the id again in __transaction_state-4" in text
    assert "never existed" not in text
