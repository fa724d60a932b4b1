"""Of two gaps, the one counts that is closed later."""

from __future__ import annotations

import pytest

from txnwatch.state.model.values import Gap, Remedy, wider

ASCENDING: list[Gap] = [*Remedy, 0, 5, 9]


@pytest.mark.parametrize("number", range(len(ASCENDING)))
def test_a_remedy_closes_more_than_any_offset_and_a_lower_offset_more_than_a_higher_one(number: int) -> None:
    for other in ASCENDING[number:]:
        assert wider(ASCENDING[number], other) == wider(other, ASCENDING[number]) == ASCENDING[number]
