"""A transactional id as its coordinator describes it."""

from __future__ import annotations

import pytest

from txnwatch.state.model.description import DescribedTransaction
from txnwatch.state.model.transaction import TransactionState


@pytest.mark.parametrize(("returned", "expected"), [(-1, None), (0, 0), (7, 7)])
def test_before_the_first_initialization_an_id_has_no_epoch(returned: int, expected: int | None) -> None:
    described = DescribedTransaction("payments", 1, TransactionState.EMPTY, 4711, returned, 60_000)
    assert described.assigned_epoch == expected
