"""Bounds on the clocks of the brokers and of the active controller, for `doctor`. It makes no decisions.

No request of Kafka asks a broker for its time. There are two ways to learn it:

  * DescribeQuorum (Kafka 3.3, KRaft): the active controller answers with its own time, as the time at which the leader
    of the quorum was last caught up. So its clock is known exactly, on an idle cluster too. In combined mode the active
    controller is also a broker.
  * The brokers stamp the records of `__transaction_state`. A record that is there now was stamped earlier, so its stamp
    is a lower bound of the broker's clock. A record that was not there at the first listing was stamped after it, so
    its stamp is an upper bound, too. A broker that writes nothing in between has no upper bound.

Only a stamp under the present leader epoch is of the present leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka.protocol.admin import DescribeQuorumRequest

from txnwatch.state.model.clocks import Clock, both
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import BrokerId, DurationMs, ErrorCode, Offset, TimestampMs, TopicPartition
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.coordinator_log import NewestStamp, logs_of, newest_stamps
from txnwatch.streaming.log.lookups import list_extents
from txnwatch.streaming.log.range_reading import Range

METADATA_LOG = "__cluster_metadata"
_TIMES_SINCE = 1  # of DescribeQuorum: KIP-836


@dataclass(frozen=True, slots=True)
class SeenClocks:
    """What is known of the clocks of a cluster, each minus that of this machine.

    Attributes:
        brokers: by broker; a broker without a stamp in the coordinators' log is missing.
        controller: the active controller, if it has answered.
    """

    brokers: dict[BrokerId, Clock] = field(default_factory=dict)
    controller: tuple[BrokerId, Clock] | None = None

    @property
    def all(self) -> dict[BrokerId, Clock]:
        """All clocks; in combined mode the active controller is one of the brokers, and its own answer counts."""
        return self.brokers | dict([self.controller] if self.controller is not None else [])


@dataclass(frozen=True, slots=True)
class FirstLook:
    """The ends of the coordinators' log, and our clock before they were listed."""

    ends: Mapping[TopicPartition, Offset]
    asked_ms: TimestampMs


def first_look(cluster: Cluster, now_ms: Callable[[], TimestampMs] = wall_clock_ms) -> FirstLook:
    """Lists the ends of the coordinators' log."""
    asked_ms = now_ms()
    logs = list_extents(cluster, logs_of(cluster))
    return FirstLook({at: log.end for at, log in logs.items() if isinstance(log, Range)}, asked_ms)


def second_look(cluster: Cluster, first: FirstLook, now_ms: Callable[[], TimestampMs] = wall_clock_ms) -> SeenClocks:
    """Reads the newest stamps of the log, and asks the active controller."""
    stamps = newest_stamps(cluster)
    return SeenClocks(broker_clocks(stamps, first, now_ms()), _controller(cluster, now_ms))


def broker_clocks(stamps: list[NewestStamp], first: FirstLook, read_ms: TimestampMs) -> dict[BrokerId, Clock]:
    """Bounds on the brokers' clocks, by stamps that had been read at `read_ms` of our clock."""
    clocks: dict[BrokerId, Clock] = {}
    for stamp in stamps:
        if stamp.broker is None:
            continue
        end = first.ends.get(stamp.partition)
        is_new = end is not None and stamp.offset >= end
        highest_ms = DurationMs(stamp.stamp_ms - first.asked_ms) if is_new else None
        clock = Clock(DurationMs(stamp.stamp_ms - read_ms), highest_ms, read_ms)
        clocks[stamp.broker] = both(clocks.get(stamp.broker), clock)
    return clocks


def _controller(cluster: Cluster, now_ms: Callable[[], TimestampMs]) -> tuple[BrokerId, Clock] | None:
    """The active controller and its clock; None if the brokers are too old, or this user may not ask."""
    topic = DescribeQuorumRequest.TopicData
    try:
        connection = cluster.any_connection()
        version = connection.version(DescribeQuorumRequest)
        if version is None or version < _TIMES_SINCE:
            return None
        partitions = [topic.PartitionData(partition_index=0)]
        asked = topic(topic_name=METADATA_LOG, partitions=partitions)
        request = DescribeQuorumRequest(version=version, topics=[asked])
        asked_ms = now_ms()
        answer = cluster.call(connection, request)
    except BrokerError:
        return None
    answered_ms = now_ms()
    quorums = [quorum for topic in answer.topics for quorum in topic.partitions if quorum.error_code == ErrorCode.NONE]
    if answer.error_code != ErrorCode.NONE or not quorums:
        return None
    leader = quorums[0].leader_id
    times = [voter.last_caught_up_timestamp for voter in quorums[0].current_voters if voter.replica_id == leader]
    if not times or times[0] < 0:
        return None
    clock = Clock(DurationMs(times[0] - answered_ms), DurationMs(times[0] - asked_ms), answered_ms)
    return BrokerId(leader), clock
