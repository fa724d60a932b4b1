"""Long lists in one line: a few names of many, and one line for each reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def some(names: Sequence[object], most: int) -> str:
    """The first names, at most so many, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def by_reason(told: Iterable[tuple[str, str]], most: int) -> Iterator[str]:
    """One line for each reason of (what, why), in the order of their first: some of what it is said of, and the why."""
    reasons: dict[str, list[str]] = {}
    for what, why in told:
        reasons.setdefault(why, []).append(what)
    for why, names in reasons.items():
        yield f"{some(names, most)}: {why}"
