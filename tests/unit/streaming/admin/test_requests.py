"""What a newer broker may answer is a problem in the answer, never an exception that ends the query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from support.problems import a_problem
from txnwatch.state.model.transaction import DescribedTransaction, NotDescribed, UnknownTransactionalId
from txnwatch.state.model.values import Problem
from txnwatch.streaming.admin.transaction_requests import DESCRIBE_IDS, descriptions, listed_transactions


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
    assert isinstance(descriptions(answer("Ongoing"), 1)["checkout-1"], DescribedTransaction)
    found = descriptions(answer("Frozen"), 1)["checkout-1"]
    assert isinstance(found, NotDescribed)
    assert "'Frozen'" in str(found.problem)


@pytest.mark.parametrize(("returned", "expected"), [(-1, None), (0, 0), (5, 5)])
def test_a_start_that_the_coordinator_does_not_have_is_none(returned: int, expected: int | None) -> None:
    response = answer("Empty")
    response.transaction_states[0].transaction_start_time_ms = returned
    found = descriptions(response, 1)["checkout-1"]
    assert isinstance(found, DescribedTransaction)
    assert found.start_ms == expected


@pytest.mark.parametrize(("returned", "expected"), [(-1, None), (0, 0), (5, 5)])
def test_before_the_first_initialization_an_id_has_no_epoch(returned: int, expected: int | None) -> None:
    response = answer("Empty")
    response.transaction_states[0].producer_epoch = returned
    found = descriptions(response, 1)["checkout-1"]
    assert isinstance(found, DescribedTransaction)
    assert found.producer_epoch == expected


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_a_live_transaction_without_an_epoch_is_a_problem(state: str) -> None:
    response = answer(state)
    response.transaction_states[0].producer_epoch = -1
    expected = NotDescribed("checkout-1", Problem(f"found the state {state} without a producer epoch"))
    assert descriptions(response, 1) == {"checkout-1": expected}


def test_an_error_has_its_code_and_an_unknown_id_is_no_error() -> None:
    response = answer("Ongoing")
    for code, expected in (
        (53, NotDescribed("checkout-1", a_problem("TRANSACTIONAL_ID_AUTHORIZATION_FAILED").with_right(DESCRIBE_IDS))),
        (105, UnknownTransactionalId("checkout-1", 1)),
    ):
        response.transaction_states[0].error_code = code
        assert descriptions(response, 1) == {"checkout-1": expected}


def test_nor_is_a_listing_whole_that_has_one_and_what_is_known_of_it_is_listed() -> None:
    known, unknown = answer("Ongoing").transaction_states, answer("Frozen").transaction_states
    assert listed_transactions(SimpleNamespace(transaction_states=known), 1)[1] is None
    rows, problem = listed_transactions(SimpleNamespace(transaction_states=known + unknown), 1)
    assert [row.state for row in rows] == ["Ongoing"]
    assert problem is not None
    assert "'Frozen'" in str(problem)
