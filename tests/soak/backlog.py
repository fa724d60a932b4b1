"""A large first reading: it starts as many Python workers as the watch can ever have.

Spark starts a second worker for the first micro-batch with much to read, and keeps it. It takes 120 MB. Without this
reading a soak would see that step at some moment, for example after a broker was away for long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from support.raw_producer import RawProducer
from support.topics import create_topic
from txnwatch.state.model.values import DurationMs
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.tasks import OFFSETS_WORTH_A_TASK

TOPIC, TASKS = "soak.backlog", 2
_RECORDS_OF_A_BATCH = 20_000
_TIMEOUT_MS = DurationMs(600_000)


@contextmanager
def backlog(cluster: Cluster) -> Iterator[None]:
    """An open transaction with more records than one task reads; a watch that starts in the block reads them all.

    The block ends the transaction.
    """
    partitions = create_topic(cluster, TOPIC, TASKS)
    producer = RawProducer(cluster, "backlog", _TIMEOUT_MS).init()
    producer.add(*partitions)
    records = [b"x"] * _RECORDS_OF_A_BATCH
    for partition in partitions:
        for _ in range(OFFSETS_WORTH_A_TASK // _RECORDS_OF_A_BATCH + 1):
            producer.produce(partition, records)
    yield
    producer.end(commit=True)
