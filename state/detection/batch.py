"""The facts of one batch, sorted: they are always applied in the same order, whatever order they arrive in.

First come partition-wide facts, then the facts of each log by offset, then the census, then the barrier.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, get_args

from msgspec.structs import replace

from txnwatch.state.model.broker_clocks import both
from txnwatch.state.model.facts import (
    KEEPS_WHAT_IS_KNOWN,
    Barrier,
    CensusListing,
    CensusTaken,
    Fact,
    LastStable,
    LogRead,
    NoticeKind,
    OpenDescribed,
    PartitionNotice,
    ProducerSeen,
    Throttled,
    TransactionalIdGone,
    TransactionSeen,
)
from txnwatch.state.model.ids import TopicPartition


class Batch:
    """One batch, sorted.

    Raises:
        ValueError: it does not have exactly one barrier fact.
    """

    def __init__(self, facts: Iterable[Fact]) -> None:
        sorts: dict[type, list[Any]] = {kind: [] for kind in get_args(Fact)}
        for fact in facts:
            sorts[type(fact)].append(fact)
        if len(sorts[Barrier]) != 1:
            raise ValueError(f"expected one barrier fact in a batch, found {len(sorts[Barrier])}")
        self.barrier = _with_what_others_read(sorts[Barrier][0], sorts[LogRead])
        self.notices: list[PartitionNotice] = list(dict.fromkeys(sorts[PartitionNotice]))  # without duplicates
        self.censuses: list[CensusTaken] = sorts[CensusTaken]
        self.described: list[OpenDescribed] = sorts[OpenDescribed]
        self.last_stable: list[LastStable] = sorts[LastStable]
        self.throttled: list[Throttled] = sorts[Throttled]
        self._gone: list[TransactionalIdGone] = sorts[TransactionalIdGone]
        self.for_one: tuple[ProducerSeen | TransactionSeen, ...] = (
            *sorted(sorts[ProducerSeen], key=lambda fact: (fact.partition, fact.range_start)),
            *sorted(sorts[TransactionSeen], key=lambda fact: (fact.view.log_partition, fact.view.log_offset)),
        )

    @property
    def for_awaited(self) -> tuple[PartitionNotice | TransactionalIdGone, ...]:
        """Facts that concern every producer with something open; they are applied first."""
        return (*(notice for notice in self.notices if notice.kind not in KEEPS_WHAT_IS_KNOWN), *self._gone)

    def brackets(self) -> Iterable[tuple[TopicPartition, CensusListing]]:
        """The partitions for which the batch's census is valid.

        It is not valid if the log has changed since the census was planned, or if the log should be read as far as the
        census reaches and was not. A loss does not make a census invalid that does not depend on reading: a partition
        that is behind may lose a range in every batch, and the leader still knows what is open. If a range could not be
        read, the census replaces the log, whatever was planned; this, too, may be so in every batch. The deletion of a
        topic does not make the census of a new topic with the same name invalid.
        """
        harmless = KEEPS_WHAT_IS_KNOWN | {NoticeKind.LOST, NoticeKind.DELETED}
        changed = {notice.partition for notice in self.notices if notice.kind not in harmless}
        failed = {notice.partition for notice in self.notices if notice.kind is NoticeKind.GAP}
        read = {NoticeKind.GAP, NoticeKind.DELETED}
        unread = {notice.partition for notice in self.notices if notice.kind not in read}
        gone = {(notice.partition, notice.topic_id) for notice in self.notices if notice.kind is NoticeKind.DELETED}
        for census in self.censuses:
            for partition, bracket in census.taken.items():
                if partition in (unread if bracket.is_scanned else changed) or (partition, bracket.topic_id) in gone:
                    continue
                is_planned = bracket.is_scanned and partition in failed
                yield partition, bracket._replace(is_scanned=False, is_behind=True) if is_planned else bracket

    def known_to_round(self) -> Container[TopicPartition] | None:
        """The partitions that exist, as a complete round of the census found them; None if there was no round."""
        if not any(census.is_round for census in self.censuses):
            return None
        known = {partition for census in self.censuses for partition in (*census.taken, *census.failed)}
        return known | {notice.partition for notice in self.notices}


def _with_what_others_read(barrier: Barrier, reads: Iterable[LogRead]) -> Barrier:
    """The barrier as if one task had read the whole log."""
    holes, clocks = dict(barrier.holes), dict(barrier.clocks)
    for read in reads:
        holes.update(read.holes)
        for broker, clock in read.clocks.items():
            clocks[broker] = both(clocks.get(broker), clock)
    return replace(barrier, holes=holes, clocks=clocks)
