"""How many random examples the tests run."""

from __future__ import annotations

import pytest

from support import seeds


@pytest.mark.parametrize(("now", "usual", "expected"), [(150, 40, 40), (400, 40, 106), (300, 1, 2), (1, 40, 1)])
def test_the_numbers_are_in_proportion(monkeypatch: pytest.MonkeyPatch, now: int, usual: int, expected: int) -> None:
    monkeypatch.setattr(seeds, "SEEDS", now)
    assert seeds.in_proportion(usual) == expected
