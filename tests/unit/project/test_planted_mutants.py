"""The wrong lines that slow tests plant can still be planted: each names a line that is in the source once."""

from __future__ import annotations

import pytest

from support.mutants import MUTANTS, Mutant, plant


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_wrong_line_can_be_planted(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(mutant, monkeypatch)
