"""The transactional id of each producer id that the coordinators' log names, for history: one read of the whole log.

Law: a producer id without a name is unknown, not without an owner. Compaction removes the records with the former
producer ids of a transactional id, and those of an id that has expired. Two transactional ids may have had one producer
id (a log that was restored from a backup): then neither is the answer. What could not be read is a notice beside the
names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    Offset,
    Problem,
    ProducerId,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import logs_of
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import logged_records
from txnwatch.streaming.wire.record_batch import BatchWalker
from txnwatch.streaming.wire.transaction_log import TransactionLogValue


class OwnerNames(NamedTuple):
    """The owners of producer ids, and what of the log could not be read."""

    names: Mapping[ProducerId, str] = {}
    missing: tuple[PartitionNotice, ...] = ()


class NameFold(BatchWalker):
    """The transactional ids of each wanted producer id in a range; a fold for `read_ranges`."""

    def __init__(self, wanted: Collection[ProducerId], start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self._wanted = wanted
        self.names: dict[ProducerId, set[str]] = {}

    def feed(self, buffer: memoryview | bytes) -> None:
        """Reads the records of one Fetch response.

        Raises:
            WireError: bytes that no broker writes.
        """
        for at, header in self.headers(buffer):
            if header.is_control:
                continue
            for record in logged_records(buffer, at, header):
                for producer_id in _producer_ids(record.value):
                    if producer_id in self._wanted:
                        self.names.setdefault(producer_id, set()).add(record.transactional_id)


def _producer_ids(value: TransactionLogValue | None) -> Iterator[ProducerId]:
    """The producer ids that a record names: that of now, the one before it and the one after it."""
    if value is not None:
        yield value.producer_id
        yield from (one for one in (value.previous_producer_id, value.next_producer_id) if one is not None)


def read_owner_names(cluster: Cluster, wanted: Collection[ProducerId]) -> OwnerNames:
    """Reads the whole log for the owners of some producer ids."""
    if not wanted:
        return OwnerNames()
    try:
        cluster.refresh()
        logs = list_extents(cluster, logs_of(cluster))
        fold_of = partial(NameFold, wanted)
        parts = [RangeReading(log.part(), fold_of) for log in logs.values() if isinstance(log, Range)]
        reads = read_parts(cluster, parts)
    except BrokerError as exc:
        return OwnerNames(missing=(_unread(TopicPartition(TRANSACTION_STATE_TOPIC, 0), str(exc)),))
    names: dict[ProducerId, set[str]] = {}
    for read in reads:
        for producer_id, found in read.fold.names.items():
            names.setdefault(producer_id, set()).update(found)
    missing = [_unread(partition, str(log)) for partition, log in logs.items() if isinstance(log, Problem)]
    if not logs:
        missing.append(_unread(TopicPartition(TRANSACTION_STATE_TOPIC, 0), "no broker shows this topic"))
    return OwnerNames(
        {producer_id: next(iter(found)) for producer_id, found in names.items() if len(found) == 1},
        (*missing, *(notice for read in reads for notice in read.notices)),
    )


def _unread(partition: TopicPartition, why: str) -> PartitionNotice:
    detail = f"{why}: transactional ids that only this part of the log names are missing"
    return PartitionNotice(NoticeKind.GAP, partition, "", FIRST_OFFSET, FIRST_OFFSET, detail)
