"""What the source does in Spark's processes: it plans batches in the driver's process, and runs the plans in tasks.

Apart: this imports what plans and reads, and a process that only creates the source imports datasource.py alone
(decision 0032).

Tasks keep their connections in a module-level cache, because a Python worker outlives its tasks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from txnwatch.state.model.errors import BrokerError
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.lister import Lister, check_access
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import SourceOptions
from txnwatch.streaming.source.rows import unlisted
from txnwatch.streaming.source.tasks import TaskPlan, plan_reads, run_plan


class StreamPlans:
    """Lists the ends for each batch of a streaming query, and plans the batch.

    Attributes:
        latest: the offset of the last listing; None before the first one.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.latest: dict[str, Any] | None = None
        self._lister: Lister | None = None
        self._decoded: deque[tuple[dict[str, Any], SourceOffset]] = deque(maxlen=2)  # a batch has a start and an end

    def beginning(self) -> dict[str, Any]:
        """The offset of a new query."""
        return SourceOffset.beginning().to_json()

    def after(self, start: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """The offset of a new listing; `start` unchanged if nothing is new."""
        lister = self._lister = self._lister or Lister(self.options, _new_cluster(self.options))
        following = lister.next_offset(self._offset(start), limited=limited)
        self.latest = dict(start)
        if following is not None:
            self.latest = following.to_json()
            self._decoded.append((self.latest, following))
        return self.latest

    def of_batch(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[TaskPlan]:
        """The plans of one batch, one per task."""
        if start == end:
            return []
        following = self._offset(end)
        census = self._lister.census_of(following.barrier) if self._lister is not None else None
        plans = plan_reads(self._offset(start), following, self.options, census)
        if self._lister is not None:
            plans[0] = replace(plans[0], throttled_ms=self._lister.take_throttled())
        return plans

    def _offset(self, raw: Mapping[str, Any]) -> SourceOffset:
        """The decoded offset. Spark returns each offset several times, and decoding costs time for each partition."""
        for known, offset in self._decoded:
            if known == raw:
                return offset
        offset = SourceOffset.from_json(raw)
        check_access(offset, self.options)  # also of a batch that was not committed: it is planned without a listing
        self._decoded.append((dict(raw), offset))
        return offset


def whole_range(options: SourceOptions) -> list[TaskPlan]:
    """The plans of a batch query, one per task.

    Raises:
        BrokerError: no broker, or no leader, answers.
    """
    cluster = _new_cluster(options)
    cluster.refresh()
    start = SourceOffset.beginning()
    end = Lister(options, cluster).next_offset(start, limited=False)
    cluster.close()
    if end is None:
        raise BrokerError("no leader returned the ends of its partitions: there is nothing to read")
    plans = plan_reads(start, end.bounded(options.ending_offsets), options)
    return [replace(plans[0], unlisted=unlisted(end)), *plans[1:]]


def _new_cluster(options: SourceOptions) -> Cluster:
    """A cluster client with its own connections."""
    return Cluster(options.bootstrap, options.security, timeout_s=options.list_timeout_s)


def run_here(plan: TaskPlan, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Runs a plan in this worker."""
    return run_plan(plan, options, _shared_cluster(options, "reading"), _shared_cluster(options, "asking"))


_SHARED: dict[tuple[object, ...], Cluster] = {}


def _shared_cluster(options: SourceOptions, purpose: str) -> Cluster:
    """This worker's connections for one purpose.

    Later tasks use them again, because a new connection costs several round trips.
    """
    key = (options.bootstrap, options.security, purpose)
    if key not in _SHARED:
        _SHARED[key] = Cluster(options.bootstrap, options.security)
    return _SHARED[key]
