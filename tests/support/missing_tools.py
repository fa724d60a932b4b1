"""A test without a tool is skipped, or fails where all tools have to be available, as in continuous integration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NoReturn

import pytest

_NO_SKIP = "TXNWATCH_TEST_NO_SKIP"


def skip_or_fail(reason: str, environ: Mapping[str, str] = os.environ, *, variable: str = _NO_SKIP) -> NoReturn:
    """Skips the test; fails it if the variable is 1 or true."""
    if environ.get(variable, "").lower() in {"1", "true"}:
        pytest.fail(f"{reason} ({variable} is set)", pytrace=False)
    pytest.skip(reason)
