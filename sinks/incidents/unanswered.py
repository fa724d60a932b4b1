"""Candidates that could be neither confirmed nor refuted: each reason is said once, for as long as it is the reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnwatch.sinks.incidents.confirmation_queue import GONE_MS


@dataclass(slots=True)
class Unanswered:
    """What was said of which candidate; of one that is no longer said itself nothing is kept."""

    _said: dict[str, tuple[str, int]] = field(default_factory=dict)

    def is_news(self, candidate: str, why: str, now_ms: int) -> bool:
        """Whether this reason has not been said of the candidate yet."""
        if candidate not in self._said:
            self._said = {one: told for one, told in self._said.items() if now_ms - told[1] < GONE_MS}
        was, _ = self._said.get(candidate, ("", 0))
        self._said[candidate] = (why, now_ms)
        return was != why

    def settle(self, candidate: str) -> None:
        """It has an answer."""
        self._said.pop(candidate, None)
