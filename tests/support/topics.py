"""Topics of the tests: each test makes its own, under a name nobody else has."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import AdminClient, NewTopic

from support.waiting import eventually
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, coordinator_partition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

FAILOVER_S = 30.0
_NUMBERS = itertools.count(1)


def unique(prefix: str) -> str:
    """A name for a topic, a transactional id or a group that no other test of the session has."""
    return f"{prefix}-{next(_NUMBERS)}"


def coordinated_by(cluster: Cluster, node: int) -> str:
    """A transactional id whose coordinator is this broker."""
    log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
    names = (unique("coordinated") for _ in range(1000))
    return next(name for name in names if log[coordinator_partition(name, len(log))].leader == node)


def create_topic(
    cluster: Cluster,
    name: str,
    partitions: int = 1,
    *,
    replicas: Sequence[Sequence[int]] | None = None,
    config: Mapping[str, str] | None = None,
) -> list[TopicPartition]:
    """Creates a topic and waits until every broker knows it; `replicas` lists the brokers of each partition."""
    if replicas is None:
        topic = NewTopic(name, partitions, config=dict(config or {}))
    else:
        assigned = [list(brokers) for brokers in replicas]
        topic = NewTopic(name, len(assigned), replica_assignment=assigned, config=dict(config or {}))
    admin = admin_of(cluster)  # kept until the answer is there: with the client goes the request
    admin.create_topics([topic])[name].result(15.0)
    created = [TopicPartition(name, number) for number in range(len(replicas) if replicas is not None else partitions)]
    eventually(lambda: all(is_led(cluster, partition) for partition in created), 15.0, f"topic {name} on every broker")
    return created


def delete_topic(cluster: Cluster, name: str) -> None:
    """Deletes a topic and waits until no broker knows it; what `cluster` knows stays as old as it is."""
    admin = admin_of(cluster)
    admin.delete_topics([name])[name].result(15.0)

    def is_gone() -> bool:
        return not any(name in cluster.metadata_from(endpoint).topics for endpoint in cluster.bootstrap)

    eventually(is_gone, 15.0, f"topic {name} to be gone on every broker")


def is_led(cluster: Cluster, partition: TopicPartition) -> bool:
    """Whether every broker that runs knows a leader of the partition; `cluster` knows the newest of it then."""
    cluster.refresh()
    answers = [cluster.metadata_from(endpoint).info(partition) for endpoint in cluster.known.brokers.values()]
    return all(info is not None and info.leader is not None for info in answers)


def await_leader(cluster: Cluster, partition: TopicPartition, leader: int | None) -> None:
    """Waits until the partition is led by this broker; None waits for it to have none."""

    def is_leader() -> bool:
        info = cluster.refresh().info(partition)
        return info is not None and info.leader == leader

    eventually(is_leader, FAILOVER_S, f"{partition} to be led by {leader}")


def admin_of(cluster: Cluster) -> AdminClient:
    """confluent-kafka's admin client of the same brokers."""
    servers = ",".join(str(endpoint) for endpoint in cluster.bootstrap)
    return AdminClient({"bootstrap.servers": servers, "log_level": 2})


def commit_an_offset(
    kafka: EmbeddedKafka, partition: TopicPartition, group_id: str | None = None, offset: int = 0
) -> None:
    """A group commits an offset; the first commit on a cluster creates `__consumer_offsets`, which is then loaded."""
    group = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group_id or unique("group")})

    def is_committed() -> bool:
        try:
            group.commit(offsets=[Committed(partition.topic, partition.partition, offset)], asynchronous=False)
        except KafkaException as exc:
            if exc.args[0].code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
                return False
            raise
        return True

    eventually(is_committed, FAILOVER_S, "the first commit of a group")
    group.close()
