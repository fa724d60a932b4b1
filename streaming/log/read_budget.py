"""How much one task may read of some ranges: bytes and time. What is over is left, said, and read on in the next batch.

Why here and not in the plan: Spark fixes the end of a batch before a task reads, and no offset tells how many bytes
lie below it. So a task stops, and tells the state from which offset on nothing was read; the state keeps that, judges
the partition by census in the meantime, and asks the source to go on from there.

Law: a range may always read its share (bytes by ranges); what others do not use goes to whoever is left. So a small
range is read whole whatever the large ones hold, and the whole is at most twice the bytes. Every range gets an answer
before it can be stopped, so each batch moves it on, and a leader that has changed is always asked whether the log was
cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnwatch.streaming.log.range_read import RangeRead

NO_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Budget:
    """What `reads` may take together.

    Attributes:
        max_bytes: as their leaders send them.
        until_s: on the clock whose time `stop_spent` is given.
    """

    reads: Sequence[RangeRead]
    max_bytes: int = NO_LIMIT
    until_s: float = float("inf")

    def stop_spent(self, now_s: float) -> None:
        """Stops the reads that have had their part, if the bytes or the time are used up."""
        is_late = now_s >= self.until_s
        if not is_late and sum(read.size for read in self.reads) < self.max_bytes:
            return
        share = self.max_bytes // max(1, len(self.reads))
        for read in self.reads:
            if read.needs_fetch and read.is_answered and (is_late or read.size >= share):
                read.leave()
