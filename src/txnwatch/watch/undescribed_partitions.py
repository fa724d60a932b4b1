"""Partitions whose leaders did not describe their producers, from the results of the census.

Law: a census result names the partitions that failed, but not those that were asked. Three rules decide which ones are
described again:
- A scanned partition is requested again at every barrier (`CensusReason.FAILED`) until it is described.
- A census without a failure is a complete round: every partition that a census watches is described.
- A round comes every `round_ms`. A partition that has not failed for three rounds (at least 30 s) was described in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txnwatch.state.model.findings import CensusIncomplete, CensusReason, CensusRequest, Finding
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.watch.persistent_alerts import PERSISTENT_MS, PersistentAlert

_ROUNDS = 3


@dataclass(slots=True)
class Undescribed:
    """The partitions that are not described.

    Attributes:
        alert: reports those that have not been described for 30 s.
        round_ms: the pause between two rounds of the census.
        is_heard: whether any census result has come.
    """

    alert: PersistentAlert
    round_ms: DurationMs
    has_result: bool = False
    _scanned: frozenset[TopicPartition] = frozenset()
    _named_ms: dict[TopicPartition, TimestampMs] = field(default_factory=dict)
    _never: frozenset[TopicPartition] = frozenset()

    def on_barrier(self, emitted: Sequence[Finding], now_ms: TimestampMs) -> None:
        """Updates the partitions with the output of one barrier."""
        self._scanned = frozenset(
            finding.partition
            for finding in emitted
            if isinstance(finding, CensusRequest) and finding.why is CensusReason.FAILED
        )
        for finding in emitted:
            if isinstance(finding, CensusIncomplete):
                self._take(finding.failed, now_ms)
        self._never &= self.partitions

    def _take(self, failed: Sequence[TopicPartition], now_ms: TimestampMs) -> None:
        kept_ms = max(PERSISTENT_MS, self.round_ms * _ROUNDS)
        kept = {at: named_ms for at, named_ms in self._named_ms.items() if failed and now_ms - named_ms <= kept_ms}
        self._named_ms = kept | {partition: now_ms for partition in failed if partition not in self._scanned}
        if not self.has_result:
            self._never = self.partitions
        self.has_result = True
        self.alert.update(set(self.partitions))

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the last census that asked them did not describe."""
        return self._scanned | self._named_ms.keys()

    @property
    def unproven(self) -> frozenset[TopicPartition]:
        """Those about which nothing is proven: partitions that are undescribed for 30 s, or since the first census."""
        return self.partitions & (self.alert.partitions | self._never)
