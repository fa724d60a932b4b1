"""The reason of a hang as a sentence: it agrees with the expected outcome."""

from __future__ import annotations

import pytest

from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.verdicts import Reason
from txnwatch.state.telling.statements import REASON_MEANS, reason_text

COMPLETED, NOT_STARTED = Reason.ALREADY_COMPLETED, Reason.NOT_STARTED


@pytest.mark.parametrize("reason", [COMPLETED, NOT_STARTED])
@pytest.mark.parametrize("outcome", [ExpectedOutcome.ABORT, ExpectedOutcome.COMMIT])
def test_if_a_transaction_owned_the_data_its_marker_is_missing(reason: Reason, outcome: ExpectedOutcome) -> None:
    text = reason_text(reason, outcome)
    assert text.endswith("is missing here")
    assert "stray" not in text


@pytest.mark.parametrize("reason", [COMPLETED, NOT_STARTED])
def test_if_no_transaction_owned_the_data_no_marker_was_lost(reason: Reason) -> None:
    assert "marker" not in reason_text(reason, ExpectedOutcome.NONE)


@pytest.mark.parametrize("reason", [one for one in Reason if one is not NOT_STARTED])
def test_without_a_known_outcome_every_cause_is_named(reason: Reason) -> None:
    assert reason_text(reason, ExpectedOutcome.UNKNOWN) == REASON_MEANS[reason]


def test_an_id_that_was_initialised_since_may_have_owned_the_data() -> None:
    text = reason_text(NOT_STARTED, ExpectedOutcome.UNKNOWN)
    assert "of a transaction before" in text
    assert "a stray write" in text
