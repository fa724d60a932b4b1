"""Decoders of the answers of brokers about the cluster: rights, settings, log directories, groups, new topics."""

from __future__ import annotations

from collections.abc import Callable

from kafka.protocol.admin import (
    CreateTopicsResponse,
    DescribeAclsResponse,
    DescribeClusterResponse,
    DescribeConfigsResponse,
    DescribeGroupsResponse,
    DescribeLogDirsResponse,
    ListGroupsResponse,
)
from kafka.protocol.producer import WriteTxnMarkersResponse

from fuzz import broker_answers
from fuzz.answers import AnsweringCluster, on_cluster, packed, recorded
from fuzz.broker_answers import encoded
from fuzz.target import Target
from txnwatch.state.model.ports import MarkerSpec, NotSent
from txnwatch.state.model.values import Problem, TopicPartition
from txnwatch.streaming.admin.group_rights import group_rights
from txnwatch.streaming.admin.groups import ClusterGroups
from txnwatch.streaming.admin.kafka_settings import SCAN_INTERVAL, ScanInterval, scan_interval_warning
from txnwatch.streaming.admin.share_groups import DescribeShareGroupOffsetsResponse
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.checks.checkup import broker_facts, cluster_operations, write_rates, writers_of
from txnwatch.streaming.checks.preflight import Operations, create_problem, topic_operations

_ORDERS = TopicPartition("orders", 0)
_LARGEST = (1 << 63) - 1
_BROKER, _TOPIC, _GROUP = 4, 2, 32  # types of resources


def _acls() -> bytes:
    resource = DescribeAclsResponse.DescribeAclsResource
    rules = [
        resource.AclDescription(principal=f"User:{name}", host="*", operation=4, permission_type=permission)
        for name, permission in (("a", 3), ("b", 2))
    ]
    made = DescribeAclsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        resources=[resource(resource_type=_TOPIC, resource_name="events", pattern_type=3, acls=rules)],
    )
    return encoded(made, 3)


def _log_dirs() -> bytes:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    topic = result.DescribeLogDirsTopic
    partition = topic.DescribeLogDirsPartition(partition_index=0, partition_size=900, offset_lag=0, is_future_key=False)
    made = DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=0,
        results=[result(error_code=0, log_dir="/d", topics=[topic(name="orders", partitions=[partition])])],
    )
    return encoded(made, 3)


def _configs(kind: int, of: str, name: str, value: str, version: int = 3) -> bytes:
    result = DescribeConfigsResponse.DescribeConfigsResult
    config = result.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=False,
        config_source=5,
        is_sensitive=False,
        synonyms=[],
        config_type=3,
        documentation=None,
    )
    row = result(error_code=0, error_message=None, resource_type=kind, resource_name=of, configs=[config])
    return encoded(DescribeConfigsResponse(throttle_time_ms=0, results=[row]), version)


def _share_groups() -> bytes:
    row = ListGroupsResponse.ListedGroup(group_id="s", protocol_type="share", group_state="Stable", group_type="share")
    return encoded(ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=[row]), 5)


def _share_offsets() -> bytes:
    group = DescribeShareGroupOffsetsResponse.Group
    partition = group.Topic.Partition(
        partition_index=0, start_offset=4, leader_epoch=3, lag=2, error_code=0, error_message=None
    )
    topic = group.Topic(topic_name="orders", topic_id=None, partitions=[partition])
    made = group(group_id="s", topics=[topic], error_code=0, error_message=None)
    return encoded(DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=[made]), 1)


def _described_groups() -> bytes:
    rows = [
        DescribeGroupsResponse.DescribedGroup(
            error_code=0,
            group_id=name,
            group_state="Dead",
            protocol_type="",
            protocol_data="",
            members=[],
            authorized_operations={3, 8},
        )
        for name in ("txnwatch-unused-group", "lease")
    ]
    return encoded(DescribeGroupsResponse(throttle_time_ms=0, groups=rows), 5)


def _created() -> bytes:
    topic = CreateTopicsResponse.CreatableTopicResult(
        name="events",
        error_code=0,
        error_message=None,
        topic_config_error_code=0,
        num_partitions=1,
        replication_factor=1,
        configs=[],
    )
    return encoded(CreateTopicsResponse(throttle_time_ms=0, topics=[topic]), 5)


def _described_cluster() -> bytes:
    broker = DescribeClusterResponse.DescribeClusterBroker(broker_id=1, host="a", port=1, rack=None)
    made = DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        cluster_id="c",
        controller_id=1,
        brokers=[broker],
        authorized_operations={8, 10},
    )
    return encoded(made, 0)


def _writers(cluster: AnsweringCluster) -> None:
    assert all(isinstance(one, str) for one in writers_of(cluster, "events").principals)


def _rates(cluster: AnsweringCluster) -> None:
    write_rates(cluster, list(cluster.known.topics), 10_000_000)


def _scan_interval(cluster: AnsweringCluster) -> None:
    """An interval fits into the columns and events that carry it."""
    found = ScanInterval().largest_ms(cluster, 0.0)
    assert found is None or 0 <= found <= _LARGEST
    scan_interval_warning(cluster)


def _cleanup_policies(cluster: AnsweringCluster) -> None:
    found = ClusterAdmin(cluster).cleanup_policies(["orders"])
    assert all(isinstance(one, str) for pair in found.items() for one in pair)


def _written() -> bytes:
    result = WriteTxnMarkersResponse.WritableTxnMarkerResult
    topic = result.WritableTxnMarkerTopicResult
    partition = topic.WritableTxnMarkerPartitionResult(partition_index=0, error_code=0)
    topics = [topic(name="orders", partitions=[partition])]
    return encoded(WriteTxnMarkersResponse(markers=[result(producer_id=7, topics=topics)]), 1)


def _write_marker(cluster: AnsweringCluster) -> None:
    found = ClusterAdmin(cluster).write_marker(MarkerSpec(_ORDERS, 7, 0, 1))
    assert found is None or isinstance(found, Problem | NotSent)


def _groups(cluster: AnsweringCluster) -> None:
    found = ClusterGroups(cluster).committed_offsets([_ORDERS])
    assert found.offsets.keys() <= {_ORDERS}


def _group_rights(cluster: AnsweringCluster) -> None:
    group_rights(cluster, "lease")


def _topic_operations(cluster: AnsweringCluster) -> None:
    for name, allowed in topic_operations(cluster).items():
        assert isinstance(name, str)
        _check_operations(allowed)


def _check_operations(allowed: Operations) -> None:
    assert allowed is None or all(isinstance(one, int) for one in allowed)


def _broker_facts(cluster: AnsweringCluster) -> None:
    broker_facts(cluster, 1, "a:1")


_KNOWN = AnsweringCluster(packed([broker_answers.metadata()])).refresh()


def _target(name: str, reads: str, ask: Callable[[AnsweringCluster], object], **answers: bytes) -> Target:
    """Begins with one input: an answer to each kind of request. The metadata is known; every error is a value."""

    def asked(cluster: AnsweringCluster) -> None:
        cluster.metadata = _KNOWN
        ask(cluster)

    return Target(name, reads, on_cluster(asked), (), [recorded(asked, answers)])


_OFFSETS = broker_answers.offsets()
_SCAN = _configs(_BROKER, "1", SCAN_INTERVAL, "10000")

TARGETS = [
    _target("acls", "an answer to DescribeAcls", _writers, DescribeAcls=_acls()),
    _target(
        "log_dirs",
        "answers to DescribeLogDirs and ListOffsets",
        _rates,
        DescribeLogDirs=_log_dirs(),
        ListOffsets=_OFFSETS,
    ),
    _target("broker_settings", "answers to DescribeConfigs of brokers", _scan_interval, DescribeConfigs=_SCAN),
    _target(
        "cleanup_policies",
        "an answer to DescribeConfigs of topics",
        _cleanup_policies,
        DescribeConfigs=_configs(_TOPIC, "orders", "cleanup.policy", "compact"),
    ),
    _target(
        "written_marker",
        "answers to Metadata and WriteTxnMarkers",
        _write_marker,
        Metadata=broker_answers.metadata(),
        WriteTxnMarkers=_written(),
    ),
    _target(
        "share_groups",
        "answers to ListGroups, DescribeConfigs of groups, ListOffsets and DescribeShareGroupOffsets",
        _groups,
        ListGroups=_share_groups(),
        DescribeConfigs=_configs(_GROUP, "s", "share.isolation.level", "read_committed", 4),
        ListOffsets=_OFFSETS,
        DescribeShareGroupOffsets=_share_offsets(),
        DescribeGroups=_described_groups(),
    ),
    _target(
        "group_rights",
        "answers to DescribeGroups and DescribeConfigs of groups",
        _group_rights,
        DescribeGroups=_described_groups(),
        DescribeConfigs=_configs(_GROUP, "txnwatch-unused-group", "share.isolation.level", "read_committed", 4),
    ),
    _target(
        "topic_rights",
        "an answer to Metadata with operations",
        _topic_operations,
        Metadata=broker_answers.metadata(operations={3, 8}),
    ),
    _target(
        "new_topic",
        "an answer to CreateTopics",
        lambda cluster: create_problem(cluster, "events"),
        CreateTopics=_created(),
    ),
    _target(
        "cluster_rights",
        "an answer to DescribeCluster",
        lambda cluster: _check_operations(cluster_operations(cluster)),
        DescribeCluster=_described_cluster(),
    ),
    _target(
        "broker_facts",
        "an answer to DescribeConfigs",
        _broker_facts,
        DescribeConfigs=_SCAN,
    ),
]
