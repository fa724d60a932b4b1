"""Names the transactional id of a producer id that no coordinator has any more, from the coordinators' log.

If a transactional id has expired, compaction keeps its last record until it cleans that part of the log, and then a
tombstone, which names no producer id. A first reading of the log leaves idle ids out (first_read_fold.py), so the log
is searched when a hang without an owner is found: all of it, once for several producer ids, by byte strings
(`KeptBatches`). Only the matching batches are held. A read that does not fit into the time budget continues at the
next call.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import FormerOwnersRead
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, Problem, ProducerId
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import KeptBatches, kept_batches, logs_of, needles_of, records_of
from txnwatch.streaming.log.lookups import list_extents, read_parts
from txnwatch.streaming.log.range_reading import RangeReading

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
