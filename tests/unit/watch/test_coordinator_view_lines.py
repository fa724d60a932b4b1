"""A watch names its coordinator view at the start, the reason, and what it does not detect."""

from __future__ import annotations

import pytest

from support.log_lines import LogLines
from txnwatch.state.model.values import CoordinatorAccess, DurationMs
from txnwatch.state.model.verdicts import undetected_text
from txnwatch.streaming.checks.preflight import ChosenView
from txnwatch.watch.alerts import report_view


def lines(view: ChosenView, longest_timeout_ms: DurationMs | None = None, problem: str | None = None) -> list[str]:
    log = LogLines()
    report_view(log, view, longest_timeout_ms, problem)
    return log


@pytest.mark.parametrize("access", CoordinatorAccess)
def test_every_view_is_named_in_the_first_line(access: CoordinatorAccess) -> None:
    first, *_ = lines(ChosenView(access))
    assert first.removeprefix("warning: ").startswith(f"coordinator view: {access}: ")


def test_the_log_is_the_expected_view_and_no_warning() -> None:
    assert lines(ChosenView(CoordinatorAccess.LOG)) == [
        "coordinator view: log: __transaction_state is read, and every verdict can be detected"
    ]


def test_a_lower_view_has_a_reason_and_what_it_does_not_detect() -> None:
    (line,) = lines(ChosenView(CoordinatorAccess.API, ("no right to read",)))
    assert line == f"warning: coordinator view: api (no right to read): {undetected_text(CoordinatorAccess.API)}"


def test_without_a_limit_nothing_is_detected_and_that_is_named() -> None:
    view = ChosenView(CoordinatorAccess.NONE)
    assert len(lines(view, DurationMs(900_000))) == 1
    _, line = lines(view, None, "broker 1 does not show it")
    assert line == "warning: nothing is reported at all: broker 1 does not show it; set --max-transaction-timeout-ms"
