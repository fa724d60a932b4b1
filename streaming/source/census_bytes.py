"""How many bytes a census moves, measured: it is taken once, and the bytes of its requests and answers are counted.

A number per partition would be wrong: an answer has a row for each producer that a partition remembers, also for those
without a transaction, and names have different lengths.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txnwatch.state.model.facts import CensusTaken
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.quantities import TimestampMs
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.snapshot_schedule import Asked, Census, take_census


@dataclass(frozen=True, slots=True)
class CensusBytes:
    """One census of some partitions.

    Attributes:
        moved: the bytes of all requests and answers, before TLS.
        failed: the number of partitions that were not described.
    """

    partitions: int = 0
    moved: int = 0
    failed: int = 0


def census_bytes(cluster: Cluster, topics: Iterable[str], now_ms: TimestampMs) -> CensusBytes:
    """Takes one census of some topics of the known metadata."""
    known = cluster.known.topics
    asked = {
        TopicPartition(name, number): Asked(known[name].topic_id)
        for name in topics
        for number in known[name].partitions
    }
    if not asked:
        return CensusBytes()
    before = cluster.traffic.sent + cluster.traffic.received
    facts = list(take_census(cluster, Census(asked, now_ms)))
    moved = cluster.traffic.sent + cluster.traffic.received - before
    failed = sum(len(fact.failed) for fact in facts if isinstance(fact, CensusTaken))
    return CensusBytes(len(asked), moved, failed)
