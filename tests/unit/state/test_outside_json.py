"""JSON of other programs: one error for everything that is wrong with it."""

from __future__ import annotations

import pytest

from txnwatch.state.text import read_json


@pytest.mark.parametrize(
    "text", ["", "{", "NaN", "[Infinity]", "-Infinity", "1e400", "[" * 100_000, '{"a":' * 100_000, b"\xff", "1" * 5_000]
)
def test_invalid_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


@pytest.mark.parametrize(("text", "value"), [('{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}), (b'"x"', "x")])
def test_json_is_read(text: str | bytes, value: object) -> None:
    assert read_json(text) == value
