"""Each coordinator view names what it does not detect, from one table."""

from __future__ import annotations

import pytest

from txnwatch.state.model.values import CoordinatorAccess
from txnwatch.state.model.verdicts import VERDICTS, Verdict, undetected, undetected_text

LOWER = [CoordinatorAccess.API, CoordinatorAccess.NONE]


def test_a_view_without_the_log_does_not_detect_what_depends_on_the_age_of_a_transaction() -> None:
    assert undetected(CoordinatorAccess.LOG) == ()
    by_age = [row.verdict for row in VERDICTS if row.age_rule is not None]
    assert list(undetected(CoordinatorAccess.API)) == by_age
    assert set(Verdict) - set(undetected(CoordinatorAccess.NONE)) == {Verdict.LATE}


@pytest.mark.parametrize("access", LOWER)
def test_the_text_names_exactly_the_verdicts_that_are_not_detected(access: CoordinatorAccess) -> None:
    named, _, lacks = undetected_text(access).partition(" are not detected; ")
    assert named.replace(" and ", ", ").split(", ") == list(undetected(access))
    assert lacks
