"""The runbook has what the table of statements has: a section for each verdict, a row for each outcome and reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from txnwatch.state.model.incident import ExpectedOutcome
from txnwatch.state.model.verdicts import Reason, Verdict
from txnwatch.state.telling.statements import OUTCOME_WORDS, REASON_MEANS, VERDICT_WORDS

RUNBOOK = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
SECTIONS = {part.partition("\n")[0]: part for part in re.split(r"^## ", RUNBOOK, flags=re.MULTILINE)[1:]}
PARTS = ("**Means.**", "**Check.**", "**Do", "**Do nothing**")


def rows_of(heading: str) -> set[str]:
    """The first cells of the table of a heading, in the section about hangs."""
    table = SECTIONS["hanging"].partition(f"| {heading} |")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE))


@pytest.mark.parametrize("verdict", Verdict)
def test_each_verdict_has_a_section_with_all_parts(verdict: Verdict) -> None:
    assert verdict in VERDICT_WORDS
    assert [part for part in PARTS if part not in SECTIONS[verdict]] == []


def test_the_sections_of_verdicts_are_in_the_order_of_the_table() -> None:
    assert [heading for heading in SECTIONS if heading in set(Verdict)] == list(VERDICT_WORDS)


def test_each_outcome_and_each_reason_has_a_row() -> None:
    assert rows_of("outcome") == set(OUTCOME_WORDS) == set(ExpectedOutcome)
    assert rows_of("reason") == set(REASON_MEANS) == set(Reason)
