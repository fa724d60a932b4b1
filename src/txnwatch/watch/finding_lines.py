"""Reports findings that an operator should know and that are not incidents: gaps, and a wrong copy of a log.

Law: every finding is counted. A topic that this user may not read has another gap in every micro-batch that finds new
data there. So of the notices of one kind about one partition, at most one a minute is written: the first one at once,
and after a minute the last one, with the number of those that were not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.findings import Finding, PartitionAlarm, ViewHealed
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.streaming.client.clock import wall_clock_ms

PAUSE_MS = DurationMs(60_000)
_Key = tuple[NoticeKind, TopicPartition]


class _Waiting(NamedTuple):
    """The last notice that was not written, and the number of those before it."""

    last: PartitionNotice
    others: int


@dataclass(slots=True)
class FindingLines:
    """Writes the warnings about findings.

    Attributes:
        counts: the number of findings of each kind, with those that were not written.
    """

    log: Log
    counts: Counter[str]
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _written_ms: dict[_Key, TimestampMs] = field(default_factory=dict)
    _waiting: dict[_Key, _Waiting] = field(default_factory=dict)

    def on_batch(self, emitted: Sequence[Finding]) -> None:
        """Counts the findings of one micro-batch, and writes the warnings that are due."""
        for finding in emitted:
            match finding:
                case PartitionAlarm(notice):
                    self.counts[f"partitions {notice.kind}"] += 1
                    key = notice.kind, notice.partition
                    before = self._waiting.get(key)
                    self._waiting[key] = _Waiting(notice, before.others + 1 if before is not None else 0)
                case ViewHealed():
                    self.counts[f"view mismatches ({finding.mismatch})"] += 1
                    self.log.warning(
                        f"producer id {finding.producer_id} on {finding.partition} from {finding.start_offset}: "
                        f"{finding.mismatch} at its leader, but not in our copy of the log; the leader is right"
                    )
        now_ms = self.now_ms()
        for key in [key for key in self._waiting if self._is_due(key, now_ms)]:
            self._written_ms[key] = now_ms
            self._write(self._waiting.pop(key))

    def _is_due(self, key: _Key, now_ms: TimestampMs) -> bool:
        written_ms = self._written_ms.get(key)
        return written_ms is None or not 0 <= now_ms - written_ms < PAUSE_MS

    def _write(self, waiting: _Waiting) -> None:
        last = waiting.last
        where = "" if last.kind is NoticeKind.HIDDEN else f" [{last.from_offset}, {last.to_offset})"
        more = f" ({waiting.others} more since the last line)" if waiting.others else ""
        self.log.warning(f"{last.kind} {last.partition}{where}: {last.detail}{more}")
