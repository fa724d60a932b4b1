"""The last marker of a producer below an offset, read from the partition: how a hang would have ended depends on it."""

from __future__ import annotations

from txnwatch.state.facts import NoticeKind
from txnwatch.state.ids import TopicPartition
from txnwatch.state.transaction import Marker
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.extent import list_extents, read_parts
from txnwatch.streaming.fold import PartitionFold

_AT_MOST = 100_000


def last_marker_below(cluster: Cluster, partition: TopicPartition, producer_id: int, below: int) -> Marker | None:
    """The producer's last marker in the last hundred thousand offsets below one; None if there is none, or unread."""
    (log,) = list_extents(cluster, [partition])
    if log.problem is not None:
        return None
    (read,) = read_parts(cluster, [log.part(PartitionFold, below - _AT_MOST, below)])
    if any(notice.kind is not NoticeKind.LOST for notice in read.notices):
        return None
    facts = read.fold.facts(partition, log.topic_id, 0)
    return next((fact.last_marker for fact in facts if fact.producer_id == producer_id), None)
