"""Ways of reading a topic from its beginning to its end, from a bare socket to Spark's Kafka source.

Each returns wall and CPU seconds of its own process. Java's consumer reports only the time of its fetches.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from support.answers import listed
from txnwatch.state.model import ids
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.security import Security, security_of
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_read import RangeRead
from txnwatch.streaming.source.packed_facts import packed_batch
from txnwatch.streaming.wire.record_batch import HEADER
from txnwatch_demo.embedded.kafka import EmbeddedKafka

BUCKETS, PATIENCE_S, AT_ONCE = 16, 5.0, 16 << 20
_LARGE_QUEUE = 10_000_000
END_WAIT_S = 0.02
_SENDER = "import socket,sys;s=socket.create_connection(('127.0.0.1',int(sys.argv[1])));n=int(sys.argv[2])\n"
_SENDER += "b=memoryview(bytes(1<<20))\nwhile n: s.sendall(b[:n]); n-=min(n,len(b))"


class Spent(NamedTuple):
    """What one reading took; `size` and `batches` where the way counts them."""

    wall_s: float
    cpu_s: float | None
    size: int = 0
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Where:
    """A topic, and how its broker is reached."""

    kafka: EmbeddedKafka
    topic: str
    count: int
    listener: str
    ca_file: str | None = None

    @property
    def security(self) -> Security:
        """For our own connections."""
        if self.ca_file is None:
            return Security()
        return security_of(
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": self.ca_file}
        )


class BareScan:
    """Walks headers and does nothing with them: what the fold is compared with."""

    reads_records = False
    last_epoch = None

    def __init__(self, start: int, end: int) -> None:
        self.position, self.end = start, end
        self.batches = 0

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def feed(self, buffer: memoryview | bytes) -> None:
        at, size, unpack = 0, len(buffer), HEADER.unpack_from
        batches, position = 0, self.position
        while at + 61 <= size:
            header = unpack(buffer, at)
            if at + 12 + header[1] > size:
                break
            position = header[0] + header[6] + 1
            at += 12 + header[1]
            batches += 1
        self.batches += batches
        self.position = position


class BatchEnds:
    """Where each batch of a partition ends: in bytes of its log, and the offset after it."""

    def __init__(self) -> None:
        self.bytes, self.offsets = [0], [0]


class EndsScan(BareScan):
    """Notes the end of each batch."""

    def __init__(self, ends: BatchEnds, start: int, end: int) -> None:
        super().__init__(start, end)
        self._ends = ends

    def feed(self, buffer: memoryview | bytes) -> None:
        at = 0
        while at + 61 <= len(buffer):
            header = HEADER.unpack_from(buffer, at)
            if at + 12 + header[1] > len(buffer):
                break
            self.position = header[0] + header[6] + 1
            at += 12 + header[1]
            self._ends.bytes.append(self._ends.bytes[-1] + 12 + header[1])
            self._ends.offsets.append(self.position)


class NoScan(BareScan):
    """Knows before where batches end, so that it looks at no byte of them."""

    def __init__(self, ends: BatchEnds, start: int, end: int) -> None:
        super().__init__(start, end)
        self._ends = ends
        self._number = 0  # of the next batch

    def feed(self, buffer: memoryview | bytes) -> None:
        reached = self._ends.bytes[self._number] + len(buffer)
        self._number = bisect_right(self._ends.bytes, reached) - 1
        self.position = self._ends.offsets[self._number]


def timed(read: Callable[[], tuple[int, int]]) -> Spent:
    """Runs it in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    size, batches = read()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu, size, batches)


def bare_socket(size: int) -> Spent:
    """As many bytes from another process over the loopback interface, and nothing done with them."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        sender = subprocess.Popen([sys.executable, "-c", _SENDER, str(port), str(size)])
        connection, _ = server.accept()
        buffer = bytearray(AT_ONCE)

        def read() -> tuple[int, int]:
            got = 0
            while count := connection.recv_into(buffer):
                got += count
            return got, 0

        with closing(connection):
            spent = timed(read)
        sender.wait()
    return spent


def ours(where: Where, fold: Callable[[int, int], Any], *, to_arrow: bool = False) -> Spent:
    """Our own Fetch, with a fold of each partition."""
    return _fetched(where, lambda _: fold, to_arrow=to_arrow)


def bare_fetch(where: Where) -> Callable[[], Spent]:
    """Our own Fetch, and nothing done with the bytes: what the broker and our connection can do at best."""
    ends: dict[ids.TopicPartition, BatchEnds] = {}
    _fetched(where, lambda partition: partial(EndsScan, ends.setdefault(partition, BatchEnds())))
    return lambda: _fetched(where, lambda partition: partial(NoScan, ends[partition]))


def _fetched(
    where: Where, fold_of: Callable[[ids.TopicPartition], Callable[[int, int], Any]], *, to_arrow: bool = False
) -> Spent:
    with closing(Cluster([Endpoint.parse(where.listener)], where.security)) as cluster:
        info = cluster.refresh().topics[where.topic]
        partitions = [ids.TopicPartition(where.topic, number) for number in info.partitions]
        ends = {partition: listed(cluster, partition) for partition in partitions}

        def read() -> tuple[int, int]:
            reads = [
                RangeRead(one, info.topic_id, 0, ends[one].offset, None, must_check=False, new_fold=fold_of(one))
                for one in partitions
            ]
            read_ranges(cluster, reads, patience_s=PATIENCE_S)
            if to_arrow:
                packed_batch(
                    [fact for one in reads for fact in one.fold.facts(one.partition, one.topic_id, 0)], BUCKETS
                )
            assert not any(one.notices for one in reads)
            return sum(one.size for one in reads), sum(getattr(one.fold, "batches", 0) for one in reads)

        return timed(read)


def our_fold(where: Where) -> Spent:
    """As the job reads."""
    return ours(where, PartitionFold, to_arrow=True)


def librdkafka(where: Where, *, has_large_queue: bool = True) -> Spent:
    """librdkafka's Python client: large batches of messages, and nothing done with them.

    With its default queue of 100,000 messages it stops fetching for a second whenever the queue is full; with a large
    queue it is as fast as it can be. The short timeout matters at the end: `consume` waits for it if fewer messages
    are left than it may return.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": where.listener,
            "group.id": f"bench-{time.time_ns()}",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": AT_ONCE,
            "fetch.max.bytes": 64 << 20,
            "queued.max.messages.kbytes": 1 << 20,
            "check.crcs": False,
            **({"queued.min.messages": _LARGE_QUEUE} if has_large_queue else {}),
            **({"security.protocol": "SSL", "ssl.ca.location": where.ca_file} if where.ca_file else {}),
        }
    )
    partitions = list(consumer.list_topics(where.topic).topics[where.topic].partitions)

    def read() -> tuple[int, int]:
        consumer.assign([TopicPartition(where.topic, number, OFFSET_BEGINNING) for number in partitions])
        ended = size = 0
        while ended < len(partitions):
            for message in consumer.consume(10_000, timeout=END_WAIT_S):
                if message.error() is not None:
                    ended += 1
                else:
                    size += len(message)
        return size, 0

    with closing(consumer):
        return timed(read)


def kafka_python(where: Where) -> Spent:
    """kafka-python's consumer."""
    consumer = KafkaConsumer(
        bootstrap_servers=where.listener,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        check_crcs=False,
        max_partition_fetch_bytes=AT_ONCE,
        **({"security_protocol": "SSL", "ssl_cafile": where.ca_file} if where.ca_file else {}),
    )
    partitions = [PythonPartition(where.topic, number) for number in consumer.partitions_for_topic(where.topic)]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)

    def read() -> tuple[int, int]:
        size = 0
        while any(consumer.position(one) < ends[one] for one in partitions):
            for records in consumer.poll(timeout_ms=1_000, max_records=100_000).values():
                size += sum(len(record.value) for record in records)
        return size, 0

    with closing(consumer):
        return timed(read)


def perf_test(where: Where) -> Spent:
    """Kafka's Java consumer; the tool's own measure, without the JVM's start."""
    flags: tuple[str, ...] = ()
    if where.ca_file:
        tls = where.kafka.directory / "tls.properties"
        tls.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={where.ca_file}\n")
        flags = ("--command-config", str(tls))
    done = where.kafka.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", where.listener, "--topic", where.topic, "--messages", str(where.count)),
        *("--timeout", "5000", "--fetch-size", str(AT_ONCE), "--hide-header", *flags),
        timeout_s=120.0,
    )
    columns = [column.strip() for column in done.stdout.strip().splitlines()[-1].split(",")]
    return Spent(float(columns[7]) / 1000, None)


def spark_source(session: Any, name: str, options: dict[str, str]) -> Spent:
    """All rows of a batch query, counted; wall time only, because the JVM does most of it."""
    frame = session.read.format(name).options(**options).load()
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return Spent(time.perf_counter() - begin, None)


def topic_size(directory: Path, topic: str) -> int:
    """Bytes of a topic's segments on disk."""
    return sum(file.stat().st_size for file in directory.glob(f"{topic}-*/*.log"))
