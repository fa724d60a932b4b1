"""Groups of the protocols that librdkafka does not have: members of Kafka Streams' own and of share groups.

The messages are those that the Java clients send, as far as a member with one task needs them.
"""

from __future__ import annotations

import uuid
from typing import Any

from kafka.protocol.admin import IncrementalAlterConfigsRequest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import OffsetCommitRequest

from support.waiting import eventually
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import error_name

_GROUP_CONFIG = 32
_JOIN = 0
_TIMEOUT_S = 15.0


class StreamsGroupHeartbeatRequest(ApiMessage, load_json="support"):
    """Message 88 (KIP-1071)."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json="support"):
    """The beginning of its answer."""


class StreamsMember:
    """A member of a group of the `streams` protocol, on a cluster of one broker."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._topic = topic
        self.epoch = _JOIN

    def join(self) -> None:
        """The first heartbeat, with the topology."""
        topology = StreamsGroupHeartbeatRequest.Topology
        part = topology.Subtopology(
            version=0,
            subtopology_id="0",
            source_topics=[self._topic],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        request = StreamsGroupHeartbeatRequest(
            version=0,
            group_id=self._group_id,
            member_id=self._group_id,
            member_epoch=_JOIN,
            endpoint_information_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=60_000,
            has_topology=1,
            topology=topology(version=0, epoch=0, subtopologies=[part]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=self._group_id,
            has_user_endpoint=-1,
            client_tags=[],
            task_offsets=None,
            task_end_offsets=None,
            shutdown_application=False,
        )
        answer = _call(self._cluster, request)
        assert answer.error_code == 0, (error_name(answer.error_code), answer.error_message)
        self.epoch = answer.member_epoch

    def join_until_assigned(self) -> None:
        """Joins again until the coordinator has computed the assignment."""

        def is_assigned() -> bool:
            self.join()
            group = ClusterGroups(self._cluster).find(self._group_id).group
            return group is not None and group.state != "Assigning"

        eventually(is_assigned, _TIMEOUT_S, "the assignment")

    def commit(self, partition: TopicPartition, offset: int) -> None:
        """Commits as a member."""
        topic = OffsetCommitRequest.OffsetCommitRequestTopic
        row = topic.OffsetCommitRequestPartition(
            version=9, partition_index=partition.partition, committed_offset=offset
        )
        request = OffsetCommitRequest(
            version=9,
            group_id=self._group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self._group_id,
            topics=[topic(version=9, name=partition.topic, partitions=[row])],
        )
        code = _call(self._cluster, request).topics[0].partitions[0].error_code
        assert code == 0, error_name(code)


class ShareGroupHeartbeatRequest(ApiMessage, load_json="support"):
    """Message 76 (KIP-932)."""


class ShareGroupHeartbeatResponse(ApiMessage, load_json="support"):
    """The beginning of its answer."""


def join_share_group(cluster: Cluster, group_id: str, topic: str) -> None:
    """The first heartbeat of a member: from then on the group is listed. The cluster has one broker."""
    request = ShareGroupHeartbeatRequest(
        version=1,
        group_id=group_id,
        member_id=str(uuid.uuid4()),
        member_epoch=_JOIN,
        rack_id=None,
        subscribed_topic_names=[topic],
    )
    answer = _call(cluster, request)
    assert answer.error_code == 0, (error_name(answer.error_code), answer.error_message)


def configure_group(cluster: Cluster, group_id: str, **configs: str) -> None:
    """Sets a group's own configuration; `_` stands for `.` in its keys."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig
    request = IncrementalAlterConfigsRequest(
        version=1,
        resources=[
            resource(
                version=1,
                resource_type=_GROUP_CONFIG,
                resource_name=group_id,
                configs=[
                    config(version=1, name=name.replace("_", "."), config_operation=0, value=value.replace("-", "_"))
                    for name, value in configs.items()
                ],
            )
        ],
        validate_only=False,
    )
    (answer,) = _call(cluster, request).responses
    assert answer.error_code == 0, (error_name(answer.error_code), answer.error_message)


def _call(cluster: Cluster, request: Any) -> Any:
    return cluster.call(cluster.any_connection(), request)
