"""Ways of reading a topic from its beginning to its end, from a bare socket to Spark's Kafka source.

Each returns wall and CPU seconds of its own process; those of Spark, of all its processes. Kafka's Java tool reports
the time of its fetches; its CPU seconds are those of its process, with the start of the JVM.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.protocol.consumer import FetchRequest

from bench.idle import children_cpu_s, cpu_seconds
from support.answers import listed
from txnwatch.state.model import values
from txnwatch.state.model.values import Offset
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.connection import Connection
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security, security_of
from txnwatch.streaming.log.fetch import read_ranges
from txnwatch.streaming.log.partition_fold import PartitionFold
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.source.rows import packed_batch
from txnwatch.streaming.wire.record_batch import BatchWalker
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

BUCKETS, PATIENCE_S, AT_ONCE = 16, 5.0, 16 << 20
_LARGE_QUEUE = 10_000_000
NOTHING_S = 30.0  # without a message
DROP = socket.MSG_TRUNC if sys.platform == "linux" else 0  # as streaming/client/connection.py drops records
_SENDER = "import socket,sys;s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
_SENDER += "for name in sys.argv[2:]: s.sendfile(open(name,'rb'))"


class Spent(NamedTuple):
    """What one reading took; `size` and `batches` where the way counts them."""

    wall_s: float
    cpu_s: float
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


class HeaderWalk(BatchWalker):
    """The walk of the fold without the fold: it finds every batch and does nothing with it."""

    reads_records = False

    def feed(self, buffer: memoryview | bytes) -> None:
        for _ in self.runs(buffer):
            pass


class CountingWalk(BatchWalker):
    """Counts batches."""

    reads_records = False

    def __init__(self, start: Offset, end: Offset) -> None:
        super().__init__(start, end)
        self.batches = 0

    def feed(self, buffer: memoryview | bytes) -> None:
        self.batches += sum(1 for _ in self.runs(buffer, joined=False))


def timed(read: Callable[[], tuple[int, int]]) -> Spent:
    """Runs it in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    size, batches = read()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu, size, batches)


def bare_socket(segments: Sequence[Path]) -> Spent:
    """Segment files from another process over the loopback interface, sent as a broker sends them, and dropped."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        sender = subprocess.Popen([sys.executable, "-c", _SENDER, str(server.getsockname()[1]), *map(str, segments)])
        connection, _ = server.accept()
        connection.recv(1, socket.MSG_PEEK)  # the sender has begun
        buffer = bytearray(AT_ONCE)

        def read() -> tuple[int, int]:
            got = 0
            while count := connection.recv_into(buffer, 0, DROP):
                got += count
            return got, 0

        with closing(connection):
            spent = timed(read)
        assert sender.wait() == 0, "the sender failed"
    return spent


def ours(where: Where, new_fold: Callable[[Offset, Offset], Any], *, to_arrow: bool = False) -> Spent:
    """Our own Fetch, with a fold of each partition."""
    with closing(Cluster([Endpoint.parse(where.listener)], where.security)) as cluster:
        info = cluster.refresh().topics[where.topic]
        partitions = [values.TopicPartition(where.topic, number) for number in info.partitions]
        ends = {partition: listed(cluster, partition) for partition in partitions}

        def read() -> tuple[int, int]:
            reads = [RangeReading(Range(one, info.topic_id, 0, ends[one].offset), new_fold) for one in partitions]
            read_ranges(cluster, reads, patience_s=PATIENCE_S)
            if to_arrow:
                packed_batch(
                    [fact for one in reads for fact in one.fold.facts(one.partition, one.topic_id, 0)], range(BUCKETS)
                )
            assert not any(one.notices for one in reads)
            return sum(one.size for one in reads), sum(getattr(one.fold, "batches", 0) for one in reads)

        return timed(read)


def fetches_of(where: Where) -> tuple[list[Any], int]:
    """The Fetch requests with which the fold reads a topic, and how many batches the topic has."""
    requests: list[Any] = []
    send = Connection.send

    def noting(connection: Connection, request: Any, *more: float) -> None:
        if request.API_KEY == FetchRequest.API_KEY:
            requests.append(request)
        send(connection, request, *more)

    Connection.send = noting  # type: ignore[method-assign]
    try:
        return requests, ours(where, CountingWalk).batches
    finally:
        Connection.send = send  # type: ignore[method-assign]


def bare_fetch(where: Where, requests: Sequence[Any]) -> Spent:
    """The same Fetch requests, one after the other, and every byte of their answers dropped: the broker's limit.

    Bytes of TLS cannot be dropped before they are decrypted, so there they are received and not looked at.
    """
    with closing(Connection(Endpoint.parse(where.listener), where.security)) as connection:
        plain, buffer = connection._socket, memoryview(bytearray(AT_ONCE))
        flags = 0 if where.ca_file else DROP

        def read() -> tuple[int, int]:
            size = 0
            for request in requests:
                connection.send(request)
                left = int.from_bytes(plain.recv(4, 0 if where.ca_file else socket.MSG_WAITALL), "big")
                size += left
                while left:
                    count = plain.recv_into(buffer[: min(left, AT_ONCE)], 0, flags)
                    assert count, "the broker closed the connection"
                    left -= count
            return size, 0

        return timed(read)


def our_fold(where: Where) -> Spent:
    """As the job reads."""
    return ours(where, PartitionFold, to_arrow=True)


def librdkafka(where: Where, *, has_large_queue: bool = True) -> Spent:
    """librdkafka's Python client: large batches of messages, and nothing done with them.

    Both variants have large fetches, no check of checksums, and stop at the last message, so neither waits for the end
    of a partition. With its default queue of 100,000 messages it stops fetching for a second whenever the queue is
    full. With a large queue it never does: that is what its best-informed user has, who has the memory for it.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": where.listener,
            "group.id": f"bench-{time.time_ns()}",
            "isolation.level": "read_uncommitted",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": AT_ONCE,
            "fetch.max.bytes": 64 << 20,
            "queued.max.messages.kbytes": 1 << 20,
            "check.crcs": False,
            **({"queued.min.messages": _LARGE_QUEUE} if has_large_queue else {}),
            **({"security.protocol": "SSL", "ssl.ca.location": where.ca_file} if where.ca_file else {}),
        }
    )
    partitions = list(consumer.list_topics(where.topic).topics[where.topic].partitions)
    starts = [TopicPartition(where.topic, number, OFFSET_BEGINNING) for number in partitions]
    for start in starts:
        consumer.get_watermark_offsets(start)  # connects to the leader, as our own way has done before the clock runs

    def read() -> tuple[int, int]:
        consumer.assign(starts)
        return sum(map(len, messages_of(consumer, where.count))), 0

    with closing(consumer):
        return timed(read)


def messages_of(consumer: Consumer, count: int) -> Iterator[Message]:
    """So many messages; an error, or a pause of `NOTHING_S`, is an exception."""
    left = count
    while left:
        found = consumer.consume(min(10_000, left), timeout=NOTHING_S)
        if not found:
            raise TimeoutError(f"{left:,} of {count:,} messages did not come")
        for message in found:
            if (error := message.error()) is not None:
                raise KafkaException(error)
        yield from found
        left -= len(found)


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
    """Kafka's Java consumer: the time that the tool reports, and the CPU of its process."""
    flags: tuple[str, ...] = ()
    if where.ca_file:
        tls = where.kafka.directory / "tls.properties"
        tls.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={where.ca_file}\n")
        flags = ("--command-config", str(tls))
    cpu_begin = children_cpu_s()
    done = where.kafka.tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        *("--bootstrap-server", where.listener, "--topic", where.topic, "--messages", str(where.count)),
        *("--timeout", "5000", "--fetch-size", str(AT_ONCE), "--hide-header", *flags),
        timeout_s=120.0,
    )
    columns = [column.strip() for column in done.stdout.strip().splitlines()[-1].split(",")]
    return Spent(float(columns[7]) / 1000, children_cpu_s() - cpu_begin)


def spark_source(session: Any, name: str, options: dict[str, str]) -> Spent:
    """All rows of a batch query; CPU is of this process, the JVM and the workers."""
    frame = session.read.format(name).options(**options).load()
    begin, cpu_begin = time.perf_counter(), sum(cpu_seconds(os.getpid()).values())
    frame.write.format("noop").mode("overwrite").save()
    return Spent(time.perf_counter() - begin, sum(cpu_seconds(os.getpid()).values()) - cpu_begin)


def segments_of(directory: Path, topic: str) -> list[Path]:
    """A topic's segments on disk."""
    return sorted(directory.glob(f"{topic}-*/*.log"))
