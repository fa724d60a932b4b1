"""Long lists on one line: the first few names, or one line per reason. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

_Why = TypeVar("_Why", bound=Hashable)


def some(names: Sequence[object], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def grouped(pairs: Iterable[tuple[str, _Why]]) -> dict[_Why, list[str]]:
    """The names of the pairs (what, why) by their reason, in order of first appearance."""
    reasons: dict[_Why, list[str]] = {}
    for what, why in pairs:
        reasons.setdefault(why, []).append(what)
    return reasons


def by_reason(pairs: Iterable[tuple[str, str]], most: int) -> Iterator[str]:
    """One line per reason of the pairs (what, why), in order of first appearance: the first names, then the reason."""
    for why, names in grouped(pairs).items():
        yield f"{some(names, most)}: {why}"
