"""Records put into `__transaction_state` behind the coordinator's back.

A producer whose client.id is `__admin_client` may write there. The coordinator reads its log only when it takes a
partition over: until then it goes by its memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from support.transaction_log import a_key, a_value
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, coordinator_partition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.wire.internal_topics import TransactionLogValue


def inject(cluster: Cluster, transactional_id: str, value: TransactionLogValue | None) -> None:
    """Writes a record for an id, a tombstone for None, and returns when it is acknowledged."""
    inject_all(cluster, {transactional_id: value})


def inject_all(cluster: Cluster, values: Mapping[str, TransactionLogValue | None]) -> None:
    """Writes a record for each id, and returns when all are acknowledged."""
    servers = ",".join(str(endpoint) for endpoint in cluster.bootstrap)
    producer = Producer({"bootstrap.servers": servers, "client.id": "__admin_client", "acks": "all", "log_level": 2})
    problems: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            problems.append(error)

    count = len(cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions)
    for transactional_id, value in values.items():
        producer.produce(
            TRANSACTION_STATE_TOPIC,
            key=a_key(transactional_id),
            value=None if value is None else a_value(value),
            partition=coordinator_partition(transactional_id, count),
            on_delivery=delivered,
        )
    producer.flush(10.0)
    if problems:
        raise KafkaException(problems[0])
