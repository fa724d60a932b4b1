"""Limits the bytes and the time of one task's reads; the rest is left to the next batch, with a notice.

Why here and not in the plan: Spark fixes the end of a batch before a task reads, and offsets do not show how many bytes
lie below that end. So a task stops, and reports from which offset on nothing was read. The state keeps that offset,
judges the partition by census in the meantime, and asks the source to continue from there.

Law: a range may always read its share (bytes divided by ranges); what a range does not use goes to the others. So a
small range is read completely, however large the others are, and the total is at most twice the bytes. Every range gets
an answer before it can be stopped, so every batch advances it, and a leader that has changed is always asked whether
the log was truncated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txnwatch.streaming.log.range_read import RangeRead

NO_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits that `reads` share.

    Attributes:
        max_bytes: bytes of records as the leaders send them.
        until_s: a time on the clock of the `now_s` that `stop_spent` gets.
    """

    reads: Sequence[RangeRead]
    max_bytes: int = NO_LIMIT
    until_s: float = float("inf")

    def stop_spent(self, now_s: float) -> None:
        """Stops reads that have an answer, once a limit is reached.

        At the limit of bytes these are the reads that have used their share, at the limit of time all reads.
        """
        is_late = now_s >= self.until_s
        if not is_late and sum(read.size for read in self.reads) < self.max_bytes:
            return
        share = self.max_bytes // max(1, len(self.reads))
        for read in self.reads:
            if read.needs_fetch and read.is_answered and (is_late or read.size >= share):
                read.leave()
