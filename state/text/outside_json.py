"""JSON that another program may have written: one error for everything that is wrong with it."""

from __future__ import annotations

import json
import math
from typing import Any


def read_json(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """The value of a JSON document.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that is not finite.
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise ValueError("expected JSON, found values that are nested too deeply") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number, found {text}")
    return number
