"""What a newer broker may answer is a problem in the answer, never an exception that ends the query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from txnwatch.streaming.admin.requests import descriptions, listed_transactions


def answer(state: str) -> Any:
    row = {
        "error_code": 0,
        "transactional_id": "checkout-1",
        "transaction_state": state,
        "producer_id": 7,
        "topics": [],
    }
    times = {"producer_epoch": 0, "transaction_timeout_ms": 1, "transaction_start_time_ms": 1}
    return SimpleNamespace(transaction_states=[SimpleNamespace(**row, **times)])


def test_a_state_that_we_do_not_know_is_a_problem() -> None:
    assert descriptions(answer("Ongoing"), 1)["checkout-1"].problem is None
    problem = descriptions(answer("Frozen"), 1)["checkout-1"].problem
    assert problem is not None
    assert "'Frozen'" in problem


def test_nor_is_a_listing_whole_that_has_one_and_what_is_known_of_it_is_listed() -> None:
    known, unknown = answer("Ongoing").transaction_states, answer("Frozen").transaction_states
    assert listed_transactions(SimpleNamespace(transaction_states=known), 1)[1] is None
    rows, problem = listed_transactions(SimpleNamespace(transaction_states=known + unknown), 1)
    assert [row.state for row in rows] == ["Ongoing"]
    assert problem is not None
    assert "'Frozen'" in problem
