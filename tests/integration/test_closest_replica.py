"""Data is read from a follower in the client's rack: what it has, as its leader has it; the leader gives the rest."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from support.answers import listed
from support.raw_log import RawFold, range_of
from support.raw_producer import RawProducer
from support.servers import connect, whole
from support.topics import FAILOVER_S, await_leader, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.values import BrokerId, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.log import fetch
from txnwatch.streaming.log.fetch import read_ranges, replica_to_ask, take_from_follower
from txnwatch.streaming.log.range_reading import Fold, RangeReading
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.tasks import run_here, whole_range
from txnwatch.streaming.wire.fetch_response import PartitionData
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

LEADER, NEAR = 2, 3


@contextlib.contextmanager
def in_rack_of(kafka3: EmbeddedKafka, node: int) -> Iterator[Cluster]:
    with contextlib.closing(connect(kafka3)) as plain:
        found = Cluster(plain.bootstrap, plain.security, timeout_s=1.0, rack=f"rack-{node}")
    with contextlib.closing(found):
        found.refresh()
        yield found


@pytest.fixture
def near(kafka3: EmbeddedKafka) -> Iterator[Cluster]:
    """A client in the rack of broker 3; afterwards every broker runs again."""
    with in_rack_of(kafka3, NEAR) as found:
        yield found
    whole(kafka3)


@pytest.fixture
def partition(near: Cluster) -> TopicPartition:
    (made,) = create_topic(near, unique("near"), replicas=[[LEADER, NEAR, 1]])
    await_leader(near, made, LEADER)
    near.refresh()
    return made


@pytest.fixture
def producer(near: Cluster) -> RawProducer:
    return RawProducer(near, unique("near")).init()


def next_range(
    cluster: Cluster, partition: TopicPartition, start: int, end: int | None = None
) -> RangeReading[RawFold]:
    """From `start` to the end, the listed one by default, as after a range that was read under the same leader."""
    info = cluster.known.info(partition)
    assert info is not None
    end = listed(cluster, partition).offset if end is None else end
    return range_of(cluster, partition, start, end, last_epoch=info.leader_epoch)


def written(producer: RawProducer, partition: TopicPartition, batches: int) -> None:
    for _ in range(batches):
        producer.produce(partition, [b"one", b"two"], transactional=False)


def is_read_from_follower(cluster: Cluster, partition: TopicPartition, start: int) -> bool:
    read = next_range(cluster, partition, start)
    read_ranges(cluster, [read], patience_s=5.0)
    return not read.follower_lacks


def test_what_a_follower_has_is_read_while_the_leader_is_paused(
    kafka3: EmbeddedKafka, near: Cluster, producer: RawProducer, partition: TopicPartition
) -> None:
    written(producer, partition, 5)
    eventually(lambda: is_read_from_follower(near, partition, 4), 10.0, "the follower to have everything")
    read = next_range(near, partition, 4)
    kafka3.broker(LEADER).pause()
    try:
        read_ranges(near, [read], patience_s=5.0)
    finally:
        kafka3.broker(LEADER).resume()
    assert (read.notices, read.fold.offsets) == ([], list(range(4, 10)))


def test_a_follower_that_is_down_is_replaced_by_the_leader(
    kafka3: EmbeddedKafka, near: Cluster, producer: RawProducer, partition: TopicPartition
) -> None:
    written(producer, partition, 5)
    eventually(lambda: is_read_from_follower(near, partition, 4), 10.0, "the follower to have everything")
    kafka3.broker(NEAR).kill()
    read = next_range(near, partition, 4)
    read_ranges(near, [read], patience_s=FAILOVER_S)
    assert (read.notices, read.fold.offsets, read.follower_lacks) == ([], list(range(4, 10)), True)


@pytest.mark.usefixtures("near")
def test_a_follower_without_a_batch_of_the_present_leader_is_replaced_by_the_leader(
    kafka3: EmbeddedKafka, producer: RawProducer, partition: TopicPartition
) -> None:
    written(producer, partition, 5)
    kafka3.broker(LEADER).kill()
    with in_rack_of(kafka3, 1) as other:
        await_leader(other, partition, NEAR)
        other.node(BrokerId(NEAR))  # only a connection to the leader shows whether it may keep its epoch
        read = next_range(other, partition, 4, 10)
        assert replica_to_ask(other, read) == 1
        read_ranges(other, [read], patience_s=FAILOVER_S)
    assert (read.notices, read.fold.offsets, read.follower_lacks) == ([], list(range(4, 10)), True)


def test_a_live_topic_is_the_same_from_both(kafka3: EmbeddedKafka, near: Cluster, partition: TopicPartition) -> None:
    with in_rack_of(kafka3, 1) as of_writer:  # a client is for one thread
        producer = RawProducer(of_writer, unique("near")).init()
        written(producer, partition, 1)
        writer = threading.Thread(target=written, args=(producer, partition, 200))
        writer.start()
        position, of_follower, of_leader, lagged = 0, [], [], 0
        while writer.is_alive() or position < listed(near, partition).offset:
            end = listed(near, partition).offset
            read, same = (next_range(near, partition, position, end) for _ in range(2))
            same.follower_lacks = True
            for one in (read, same):
                read_ranges(near, [one], patience_s=5.0)
                assert one.notices == []
            of_follower += read.fold.batches
            of_leader += same.fold.batches
            position, lagged = read.fold.position, lagged + read.follower_lacks
        writer.join()
    assert len(of_leader) == 201
    assert of_follower == of_leader
    assert lagged < 201, "it was read from the follower, too"


def test_a_task_of_a_source_with_a_rack_reads_from_the_follower(
    kafka3: EmbeddedKafka, producer: RawProducer, partition: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(producer, partition, 20)
    followed: list[int] = []

    def noted(read: RangeReading[Fold], data: PartitionData, **given: bool) -> None:
        before = read.fold.position
        take_from_follower(read, data, **given)
        followed.extend(range(before, read.fold.position))

    monkeypatch.setattr(fetch, "take_from_follower", noted)
    monkeypatch.setattr(fetch, "PARTITION_MAX_BYTES", (200, 200))
    servers = {"kafka.bootstrap.servers": kafka3.bootstrap_servers, "subscribe": partition.topic}
    options = {**servers, "startingOffsets": "earliest", "episodes": "true"}
    for rack, expected in (("rack-9", 0), (f"rack-{NEAR}", 30)):
        for plan in whole_range(parse_options({**options, "kafka.client.rack": rack})):
            list(run_here(plan, parse_options({**options, "kafka.client.rack": rack})))
        assert len(followed) >= expected
        assert bool(followed) == bool(expected)
    assert max(followed) == 39
