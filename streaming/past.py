"""What a partition's own log tells of one open span: under which epoch it began, and the producer's last marker below.

How a hang would have ended rests on both, and DescribeProducers tells neither. Only reads; state/outcome.py decides.
"""

from __future__ import annotations

from txnwatch.state.errors import BrokerError
from txnwatch.state.facts import NoticeKind
from txnwatch.state.ids import TopicPartition
from txnwatch.state.ports import SpanPast
from txnwatch.state.transaction import UNREAD, Marker
from txnwatch.streaming.batch_list import BatchList
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.extent import Extent, list_extents, read_parts
from txnwatch.streaming.fold import PartitionFold

_BELOW = 100_000  # offsets; whoever had its last marker further down is not told of


def read_past(cluster: Cluster, partition: TopicPartition, producer_id: int, start: int) -> SpanPast:
    """The past of the span that begins at `start`; what cannot be read is absent."""
    try:
        (log,) = list_extents(cluster, [partition])
        if log.problem is not None:
            return SpanPast()
        return SpanPast(_epoch_at(cluster, log, producer_id, start), _last_marker(cluster, log, producer_id, start))
    except BrokerError:
        return SpanPast()


def _epoch_at(cluster: Cluster, log: Extent, producer_id: int, start: int) -> int:
    (read,) = read_parts(cluster, [log.part(lambda begin, end: BatchList(begin, end, 1), start)])
    for header, _ in read.fold.found:
        if header.base_offset == start and header.producer_id == producer_id and not header.is_control:
            return int(header.producer_epoch)
    return UNREAD


def _last_marker(cluster: Cluster, log: Extent, producer_id: int, below: int) -> Marker | None:
    (read,) = read_parts(cluster, [log.part(PartitionFold, below - _BELOW, below)])
    if any(notice.kind is not NoticeKind.LOST for notice in read.notices):
        return None
    facts = read.fold.facts(log.partition, log.topic_id, 0)
    return next((fact.last_marker for fact in facts if fact.producer_id == producer_id), None)
