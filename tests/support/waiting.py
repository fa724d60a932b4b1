"""Waiting for something that will be so: poll, never sleep for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

_T = TypeVar("_T")
_PAUSE_S = 0.05


def eventually(condition: Callable[[], _T], timeout_s: float, what: str | Callable[[], str]) -> _T:
    """The first true answer of `condition`; the test fails with `what` and the last answer if none comes in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            expected = what if isinstance(what, str) else what()
            pytest.fail(f"waited {timeout_s:.0f} s for {expected}; last answer: {answer!r}")
        time.sleep(_PAUSE_S)
