"""Records of the events topic that are no events: each is counted; they are said once in a while, with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from txnwatch.state.model.errors import BadEventError, PassedOver

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 60_000, 3_600_000


@dataclass(slots=True)
class PassedOverRecords:
    """Counts them; `say` tells of those that are new, with pauses that grow while more of them come.

    Attributes:
        counts: all there were, by why.
        last: the last of each kind.
    """

    report: Callable[[str], None]
    now_ms: Callable[[], int]
    counts: Counter[PassedOver] = field(default_factory=Counter)
    last: dict[PassedOver, str] = field(default_factory=dict)
    _said: Counter[PassedOver] = field(default_factory=Counter)
    _due_ms: int = 0
    _pause_ms: int = _FIRST_PAUSE_MS

    def take(self, error: BadEventError) -> None:
        """One more."""
        self.counts[error.why] += 1
        self.last[error.why] = str(error)

    def say(self) -> None:
        """Tells how many came since it was told last, if it is time to."""
        now_ms = self.now_ms()
        if now_ms < self._due_ms:
            return
        if self.counts == self._said:
            self._pause_ms = _FIRST_PAUSE_MS
            return
        self.say_all()
        self._due_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)

    def say_all(self) -> None:
        """Tells how many came since it was told last."""
        new = self.counts - self._said
        for why, count in new.items():
            records = "a record" if count == 1 else f"{count} records"
            self.report(f"passing over {records} of the events topic ({why}), the last: {self.last[why]}")
        self._said = self.counts.copy()
