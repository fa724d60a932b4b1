"""The table of doubts: every reason why an outcome is unknown has a text, and says what would make it known."""

from __future__ import annotations

import pytest

from txnwatch.state.evidence.outcome import DOUBTS, Doubt
from txnwatch.state.model.incident import OutcomeDoubt


def test_every_doubt_has_a_row() -> None:
    assert list(DOUBTS) == list(OutcomeDoubt)


@pytest.mark.parametrize("kind", OutcomeDoubt)
def test_a_doubt_is_one_sentence_with_its_values_and_what_would_help(kind: OutcomeDoubt) -> None:
    rule = DOUBTS[kind]
    assert Doubt(kind).text == f"{rule.means}; {rule.known_if}"
    assert Doubt(kind, "leader epoch 3").text == f"{rule.means} (leader epoch 3); {rule.known_if}"
    for text in rule:
        assert text
        assert text == text.strip(" .;")


def test_no_two_doubts_have_one_reason() -> None:
    assert len({rule.means for rule in DOUBTS.values()}) == len(DOUBTS)
