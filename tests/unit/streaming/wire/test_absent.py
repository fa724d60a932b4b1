"""Kafka's value for none stays on the wire."""

from __future__ import annotations

import pytest

from txnwatch.streaming.wire.primitives import encoded, present


@pytest.mark.parametrize(("on_the_wire", "value"), [(-1, None), (0, 0), (7, 7)])
def test_none_is_minus_one_on_the_wire_only(on_the_wire: int, value: int | None) -> None:
    assert present(on_the_wire) == value
    assert encoded(value) == on_the_wire
