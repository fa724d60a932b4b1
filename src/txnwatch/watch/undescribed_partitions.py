"""Partitions whose leaders do not describe their producers, from what each census says.

Law: a census says which partitions failed, and not which ones were asked. Three rules tell who is described again:
- A scanned partition is asked for again at every barrier (`CensusReason.FAILED`) until it is described.
- A census without a failure is a whole round: every partition that is watched by census is described.
- A round comes every `round_ms`. A partition that no census has named for several rounds was described in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from txnwatch.state.model.findings import CensusIncomplete, CensusReason, CensusWanted, Emitted
from txnwatch.state.model.ids import TopicPartition
from txnwatch.watch.persistent_alerts import LASTING_MS, Lasting

_ROUNDS = 3


@dataclass(slots=True)
class Undescribed:
    """Which partitions are not described.

    Attributes:
        lasting: tells of those that are not described for half a minute.
        round_ms: the pause between two rounds of the census.
        is_heard: whether a census has been heard of.
    """

    lasting: Lasting
    round_ms: int
    is_heard: bool = False
    _scanned: frozenset[TopicPartition] = frozenset()
    _named_ms: dict[TopicPartition, int] = field(default_factory=dict)
    _never: frozenset[TopicPartition] = frozenset()

    def on_barrier(self, emitted: Sequence[Emitted], now_ms: int) -> None:
        """Takes in what one barrier said."""
        self._scanned = frozenset(
            said.partition for said in emitted if isinstance(said, CensusWanted) and said.why is CensusReason.FAILED
        )
        for said in emitted:
            if isinstance(said, CensusIncomplete):
                self._take(said.failed, now_ms)
        self._never &= self.partitions

    def _take(self, failed: Sequence[TopicPartition], now_ms: int) -> None:
        kept_ms = max(LASTING_MS, _ROUNDS * self.round_ms)
        kept = {at: named_ms for at, named_ms in self._named_ms.items() if failed and now_ms - named_ms <= kept_ms}
        self._named_ms = kept | {partition: now_ms for partition in failed if partition not in self._scanned}
        if not self.is_heard:
            self._never = self.partitions
        self.is_heard = True
        self.lasting.told(set(self.partitions))

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Those that the last census that asked them did not describe."""
        return self._scanned | self._named_ms.keys()

    @property
    def unproven(self) -> frozenset[TopicPartition]:
        """Those of which nothing is proven: one failed round of a partition that was described before is no news."""
        return self.partitions & (self.lasting.partitions | self._never)
