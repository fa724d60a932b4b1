"""The bugs that slow tests plant can still be planted: each replaces a function that the product has and uses."""

from __future__ import annotations

import sys

import pytest

from support.mutants import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS.keys())
def test_a_bug_can_be_planted(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(mutant.owner, mutant.name)
    with monkeypatch.context() as patch:
        mutant.plant(patch)
        assert getattr(mutant.owner, mutant.name) is mutant.wrong
        still_right = [
            name
            for name, module in sys.modules.items()
            if name.startswith("txnwatch.state.detection.") and getattr(module, mutant.name, None) is right
        ]
        assert still_right == []
    assert getattr(mutant.owner, mutant.name) is right
