"""Kafka's value of an absent id, epoch, offset or time. The code above this package has None instead."""

from __future__ import annotations

from typing import TypeVar

NONE = -1

_T = TypeVar("_T", bound=int)


def present(value: _T) -> _T | None:
    """A value of an answer; None if the broker has none."""
    return None if value < 0 else value


def encoded(value: int | None) -> int:
    """A value of a request."""
    return NONE if value is None else value
