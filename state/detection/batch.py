"""The facts of one batch, sorted: they are always applied in the same order, whatever order they arrive in.

First come partition-wide facts, then the facts of each log by offset, then the tombstones of the coordinators' log,
then the census, then the barrier. A tombstone is the last record of an id, so the records before it count first.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from typing import Any, get_args

from msgspec.structs import replace

from txnwatch.state.model.clocks import both
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
from txnwatch.state.model.values import TopicPartition


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
        self.gone: list[TransactionalIdGone] = sorts[TransactionalIdGone]
        self.for_one: tuple[ProducerSeen | TransactionSeen, ...] = (
            *sorted(sorts[ProducerSeen], key=lambda fact: (fact.partition, fact.range_start)),
            *sorted(sorts[TransactionSeen], key=lambda fact: (fact.view.log_partition, fact.view.log_offset)),
        )

    @property
    def for_awaited(self) -> tuple[PartitionNotice, ...]:
        """Facts that concern every producer with something open; they are applied first."""
        return tuple(notice for notice in self.notices if notice.kind not in KEEPS_WHAT_IS_KNOWN)

    def brackets(self) -> Brackets:
        """The brackets of the batch's census, with the notices as they are now."""
        return Brackets(self.censuses, self.notices)


class Brackets:
    """The partitions for which the batch's census is valid, and those that a complete round did not find.

    Law: a round describes all partitions, and every bucket has it. So a bucket only looks up its own partitions.

    A census is not valid if the log has changed since the census was planned, or if the log should be read as far as
    the census reaches and was not. A census that does not depend on reading stays valid after a loss: a partition
    that is behind may lose a range in every batch, and the leader still knows what is open. If a range could not be
    read, the census replaces the log, whatever was planned; this can also happen in every batch. The deletion of a
    topic does not make the census of a new topic with the same name invalid.
    """

    def __init__(self, censuses: Iterable[CensusTaken], notices: Iterable[PartitionNotice]) -> None:
        self._censuses, noticed = tuple(censuses), tuple(notices)
        harmless = KEEPS_WHAT_IS_KNOWN | {NoticeKind.LOST, NoticeKind.DELETED}
        read = {NoticeKind.GAP, NoticeKind.DELETED}
        self._changed = {notice.partition for notice in noticed if notice.kind not in harmless}
        self._failed = {notice.partition for notice in noticed if notice.kind is NoticeKind.GAP}
        self._unread = {notice.partition for notice in noticed if notice.kind not in read}
        deleted = (notice for notice in noticed if notice.kind is NoticeKind.DELETED)
        self._gone = {(notice.partition, notice.topic_id) for notice in deleted}
        self._noticed = {notice.partition for notice in noticed}
        self.is_round = any(census.is_round for census in self._censuses)

    def of(self, partition: TopicPartition) -> CensusListing | None:
        """The bracket of a partition; None if the census is not valid for it, or has not described it."""
        for census in reversed(self._censuses):
            bracket = census.taken.get(partition)
            if bracket is None or partition in (self._unread if bracket.is_scanned else self._changed):
                continue
            if (partition, bracket.topic_id) not in self._gone:
                is_planned = bracket.is_scanned and partition in self._failed
                return bracket._replace(is_scanned=False, is_behind=True) if is_planned else bracket
        return None

    def described(self, partitions: KeysView[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that the census has described; costs as much as the smaller of the two."""
        return set().union(*(partitions & census.taken.keys() for census in self._censuses))

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of some partitions that no longer exist, as a complete round of the census found."""
        return set(filter(self.is_missing, partitions)) if self.is_round else set()

    def is_missing(self, partition: TopicPartition) -> bool:
        """Whether a complete round of the census found that a partition no longer exists."""
        if not self.is_round or partition in self._noticed:
            return False
        is_known = any(partition in census.taken or partition in census.failed for census in self._censuses)
        return not is_known


def _with_what_others_read(barrier: Barrier, reads: Iterable[LogRead]) -> Barrier:
    """The barrier as if one task had read the whole log."""
    holes, clocks, elected = dict(barrier.holes), dict(barrier.clocks), barrier.elected
    for read in reads:
        holes.update(read.holes)
        elected |= read.elected
        for broker, clock in read.clocks.items():
            clocks[broker] = both(clocks.get(broker), clock)
    return replace(barrier, holes=holes, clocks=clocks, elected=elected)
