"""Evidence that stays missing is told once; for a while it is only an election, or a topic that comes or goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.text.lists import some
from txnwatch.streaming.client.clock import wall_clock_ms

LASTING_MS = 30_000
_NAMED = 3


@dataclass(slots=True)
class Lasting:
    """One kind of missing evidence, by partition.

    Attributes:
        what: what is wrong with them, in words.
        report: gets a line when partitions have been so for half a minute, and one when none is any more.
    """

    what: str
    report: Callable[[str], None]
    now_ms: Callable[[], int] = wall_clock_ms
    _since_ms: dict[TopicPartition, int] = field(default_factory=dict)
    _said: set[TopicPartition] = field(default_factory=set)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that have been so for half a minute."""
        return frozenset(self._said)

    def told(self, partitions: set[TopicPartition]) -> None:
        """Takes in which partitions are concerned now."""
        now_ms = self.now_ms()
        self._since_ms = {partition: self._since_ms.get(partition, now_ms) for partition in partitions}
        lasting = {partition for partition, since_ms in self._since_ms.items() if now_ms - since_ms >= LASTING_MS}
        if lasting - self._said:
            self.report(f"warning: {self.what}, so nothing is proven there: {some(sorted(lasting), _NAMED)}")
        elif self._said and not lasting:
            self.report(f"this is over: partitions {self.what}")
        self._said = lasting
