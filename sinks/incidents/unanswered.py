"""Candidates that could be neither confirmed nor refuted: each reason is reported once until it changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from txnwatch.sinks.incidents.confirmation_queue import GONE_MS


@dataclass(slots=True)
class ReportedReasons:
    """The last reported reason of each candidate; dropped when the candidate does not come again."""

    _said: dict[str, tuple[str, int]] = field(default_factory=dict)

    def is_new(self, candidate: str, why: str, now_ms: int) -> bool:
        """Whether this reason was not reported for the candidate yet; it is remembered."""
        if candidate not in self._said:
            self._said = {one: told for one, told in self._said.items() if now_ms - told[1] < GONE_MS}
        was, _ = self._said.get(candidate, ("", 0))
        self._said[candidate] = (why, now_ms)
        return was != why

    def settle(self, candidate: str) -> None:
        """Forgets a candidate that has an answer."""
        self._said.pop(candidate, None)
