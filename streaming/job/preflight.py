"""Checks before the job starts: the cluster is reachable, and this user may read what verdicts depend on.

A missing right must not look like a hanging transaction, nor like a healthy cluster. So a topic that this user may not
describe or read is an error here, in one line.
"""

from __future__ import annotations

from txnwatch.state.model.errors import AuthorizationError, CheckpointError
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.list_offsets import ListedOffset
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.job.checkpoint import check_files, last_cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.source.options import SourceOptions


def check_cluster(cluster: Cluster, options: SourceOptions, checkpoint: str) -> tuple[str, list[TopicInfo]]:
    """The cluster's id and the topics watched now.

    Raises:
        BrokerError: no broker answers.
        AuthorizationError: a right is missing; the message names topic and right.
        CheckpointError: the checkpoint belongs to another cluster, or is damaged.
    """
    metadata = cluster.refresh()
    _check_checkpoint(checkpoint, metadata.cluster_id)
    asked = [TRANSACTION_STATE_TOPIC, *options.topics]
    for topic in cluster.metadata_from(cluster.any_connection().endpoint, asked).topics.values():
        if topic.is_hidden:
            raise AuthorizationError(
                f"topic {topic.name}: expected the rights DESCRIBE and READ, found neither: grant them to this user"
            )
    watched = [topic for topic in metadata.topics.values() if options.watches(topic)]
    log = metadata.topics.get(TRANSACTION_STATE_TOPIC)
    _check_read(cluster, [*watched, *([log] if log is not None else [])])
    return metadata.cluster_id, watched


def _check_checkpoint(checkpoint: str, cluster_id: str) -> None:
    check_files(checkpoint)
    known = last_cluster(checkpoint)
    if known not in {None, "", cluster_id}:
        raise CheckpointError(
            f"--checkpoint {checkpoint} was written for cluster {known}, but the brokers answer for cluster "
            f"{cluster_id}: check --bootstrap-server, or give this cluster its own checkpoint directory"
        )


def _check_read(cluster: Cluster, topics: list[TopicInfo]) -> None:
    """Sends an empty Fetch for one partition of each topic: the leader checks the READ right first."""
    first = [TopicPartition(topic.name, min(topic.partitions)) for topic in topics if topic.partitions]
    ends = cluster.list_offsets(first)
    reads = [
        RangeRead(
            partition=partition,
            topic_id=cluster.known.topics[partition.topic].topic_id,
            start=end.offset,
            end=end.offset,
            last_epoch=None,
            must_check=True,
            new_fold=PartitionFold,
        )
        for partition in first
        if isinstance(end := ends[partition], ListedOffset)
    ]
    read_ranges(cluster, reads, patience_s=0.0)
    refused = [notice.detail for read in reads if read.is_denied for notice in read.notices]
    if refused:
        more = f" (and {len(refused) - 1} more topics)" if len(refused) > 1 else ""
        raise AuthorizationError(f"{refused[0]}{more}: grant it to this user, or leave the topic out of --topics")
