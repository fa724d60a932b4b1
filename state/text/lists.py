"""Long lists on one line: the first few names, or one line per reason. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def some(names: Sequence[object], most: int) -> str:
    """The first `most` names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


def by_reason(pairs: Iterable[tuple[str, str]], most: int) -> Iterator[str]:
    """One line per reason of the pairs (what, why), in order of first appearance: the first names, then the reason."""
    reasons: dict[str, list[str]] = {}
    for what, why in pairs:
        reasons.setdefault(why, []).append(what)
    for why, names in reasons.items():
        yield f"{some(names, most)}: {why}"
