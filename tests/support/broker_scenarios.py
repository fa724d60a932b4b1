"""The scenarios in which a broker dies."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import Producer

from support.answers import described
from support.broker_faults import await_complete, await_leader, cut_tail, elect_uncleanly, in_sync, leaderless
from support.fault_world import FaultWorld, now_s
from support.kafka_faults import LONG_TIMEOUT_MS, end_by_hand
from support.scenarios import Fault, open_transaction
from support.topics import unique
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch_demo.late_write import await_end

SEEN_S = 2.0  # for txnwatch to have read a marker that is lost then


def lost_by_unclean_election(world: FaultWorld) -> Fault:
    partition = world.partition(2, 3, unclean_leader_election_enable="true", min_insync_replicas="1")
    producer = open_transaction(world, partition)

    def commit() -> None:
        producer.end(commit=True)
        await_end(world.cluster, producer, partition)
        time.sleep(SEEN_S)

    elect_uncleanly(world.kafka, world.cluster, partition, (2, 3), commit)
    at_s = now_s()
    world.kafka.start_broker(2)
    return _fault(world, producer.transactional_id, producer.producer_id, partition, at_s, commit=True)


def lost_on_disk(world: FaultWorld) -> Fault:
    partition = world.partition(3)
    producer = open_transaction(world, partition)
    producer.end(commit=False)
    await_end(world.cluster, producer, partition)
    time.sleep(SEEN_S)
    cut_tail(world.kafka, world.cluster, partition, 3)
    return _fault(world, producer.transactional_id, producer.producer_id, partition, now_s(), commit=False)


def committed_without_a_leader(world: FaultWorld, *, before: int = 0) -> Fault:
    partition = world.partition(3)
    name, producer = _healthy_client(world, partition, before)
    with leaderless(world.kafka, world.cluster, partition, 3):
        producer.commit_transaction(60.0)
        await_complete(world.cluster, name)
    return _fault(world, name, _producer_id(world, name), partition, now_s(), commit=True)


def waiting_for_a_leader(world: FaultWorld) -> Fault:
    """The same on a version that waits for the leader."""
    partition = world.partition(3)
    name, producer = _healthy_client(world, partition, before=0)
    world.kafka.broker(3).kill()
    await_leader(world.cluster, partition, None)
    producer.commit_transaction(60.0)
    at_s = now_s()
    return Fault(name, frozenset({_producer_id(world, name)}), partition, at_s, partial(world.kafka.start_broker, 3))


def too_few_in_sync(world: FaultWorld) -> Fault:
    partition = world.partition(2, 3, min_insync_replicas="2")
    producer = open_transaction(world, partition)
    world.kafka.broker(3).kill()
    while in_sync(world.cluster, partition) != {2}:
        time.sleep(0.1)
    producer.end(commit=True)
    ids = frozenset({producer.producer_id})
    return Fault(producer.transactional_id, ids, partition, now_s(), partial(world.kafka.start_broker, 3))


def _healthy_client(world: FaultWorld, partition: TopicPartition, before: int) -> tuple[str, Producer]:
    """librdkafka with an open transaction on two partitions after some that ended well; each write is verified."""
    name, other = unique("app"), world.partition(2)
    timeout = {"transaction.timeout.ms": LONG_TIMEOUT_MS}
    with world.verifying():
        producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": name, "log_level": 2, **timeout})
        producer.init_transactions(30.0)
        for number in range(before + 1):
            producer.begin_transaction()
            for at in (partition, other):
                producer.produce(at.topic, value=b"paid", partition=at.partition)
            assert producer.flush(30.0) == 0
            if number < before:
                producer.commit_transaction(30.0)
    return name, producer


def _producer_id(world: FaultWorld, name: str) -> int:
    return described(ClusterAdmin(world.cluster), name).producer_id


def _fault(
    world: FaultWorld, name: str, producer_id: int, partition: TopicPartition, at_s: float, *, commit: bool
) -> Fault:
    end = partial(end_by_hand, world.cluster, partition, producer_id, commit=commit)
    return Fault(name, frozenset({producer_id}), partition, at_s, end)
