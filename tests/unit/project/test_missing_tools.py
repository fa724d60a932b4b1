"""A test without a tool is skipped on a developer's machine, and fails in continuous integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.missing_tools import skip_or_fail

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("value", ["1", "true", "TRUE"])
def test_a_missing_tool_fails_if_no_test_may_be_skipped(value: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"there is no Go \(TXNWATCH_TEST_NO_SKIP is set\)"):
        skip_or_fail("there is no Go", {"TXNWATCH_TEST_NO_SKIP": value})


@pytest.mark.parametrize("environ", [{}, {"TXNWATCH_TEST_NO_SKIP": ""}, {"TXNWATCH_TEST_NO_SKIP": "0"}, {"CI": "1"}])
def test_a_missing_tool_skips_the_test_otherwise(environ: dict[str, str]) -> None:
    with pytest.raises(pytest.skip.Exception, match="there is no Go"):
        skip_or_fail("there is no Go", environ)


def test_continuous_integration_skips_no_test_for_a_missing_tool() -> None:
    assert "export TXNWATCH_TEST_NO_SKIP=1\n" in (ROOT / ".ci" / "run").read_text()
