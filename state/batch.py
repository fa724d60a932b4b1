"""The facts of one batch, sorted: whatever order they arrive in, they are applied in the same one.

Partition-wide facts come first, then each log's in the order of its offsets, then the census, then the barrier.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, get_args

from txnwatch.state.facts import (
    Barrier,
    Bracket,
    CensusTaken,
    Fact,
    LastStable,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.ids import TopicPartition


class Batch:
    """One batch, sorted.

    Raises:
        ValueError: it does not carry exactly one barrier fact.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        sorts: dict[type, list[Any]] = {kind: [] for kind in get_args(Fact)}
        for fact in facts:
            sorts[type(fact)].append(fact)
        if len(sorts[Barrier]) != 1:
            raise ValueError(f"expected one barrier fact in a batch, found {len(sorts[Barrier])}")
        self.barrier: Barrier = sorts[Barrier][0]
        self.notices: list[PartitionNotice] = sorts[PartitionNotice]
        self.censuses: list[CensusTaken] = sorts[CensusTaken]
        self.described: list[OpenDescribed] = sorts[OpenDescribed]
        self.last_stable: list[LastStable] = sorts[LastStable]
        self.for_awaited: tuple[PartitionNotice | TransactionalIdGone, ...] = (
            *(notice for notice in self.notices if notice.kind is not NoticeKind.GAP),
            *sorts[TransactionalIdGone],
        )
        self.for_one: tuple[ProducerSeen | TransactionSeen, ...] = (
            *sorted(sorts[ProducerSeen], key=lambda fact: (fact.partition, fact.range_start)),
            *sorted(sorts[TransactionSeen], key=lambda fact: (fact.view.log_partition, fact.view.log_offset)),
        )

    def brackets(self) -> Iterable[tuple[TopicPartition, Bracket]]:
        """The partitions of the batch's census, but for those of which the batch reports that reading failed."""
        noticed = {notice.partition for notice in self.notices}
        for census in self.censuses:
            for partition, bracket in census.taken.items():
                if partition not in noticed:
                    yield partition, bracket

    def known_to_round(self) -> Container[TopicPartition] | None:
        """The partitions there are, as a whole round of the census found them; None if there was no round."""
        if not any(census.is_round for census in self.censuses):
            return None
        known = {partition for census in self.censuses for partition in (*census.taken, *census.failed)}
        return known | {notice.partition for notice in self.notices}
