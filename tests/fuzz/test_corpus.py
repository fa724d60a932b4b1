"""Every kept input is decoded, or refused with a typed error; `make fuzz` looks for more."""

from __future__ import annotations

import pytest

from fuzz.corpus import kept
from fuzz.target import Target
from fuzz.targets import TARGETS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_every_kept_input_is_decoded_or_is_a_typed_error(target: Target) -> None:
    inputs = [*target.first, *kept(target.name)]
    for data in inputs:
        target.try_with(data)
    assert inputs


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_the_first_inputs_are_accepted(target: Target) -> None:
    """From inputs that are refused at once, fuzzing reaches little."""
    for data in target.first:
        target.run(data)


def test_an_error_of_another_type_fails() -> None:
    target = Target("bad", "nothing", lambda data: data[0], (ValueError,), ())
    with pytest.raises(IndexError):
        target.try_with(b"")
