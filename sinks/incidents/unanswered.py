"""Counts the answers of fresh reads. Reports the reason of an unknown answer once, until it changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from txnwatch.sinks.incidents.confirmation_queue import GONE_MS
from txnwatch.state.evidence.confirmation import Answer
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.state.model.verdicts import Verdict


@dataclass(slots=True)
class ReportedReasons:
    """The last reported reason of each candidate; dropped when the candidate does not come again."""

    _reported: dict[str, tuple[str, TimestampMs]] = field(default_factory=dict)

    def is_new(self, candidate: str, why: str, now_ms: TimestampMs) -> bool:
        """Whether this reason was not reported for the candidate yet; it is remembered."""
        if candidate not in self._reported:
            self._reported = {
                one: (reason, at_ms) for one, (reason, at_ms) in self._reported.items() if now_ms - at_ms < GONE_MS
            }
        was, _ = self._reported.get(candidate, ("", 0))
        self._reported[candidate] = (why, now_ms)
        return was != why

    def settle(self, candidate: str) -> None:
        """Forgets a candidate that has an answer."""
        self._reported.pop(candidate, None)


@dataclass(slots=True)
class Answers:
    """Counts the answers about candidates.

    Attributes:
        counts: confirmations by verdict and answer, for the metrics.
        report: called once with the reason why a candidate could be neither confirmed nor refuted.
    """

    counts: Counter[str]
    report: Callable[[str], None]
    reasons: ReportedReasons = field(default_factory=ReportedReasons)

    def is_confirmed(self, verdict: Verdict, what: str, answer: Answer, why: str, now_ms: TimestampMs) -> bool:
        """Counts an answer. An unknown answer is reported once, because missing evidence must be visible."""
        self.counts[f"{verdict}:{answer}"] += 1
        key = f"{verdict} {what}"
        if answer is not Answer.UNKNOWN:
            self.reasons.settle(key)
        elif self.reasons.is_new(key, why, now_ms):
            self.report(f"{key} can be neither confirmed nor refuted now: {why}")
        return answer is Answer.CONFIRMED
