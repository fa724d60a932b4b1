"""How many bytes watching reads: from data topics and from the coordinators' log.

Apart: it asks the brokers, and cli/doctor_rows.py makes rows from the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka.protocol.admin import DescribeLogDirsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.values import (
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    DurationMs,
    Offset,
    Problem,
    TimestampMs,
    TopicPartition,
)
from txnwatch.streaming.client.cluster import EARLIEST, Cluster
from txnwatch.streaming.client.connection import Connection, problem_of
from txnwatch.streaming.log.lookups import BatchList, list_extents, read_parts
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.wire.record_batch import LENGTH_OVERHEAD, BatchHeader

# How many bytes a second are written to topics, estimated from what their leaders show. No record is read.
#
# The size of a leader's log (DescribeLogDirs), divided by its offsets, is the size of an offset. The offsets of the
# last hour, by the timestamps of the records, give the rate. It is an estimate: clients set the timestamps, compaction
# removes offsets, and tiered storage keeps only a part of the log at its leader.

WINDOW_MS = DurationMs(3_600_000)


@dataclass(frozen=True, slots=True)
class WriteRates:
    """The bytes written per second by topic, of the topics whose partitions are all known; and the first problem."""

    by_topic: dict[str, float]
    problem: Problem | None = None


def bytes_per_second(size: int, start: Offset, end: Offset, since: Offset, window_ms: DurationMs) -> float:
    """The rate of one partition: `since` is the first offset of the window."""
    if end <= start:
        return 0.0
    return size / (end - start) * (end - max(start, since)) * 1000 / window_ms


def write_rates(cluster: Cluster, topics: Iterable[str], now_ms: TimestampMs) -> WriteRates:
    """The rates of some topics of the known metadata."""
    known = cluster.known.topics
    wanted = [TopicPartition(name, number) for name in topics for number in known[name].partitions]
    sizes, problem = leader_sizes(cluster)
    starts, ends = cluster.list_offsets(wanted, timestamp=EARLIEST), cluster.list_offsets(wanted)
    since = cluster.offsets_since(wanted, now_ms - WINDOW_MS)
    rates: dict[str, float] = {}
    unknown: set[str] = set()
    for partition in wanted:
        start, end, first = starts[partition], ends[partition], since[partition]
        size = sizes.get(partition)
        if size is None or not isinstance(start, ListedOffset) or not isinstance(end, ListedOffset):
            unknown.add(partition.topic)
            continue
        begin = first.offset if isinstance(first, ListedOffset) else end.offset
        rate = bytes_per_second(size, start.offset, end.offset, begin, WINDOW_MS)
        rates[partition.topic] = rates.get(partition.topic, 0.0) + rate
    return WriteRates({name: rate for name, rate in rates.items() if name not in unknown}, problem)


def leader_sizes(cluster: Cluster) -> tuple[dict[TopicPartition, int], Problem | None]:
    """The size of each partition's log at its leader, and the first problem of a broker."""
    sizes: dict[TopicPartition, int] = {}
    problem: Problem | None = None
    for node, answer in cluster.ask(dict.fromkeys(cluster.known.brokers, _request), cluster.timeout_s).items():
        if isinstance(answer, BrokerError):
            problem = problem or Problem.from_error(answer).of(f"broker {node}")
            continue
        for result in answer.results:
            problem = problem or problem_of(result.error_code)
            sizes |= _led_by(cluster, node, result)
        if not answer.results:  # brokers before 3.0 have no error code for a refusal
            problem = problem or Problem(
                f"broker {node} shows no log directory: DESCRIBE on the cluster may be missing"
            )
    return sizes, problem


def _request(connection: Connection) -> DescribeLogDirsRequest:
    version = connection.require_version(DescribeLogDirsRequest, highest=3, lowest=1)
    return DescribeLogDirsRequest(version=version, topics=None)


def _led_by(cluster: Cluster, node: BrokerId, result: object) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic in result.topics:  # type: ignore[attr-defined]
        for replica in topic.partitions:
            partition = TopicPartition(topic.name, replica.partition_index)
            info = cluster.known.info(partition)
            if info is not None and info.leader == node and not replica.is_future_key:
                found[partition] = replica.partition_size
    return found


# How many bytes the coordinators' log has, and how many are appended to it in a second.
#
# The estimate for data topics is wrong for this log: compaction removes most of its offsets, so its size divided by its
# offsets is far below the size of a record. Here the size of a record is that of the newest records, which this user
# may read if `run` may.

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
    listed, since = list_extents(cluster, partitions), cluster.offsets_since(partitions, now_ms - WINDOW_MS)
    logs = {partition: log for partition, log in listed.items() if isinstance(log, Range)}
    parts = [RangeReading(log.part(Offset(log.end - _SAMPLED)), _newest) for log in logs.values()]
    sampled = {read.partition: [header for header, _ in read.fold.found] for read in read_parts(cluster, parts)}
    rates = [_per_second(logs.get(one), since[one], sampled.get(one, [])) for one in partitions]
    sizes, problem = leader_sizes(cluster)
    size = sum(sizes[one] for one in partitions) if sizes.keys() >= set(partitions) else None
    return LogBytes(sum(rate for rate in rates if rate is not None), size, rates.count(None), problem)


def _newest(start: Offset, end: Offset) -> BatchList:
    return BatchList(start, end, _SAMPLED)


def _per_second(log: Range | None, since: ListedOffset | Problem | None, sampled: list[BatchHeader]) -> float | None:
    """The rate of one partition: the offsets of the window, each with the size of an offset of the sample."""
    if log is None or isinstance(since, Problem):
        return None
    written = log.end - max(log.start, since.offset) if since is not None else 0
    if written <= 0:
        return 0.0
    offsets = sum(header.last_offset_delta + 1 for header in sampled)
    size = sum(header.length + LENGTH_OVERHEAD for header in sampled)
    return size / offsets * written * 1000 / WINDOW_MS if offsets else None
