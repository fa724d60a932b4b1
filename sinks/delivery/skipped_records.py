"""Counts the invalid records of the events topic, and reports their number from time to time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from txnwatch.state.model.backoff import doubled
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.quantities import AT_ONCE, DurationMs, TimestampMs

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = DurationMs(60_000), DurationMs(3_600_000)


@dataclass(slots=True)
class SkippedRecords:
    """Counts skipped records; `report_when_due` reports new ones, with pauses that grow while more of them come.

    Attributes:
        counts: all skipped records, by the reason.
        last: the last one of each reason, as a text.
    """

    report: Callable[[str], None]
    now_ms: Callable[[], TimestampMs]
    counts: Counter[SkipReason] = field(default_factory=Counter)
    last: dict[SkipReason, str] = field(default_factory=dict)
    _reported: Counter[SkipReason] = field(default_factory=Counter)
    _due_ms: TimestampMs = AT_ONCE
    _reports: int = 0

    def take(self, error: BadEventError) -> None:
        """Counts one more."""
        self.counts[error.why] += 1
        self.last[error.why] = str(error)

    def report_when_due(self) -> None:
        """Reports how many came since the last report, if the pause is over."""
        now_ms = self.now_ms()
        if now_ms < self._due_ms:
            return
        if self.counts == self._reported:
            self._reports = 0
            return
        self.report_new()
        self._due_ms = now_ms + doubled(_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS, self._reports)
        self._reports += 1

    def report_new(self) -> None:
        """Reports how many came since the last report."""
        new = self.counts - self._reported
        for why, count in new.items():
            records = "a record" if count == 1 else f"{count} records"
            self.report(f"skipped {records} of the events topic ({why}), the last: {self.last[why]}")
        self._reported = self.counts.copy()
