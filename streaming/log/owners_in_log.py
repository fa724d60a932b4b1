"""Whose a producer id is or was, by a read of the whole coordinators' log: for a hang without owner, and for history.

If a transactional id has expired, compaction keeps its last record until it cleans that part of the log, and then a
tombstone, which names no producer id. A first reading of the log leaves idle ids out (first_read_fold.py), so the log
is searched when a hang without an owner is found: all of it, once for several producer ids, by byte strings
(`KeptBatches`). Only the matching batches are held. A read that does not fit into the time budget continues at the
next call. History is read once, without a budget.

Law: a producer id without a name is unknown, not without an owner. Compaction removes the records with the former
producer ids of a transactional id, and those of an id that has expired. Two transactional ids may have had one producer
id (a log that was restored from a backup): then neither is the answer. What could not be read is a problem or a notice
beside the names.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.facts import NoticeKind, PartitionNotice
from txnwatch.state.model.ports import FormerOwnersRead
from txnwatch.state.model.values import (
    FIRST_OFFSET,
    TRANSACTION_STATE_TOPIC,
    Offset,
    Problem,
    ProducerId,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import KeptBatches, kept_batches, logs_of, needles_of, records_of
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import logged_records
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch.streaming.wire.record_batch import BatchWalker

AT_A_TIME = 20  # producer ids: the bytes are searched for each of them
_ANSWER_S = 2.0  # for an answer that is under way when the budget ends
_KEPT_S = 300.0  # then a read that no caller has asked for again is dropped


@dataclass(slots=True)
class _Search:
    """One read of the log for some producer ids."""

    producer_ids: frozenset[ProducerId]
    reads: list[RangeReading[KeptBatches]]
    used_s: float


class FormerOwnersReader:
    """FormerOwners of one cluster; it reads the log for one set of producer ids after the other. Not thread-safe."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._search: _Search | None = None

    def read(self, producer_ids: Collection[ProducerId]) -> FormerOwnersRead:
        """See FormerOwners."""
        until = self._cluster.until
        with self._cluster.budget(until - time.monotonic() + _ANSWER_S):
            try:
                search = self._under_way() or self._begin(producer_ids)
                read_parts(self._cluster, search.reads, until)
            except BrokerError as exc:
                self._search = None
                return FormerOwnersRead({}, str(exc))
        search.used_s = time.monotonic()
        if any(read.needs_fetch for read in search.reads):
            return FormerOwnersRead({})
        self._search = None
        return _answer(search)

    def _under_way(self) -> _Search | None:
        search = self._search
        return search if search is not None and time.monotonic() - search.used_s < _KEPT_S else None

    def _begin(self, producer_ids: Collection[ProducerId]) -> _Search:
        """Lists the log, and begins to read it from its beginning.

        Raises:
            BrokerError: a part of the log cannot be listed, so a record of the producer ids may be there.
        """
        self._cluster.refresh()
        wanted = sorted(producer_ids)[:AT_A_TIME]
        logs = list_extents(self._cluster, logs_of(self._cluster))
        if not logs:
            raise BrokerError(f"{TRANSACTION_STATE_TOPIC}: no broker shows it")
        reads = []
        for partition, log in logs.items():
            if isinstance(log, Problem):
                raise BrokerError(f"{partition}: {log}")
            reads.append(RangeReading(log.part(), kept_batches(needles_of(wanted))))
        self._search = _Search(frozenset(wanted), reads, time.monotonic())
        return self._search


def _answer(search: _Search) -> FormerOwnersRead:
    """The names in a finished read; if a part of it could not be read, it names nobody."""
    problem = next((f"{read.partition}: {read.notices[0].detail}" for read in search.reads if read.notices), None)
    if problem is not None:
        return FormerOwnersRead({}, problem)
    found: dict[ProducerId, set[str]] = {producer_id: set() for producer_id in search.producer_ids}
    for read in search.reads:
        for record in records_of(memoryview(read.fold.kept), read.partition.partition):
            if record.value is not None and record.value.producer_id in found:
                found[record.value.producer_id].add(record.transactional_id)
    return FormerOwnersRead({of: next(iter(names)) if len(names) == 1 else None for of, names in found.items()})


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
