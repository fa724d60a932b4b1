"""What the logs themselves still say about one open transaction, for a command that has not watched it.

Reads the data from its beginning on, and the coordinator's log from what compaction has left of it: the cleaner keeps
the last record of an id in what it has cleaned and everything after it, so records that are there follow one another.
Only reads; what it comes to is decided in state/outcome.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from txnwatch.state.errors import BrokerError
from txnwatch.state.facts import ProducerSeen
from txnwatch.state.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.lineage import follow
from txnwatch.state.transaction import CoordinatorView, Span
from txnwatch.streaming.cluster import Cluster
from txnwatch.streaming.extent import list_extents, read_parts
from txnwatch.streaming.fold import PartitionFold
from txnwatch.streaming.range_read import RangeRead
from txnwatch.streaming.transaction_fold import TransactionFold


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
    data = _read(cluster, {partition: start}, _data_fold)[0]
    topic = cluster.known.topics.get(TRANSACTION_STATE_TOPIC)
    logs = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in sorted(topic.partitions)] if topic else []
    reads = _read(cluster, dict.fromkeys(logs, 0), _log_fold)
    views = [
        fact.view
        for read in reads
        for fact in read.fold.facts(live_only=False)
        if getattr(fact, "producer_id", None) == producer_id
    ]
    found = (fact for fact in data.fold.facts(partition, data.topic_id, now_ms) if fact.producer_id == producer_id)
    return Past(_span(next(found, None)), follow(None, views[0]) if len(views) == 1 else None)


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


def _data_fold(_: TopicPartition) -> Callable[[int, int], Any]:
    return PartitionFold


def _log_fold(log: TopicPartition) -> Callable[[int, int], Any]:
    return partial(TransactionFold, log.partition)


def _read(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    new_fold: Callable[[TopicPartition], Callable[[int, int], Any]],
) -> list[RangeRead]:
    logs = list_extents(cluster, list(starts))
    for log in logs:
        if log.problem is not None:
            raise BrokerError(f"{log.partition}: expected its leader to list its ends, found: {log.problem}")
    reads = read_parts(cluster, [log.part(new_fold(log.partition), starts[log.partition]) for log in logs])
    for read in reads:
        if read.notices:
            raise BrokerError(f"{read.partition}: expected to read it to its end, found: {read.notices[0].detail}")
    return reads
