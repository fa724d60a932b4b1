"""How many bytes a second are written to topics, estimated from what their leaders show. No record is read.

The size of a leader's log (DescribeLogDirs), divided by its offsets, is the size of an offset. The offsets of the last
hour, by the timestamps of the records, give the rate. It is an estimate: clients set the timestamps, compaction removes
offsets, and tiered storage keeps only a part of the log at its leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka.protocol.admin import DescribeLogDirsRequest

from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.ids import BrokerId, TopicPartition
from txnwatch.state.model.problem import Problem
from txnwatch.state.model.quantities import DurationMs, Offset, TimestampMs
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.error_names import problem_of
from txnwatch.streaming.client.list_offsets import EARLIEST, ListedOffset

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
