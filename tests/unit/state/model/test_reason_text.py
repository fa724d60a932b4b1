"""The reason of a hang as a sentence: it never says that a marker was lost if no transaction owned the data."""

from __future__ import annotations

import pytest

from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.verdicts import REASON_MEANS, Reason, reason_text

_LOST, _NEVER_OWNED = "marker is missing here", "never owned this data"


@pytest.mark.parametrize(
    ("outcome", "part"),
    [(ExpectedOutcome.NONE, _NEVER_OWNED), (ExpectedOutcome.ABORT, _LOST), (ExpectedOutcome.COMMIT, _LOST)],
)
def test_a_completed_transaction_by_its_outcome(outcome: ExpectedOutcome, part: str) -> None:
    assert part in reason_text(Reason.ALREADY_COMPLETED, outcome)


@pytest.mark.parametrize("reason", Reason)
def test_without_a_known_outcome_both_causes_are_named(reason: Reason) -> None:
    assert reason_text(reason, ExpectedOutcome.UNKNOWN) == REASON_MEANS[reason]
