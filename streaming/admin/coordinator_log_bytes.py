"""How many bytes the coordinators' log has, and how many are appended to it in a second.

`write_rates.py` cannot estimate this log: compaction removes most of its offsets, so its size divided by its offsets is
far below the size of a record. Here the size of a record is that of the newest records, which this user may read if
`run` may.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import Offset, TimestampMs
from txnwatch.streaming.admin.write_rates import WINDOW_MS, leader_sizes
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.log.batch_list import BatchList
from txnwatch.streaming.log.log_extent import Extent, list_extents, read_parts
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader

_SAMPLED = 100  # newest offsets of each partition: about 15 kB


@dataclass(frozen=True, slots=True)
class LogBytes:
    """The bytes of the coordinators' log.

    Attributes:
        per_second: the bytes that were appended per second in the last hour.
        size: the bytes of the whole log at its leaders; None if a broker does not show it.
        unread: the number of partitions whose rate is not known.
        problem: the first problem of a broker with the size.
    """

    per_second: float = 0.0
    size: int | None = 0
    unread: int = 0
    problem: Problem | None = None


def coordinator_log_bytes(cluster: Cluster, now_ms: TimestampMs) -> LogBytes:
    """Reads the newest records of each partition of the known metadata; a log that does not exist has no bytes."""
    topic = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    if topic is None:
        return LogBytes()
    partitions = [TopicPartition(topic.name, number) for number in topic.partitions]
    extents, since = list_extents(cluster, partitions), cluster.offsets_since(partitions, now_ms - WINDOW_MS)
    logs = {partition: log for partition, log in extents.items() if isinstance(log, Extent)}
    parts = [log.part(_newest, Offset(log.end - _SAMPLED)) for log in logs.values()]
    sampled = {read.partition: [header for header, _ in read.fold.found] for read in read_parts(cluster, parts)}
    rates = [_per_second(logs.get(one), since[one], sampled.get(one, [])) for one in partitions]
    sizes, problem = leader_sizes(cluster)
    size = sum(sizes[one] for one in partitions) if sizes.keys() >= set(partitions) else None
    return LogBytes(sum(rate for rate in rates if rate is not None), size, rates.count(None), problem)


def _newest(start: Offset, end: Offset) -> BatchList:
    return BatchList(start, end, _SAMPLED)


def _per_second(log: Extent | None, since: ListedOffset | Problem | None, sampled: list[BatchHeader]) -> float | None:
    """The rate of one partition: the offsets of the window, each with the size of an offset of the sample."""
    if log is None or isinstance(since, Problem):
        return None
    written = log.end - max(log.start, since.offset) if since is not None else 0
    if written <= 0:
        return 0.0
    offsets = sum(header.last_offset_delta + 1 for header in sampled)
    size = sum(header.length + LENGTH_OVERHEAD for header in sampled)
    return size / offsets * written * 1000 / WINDOW_MS if offsets else None
