"""Reports missing evidence once, after it has persisted for 30 s.

A shorter absence is only an election, or a topic that is created or deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.ports import Log
from txnwatch.state.model.quantities import DurationMs, TimestampMs
from txnwatch.state.text.lists import some
from txnwatch.streaming.client.clock import wall_clock_ms

PERSISTENT_MS = DurationMs(30_000)
_NAMED = 3


@dataclass(slots=True)
class PersistentAlert:
    """One kind of missing evidence, by partition.

    Attributes:
        what: the problem of the partitions, as text.
        log: receives a warning when partitions have had the problem for 30 s, and a message when none has it any more.
    """

    what: str
    log: Log
    now_ms: Callable[[], TimestampMs] = wall_clock_ms
    _since_ms: dict[TopicPartition, TimestampMs] = field(default_factory=dict)
    _reported: set[TopicPartition] = field(default_factory=set)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that have had the problem for 30 s."""
        return frozenset(self._reported)

    def update(self, partitions: set[TopicPartition]) -> None:
        """Sets the partitions that have the problem now."""
        now_ms = self.now_ms()
        self._since_ms = {partition: self._since_ms.get(partition, now_ms) for partition in partitions}
        persistent = {partition for partition, since_ms in self._since_ms.items() if now_ms - since_ms >= PERSISTENT_MS}
        if persistent - self._reported:
            self.log.warning(f"partitions {self.what}, so nothing is proven there: {some(sorted(persistent), _NAMED)}")
        elif self._reported and not persistent:
            self.log.info(f"resolved: partitions {self.what}")
        self._reported = persistent
