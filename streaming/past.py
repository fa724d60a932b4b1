"""What the logs themselves still say about one open transaction, for a command that has not watched it.

Reads the data from its beginning on, and the coordinator's log from what compaction has left of it: the cleaner keeps
the last record of an id in what it has cleaned and everything after it, so records that are there follow one another.
Only reads; what it comes to is decided in state/outcome.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from txnwatch.state.errors import BrokerError
from txnwatch.state.facts import ProducerSeen
from txnwatch.state.ids import TopicPartition
from txnwatch.state.lineage import follow
from txnwatch.state.transaction import CoordinatorView, Span
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.coordinator_log import read_views
from txnwatch.streaming.extent import list_extents, read_parts
from txnwatch.streaming.fold import PartitionFold


@dataclass(frozen=True, slots=True)
class Past:
    """The open data and its producer id's last coordinator record; None where the logs do not have them."""

    span: Span | None
    view: CoordinatorView | None


def read_past(cluster: Cluster, partition: TopicPartition, producer_id: int, start: int, now_ms: int) -> Past:
    """Both logs, the coordinator's last: a transaction that begins meanwhile is seen there.

    Raises:
        BrokerError: one of them could not be read to its end.
    """
    cluster.refresh()
    seen = _read_data(cluster, partition, producer_id, start, now_ms)
    found = read_views(cluster, [producer_id])
    for log, why in found.problems.items():
        raise BrokerError(f"{log}: expected to read it to its end, found: {why}")
    view = found.views.get(producer_id)
    return Past(_span(seen), follow(None, view) if view is not None else None)


def _read_data(
    cluster: Cluster, partition: TopicPartition, producer_id: int, start: int, now_ms: int
) -> ProducerSeen | None:
    (log,) = list_extents(cluster, [partition])
    if log.problem is not None:
        raise BrokerError(f"{partition}: expected its leader to list its ends, found: {log.problem}")
    (read,) = read_parts(cluster, [log.part(PartitionFold, start)])
    if read.notices:
        raise BrokerError(f"{partition}: expected to read it to its end, found: {read.notices[0].detail}")
    facts = read.fold.facts(partition, log.topic_id, now_ms)
    return next((fact for fact in facts if fact.producer_id == producer_id), None)


def _span(seen: ProducerSeen | None) -> Span | None:
    if seen is None or seen.open_offset is None:
        return None
    return Span(
        topic_id=seen.topic_id,
        start_offset=seen.open_offset,
        start_epoch=seen.open_epoch,
        epoch=seen.epoch,
        last_offset=seen.last_offset,
        last_timestamp_ms=seen.last_timestamp_ms,
        first_seen_ms=seen.listed_ms,
        eligible_from=0,
    )
