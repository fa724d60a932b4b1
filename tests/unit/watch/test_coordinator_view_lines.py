"""A watch names its coordinator view at the start, the reason, and what it does not detect."""

from __future__ import annotations

from txnwatch.state.model.coordinator_access import NOT_DETECTED, CoordinatorAccess
from txnwatch.streaming.job.coordinator_view import ChosenView
from txnwatch.watch.coordinator_view_lines import view_lines


def test_the_log_needs_no_line() -> None:
    assert list(view_lines(ChosenView(CoordinatorAccess.LOG), None, None)) == []


def test_a_lower_view_has_a_reason_and_what_it_does_not_detect() -> None:
    (line,) = view_lines(ChosenView(CoordinatorAccess.API, ("no right to read",)), None, None)
    assert line == f"coordinator view: api (no right to read): {NOT_DETECTED[CoordinatorAccess.API]}"


def test_without_a_limit_nothing_is_detected_and_that_is_named() -> None:
    view = ChosenView(CoordinatorAccess.NONE)
    assert len(list(view_lines(view, 900_000, None))) == 1
    _, line = view_lines(view, None, "broker 1 does not show it")
    assert line == "nothing is reported at all: broker 1 does not show it; set --max-transaction-timeout-ms"
