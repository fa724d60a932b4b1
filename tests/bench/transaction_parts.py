"""Where the Python CPU of one committed transaction goes, from the bytes of the logs to the stored state: one process.

No Kafka and no Spark: the bytes are those that brokers write, and dicts are Spark's state. In each micro-batch each
producer ends its transaction on three partitions and begins the next one: three records of the coordinators' log, three
markers, and three batches with one record. So each transaction is open at a barrier, which is the dearest case.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.results import Point, Row
from support.batches import TIMESTAMP_MS, a_batch, a_marker, a_record
from support.state_variables import Handle
from support.transaction_log import a_key, a_value
from txnwatch.state.model.clocks import Leader
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TopicPartition, coordinator_partition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.job.operator import BucketProcessor
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.source.rows import packed_batch
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

SIZES = (100, 1_000, 4_000)
PARTITIONS, LOGS, PLACES, BUCKETS = 100, 50, 3, 16
BATCHES, SETTLING, TRIGGER_MS = 8, 3, 500
LEADERS = {log_numbered(number): Leader(1, 0) for number in range(LOGS)}


class Logs:
    """The logs of some producers; `write` appends one transaction of each."""

    def __init__(self, producers: int) -> None:
        self.names = [f"service-{number}-orders" for number in range(producers)]
        self.begun_ms = [0] * producers
        self.ends: Counter[TopicPartition] = Counter()

    def write(self, now_ms: int) -> dict[TopicPartition, list[bytes]]:
        """The batches that are new in each partition."""
        found: dict[TopicPartition, list[bytes]] = defaultdict(list)

        def append(partition: TopicPartition, batch: bytes) -> None:
            found[partition].append(self.ends[partition].to_bytes(8, "big") + batch[8:])
            self.ends[partition] += 1

        for number, name in enumerate(self.names):
            places = tuple((number * PLACES + step) % PARTITIONS for step in range(PLACES))
            log = log_numbered(coordinator_partition(name, LOGS))
            if self.begun_ms[number]:
                append(log, self._record(number, TransactionState.PREPARE_COMMIT, places, now_ms))
                for place in places:
                    append(TopicPartition("orders", place), a_marker(producer_id=1_000 + number, timestamp=now_ms))
                append(log, self._record(number, TransactionState.COMPLETE_COMMIT, (), now_ms))
            self.begun_ms[number] = now_ms + 1
            append(log, self._record(number, TransactionState.ONGOING, places, now_ms + 1))
            for place in places:
                append(TopicPartition("orders", place), a_batch(producer_id=1_000 + number, base_timestamp=now_ms))
        return found

    def _record(self, number: int, state: TransactionState, places: tuple[int, ...], now_ms: int) -> bytes:
        topics = (("orders", places),) if places else ()
        ids = (1_000 + number, 0, 60_000)
        value = TransactionLogValue(1, *ids, state, topics, now_ms, self.begun_ms[number], ids[0])
        record = a_record(key=a_key(self.names[number]), value=a_value(value))
        nobody = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        return a_batch(records=[record], transactional=False, base_timestamp=now_ms, **nobody)


def run(directory: Path, rows: list[Row]) -> None:
    """Sizes are the producers; each has one transaction in a micro-batch."""
    del directory
    points = [_measured(size) for size in SIZES]
    rows.append(Row("transaction_parts", "the Python of one transaction", "producers", points=points))


def _measured(size: int) -> Point:
    logs, handles = Logs(size), [Handle() for _ in range(BUCKETS)]
    processors = [BucketProcessor(DetectionPolicy()) for _ in range(BUCKETS)]
    for processor, handle in zip(processors, handles, strict=True):
        processor.init(handle)
    spent: Counter[str] = Counter()
    for batch in range(1, BATCHES + 1):
        begins, now_ms = Counter(logs.ends), TIMESTAMP_MS + batch * TRIGGER_MS
        new = {partition: b"".join(batches) for partition, batches in logs.write(now_ms).items()}
        if batch == SETTLING + 1:
            spent.clear()
        _batch(processors, new, (begins, logs.ends), Barrier(batch, now_ms, now_ms, leaders=LEADERS), spent)
    each_us = {part: 1e6 * cpu_s / size / (BATCHES - SETTLING) for part, cpu_s in spent.items()}
    figures = {f"CPU us: {part}": of for part, of in each_us.items()}
    return Point(size, None, sum(each_us.values()) / 1e6, figures=figures)


def _batch(
    processors: list[BucketProcessor],
    new: dict[TopicPartition, bytes],
    bounds: tuple[Counter[TopicPartition], Counter[TopicPartition]],
    barrier: Barrier,
    spent: Counter[str],
) -> None:
    begins, ends = bounds
    facts: list[Fact] = [barrier]
    for partition, raw in sorted(new.items()):
        is_log = partition.topic != "orders"
        with _timed("coordinators' log" if is_log else "data and markers", spent):
            if is_log:
                log_fold = TransactionFold(partition, begins[partition], ends[partition])
                log_fold.feed(memoryview(raw))
                facts.extend(log_fold.facts())
            else:
                fold = PartitionFold(begins[partition], ends[partition])
                fold.feed(memoryview(raw))
                facts.extend(fold.facts(partition, "id", barrier.data_listed_ms))
    with _timed("pack facts", spent):
        packed = packed_batch(facts, range(BUCKETS))
    for bucket, blob in zip(*(column.to_pylist() for column in packed.columns), strict=True):
        with _timed("operator", spent):
            list(processors[bucket].handleInputRows((bucket,), iter([(bucket, blob)]), None))


@contextmanager
def _timed(part: str, spent: Counter[str]) -> Iterator[None]:
    begin = time.process_time()
    yield
    spent[part] += time.process_time() - begin
