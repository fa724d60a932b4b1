"""Both ways of a first reading over real Fetch answers: of a real coordinators' log, and of one of many ids."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import pytest
from confluent_kafka import Producer

from support.answers import listed
from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.transaction_log import a_key, a_value
from txnwatch.state.model.facts import TransactionSeen
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, TransactionFold
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

IDS, RECORDS = 500, 8_000
Way = Callable[[int, int], TransactionFold]


def facts_of(cluster: Cluster, partition: TopicPartition, way: Way) -> list[object]:
    end = listed(cluster, partition).offset
    topic_id = cluster.known.topics[partition.topic].topic_id
    read = RangeReading(Range(partition, topic_id, 0, end), way)
    read_ranges(cluster, [read], patience_s=10.0)
    assert read.notices == []
    fold = read.fold
    return [
        list(fold.facts(is_first=True)),
        fold.position,
        fold.hole,
        fold.last_hole_end,
        fold.stamps,
        fold.leader_epoch,
    ]


def both(cluster: Cluster, partition: TopicPartition, held_bytes: int) -> list[list[object]]:
    def fast(start: int, end: int) -> TransactionFold:
        return FirstReadFold(partition, start, end, backlog_end=end, room=HeldBytes(held_bytes))

    def exact(start: int, end: int) -> TransactionFold:
        return TransactionFold(partition, start, end, backlog_end=end)

    return [facts_of(cluster, partition, way) for way in (fast, exact)]


def test_both_ways_give_the_same_facts_of_a_real_coordinators_log(cluster: Cluster) -> None:
    (partition,) = create_topic(cluster, unique("first-reading"))
    for number in range(20):
        producer = RawProducer(cluster, unique(f"first-reading-{number}")).init()
        if number % 2:
            producer.add(partition)
        if number % 4 == 1:
            producer.end(commit=True)
    cluster.refresh()
    logs = cluster.known.topics[TRANSACTION_STATE_TOPIC].partitions
    live = 0
    for number in sorted(logs):
        fast, exact = both(cluster, TopicPartition(TRANSACTION_STATE_TOPIC, number), 1 << 20)
        assert fast == exact
        live += len([fact for fact in fast[0] if isinstance(fact, TransactionSeen)])  # type: ignore[attr-defined]
    assert live >= 5


def records_of(rng: random.Random) -> Iterable[tuple[bytes, bytes | None]]:
    for _ in range(RECORDS):
        number = rng.randrange(IDS)
        state = rng.choice([S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.DEAD])
        held = (
            (("orders", (number % 3,)), ("payments", (0, 1))) if state.is_live else () if state is not S.EMPTY else None
        )
        version = rng.randrange(2)
        previous = number if version else -1
        value = TransactionLogValue(
            version, number, rng.randrange(3), 60_000, state, held, 7, rng.randrange(4), previous
        )
        yield a_key(f"app-{number}"), None if state is S.DEAD else a_value(value)


@pytest.mark.parametrize("batched", [False, True], ids=["one record a batch", "many records a batch"])
def test_both_ways_give_the_same_facts_of_a_log_with_many_ids(cluster: Cluster, batched: bool) -> None:  # noqa: FBT001 - a case
    (log,) = create_topic(cluster, unique("log"))
    servers = ",".join(str(endpoint) for endpoint in cluster.bootstrap)
    batching = {"linger.ms": 20} if batched else {"linger.ms": 0, "batch.num.messages": 1}
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **batching})
    for key, value in records_of(random.Random(7)):
        producer.produce(log.topic, key=key, value=value, partition=log.partition)
    assert producer.flush(120.0) == 0, "the log is read twice, so it must not grow meanwhile"
    cluster.refresh()
    fast, exact = both(cluster, log, 64 << 20)
    assert fast == exact
    assert 100 < len(fast[0]) < IDS  # type: ignore[arg-type]
