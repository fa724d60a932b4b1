"""Many partitions: what the watch costs itself and the brokers, scanned and by census, idle and busy.

One broker, seen through a gate that counts requests and bytes by client. Beside the watch a consumer group of one
librdkafka consumer reads the same partitions, with its defaults: that is what the brokers' operator knows. CPU is that
of all processes of the watch. Idle and busy are measured for a minute each: that is the pause between two censuses of
the scanned partitions, so both contain one.

Busy is two hundred transactions a second that end while the next ones of the same producers begin. Each has one record
of a hundred bytes on each of five partitions, so a second has a thousand batches, a thousand markers, and three records
of a coordinator for each transaction. Every producer has partitions of its own: there are at least two hundred
producers, and two thousand for ten thousand partitions, which then take turns.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from bench.results import Point, Row
from bench.usage import Usage, usage_of
from support.fast_writer import Load, writing
from support.gate import Gate, GatedKafka
from support.raw_producer import RawProducer
from support.watch import RunningWatch
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.client.security import Security
from txnwatch_demo.late_write import set_verification

SIZES = (100, 1_000, 10_000)
AT_ONCE = 500  # partitions that one request creates
WARM_UP_S, SETTLED_S, RATES_KNOWN_S, MEASURED_S, LIMITED_S = 15.0, 5.0, 25.0, 60.0, 30.0
TRANSACTIONS_S, OF_A_TRANSACTION, RECORD = 200, 5, bytes(100)
RATE, TOO_MUCH = 1 << 20, 4 << 20  # bytes a second: what is allowed, and what is written
RECORDS_S, AT_A_TIME = 400, 8  # of what is too much
GROUP = "beside"
WATCH = "the watch"
FETCH = 1
_CLIENT_ID = struct.Struct(">hhih")  # api key, api version, correlation id, length of the client id


@dataclass(frozen=True, slots=True)
class Seen:
    """What one kind of client has asked for and got."""

    requests: int
    out: int
    back: int


class CountingGate(Gate):
    """Counts requests, their bytes and those of their answers: of the consumer group, and of everybody else."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: Counter[str] = Counter()
        self.out: Counter[str] = Counter()
        self.back: Counter[str] = Counter()
        self.fetched: Counter[str] = Counter()
        self._clients: dict[int, str] = {}

    def _requests(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        *_, length = _CLIENT_ID.unpack_from(frame)
        name = frame[_CLIENT_ID.size : _CLIENT_ID.size + length].decode()
        client = self._clients[id(asked)] = GROUP if name == GROUP else WATCH
        self.requests[client] += 1
        self.out[client] += len(frame)
        return super()._requests(frame, asked)

    def _answers(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes:
        client = self._clients.get(id(asked), WATCH)
        self.back[client] += len(frame)
        api_key, _ = asked.get(int.from_bytes(frame[:4], "big"), (-1, -1))
        if api_key == FETCH:
            self.fetched[client] += len(frame)
        return super()._answers(frame, asked)

    def seen(self, client: str) -> Seen:
        return Seen(self.requests[client], self.out[client], self.back[client])


def run(directory: Path, rows: list[Row]) -> None:
    """One broker; a watch for each size."""
    with CountingGate() as gate, GatedKafka(directory / "kafka", gate, heap="2g") as kafka:
        kafka.start()
        set_verification(kafka.bootstrap_servers, [1], enabled=False)  # as on the brokers of the other benchmarks
        with closing(Cluster([Endpoint.parse(kafka.bootstrap_servers)], Security())) as cluster:
            RawProducer(cluster, "somebody").init()  # the coordinators' log exists from here on
        found = {
            (how, what): Row("partitions", f"{how}, {what}", "partitions", "the consumer group's bytes")
            for how in ("scanned", "by census")
            for what in ("idle", "busy")
        }
        for count in SIZES:
            _create(kafka.bootstrap_servers, _topic(count), count)
            for how in ("scanned", "by census"):
                idle, busy = _measure(directory, gate, kafka.bootstrap_servers, count, how)
                found[how, "idle"].points.append(idle)
                found[how, "busy"].points.append(busy)
        rows += found.values()


def _topic(count: int) -> str:
    return f"partitions-{count}"


def _create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    first = min(AT_ONCE, partitions)
    admin.create_topics([NewTopic(topic, first, 1)])[topic].result(120.0)
    for upto in range(first + AT_ONCE, partitions + 1, AT_ONCE):
        admin.create_partitions([NewPartitions(topic, upto)])[topic].result(120.0)


def _flags(topic: str, how: str) -> tuple[str, ...]:
    scanned, counted = (topic, "nothing") if how == "scanned" else ("nothing", topic)
    return "--topics", scanned, "--census-topics", counted


def _measure(directory: Path, gate: CountingGate, bootstrap: str, count: int, how: str) -> tuple[Point, Point]:
    """Idle, and busy."""
    topic = _topic(count)
    places = places_of(count)
    load = Load(int(bootstrap.rpartition(":")[2]), topic, places, TRANSACTIONS_S, commits=True, value=RECORD)
    with (
        RunningWatch(gate.address, directory / how.replace(" ", "-") / topic, *_flags(topic, how)) as watch,
        _consumer(gate.address, topic),
    ):
        watch.until_ready()
        time.sleep(WARM_UP_S)
        idle, idle_figures = _between(gate, watch.pid)
        with writing(load) as written:
            time.sleep(SETTLED_S)
            before, log_before, since = written.value, _log_end(bootstrap), time.monotonic()
            busy, busy_figures = _between(gate, watch.pid)
            took_s = time.monotonic() - since
            transactions_s = (written.value - before) / took_s
            busy_figures |= {
                "transactions/s": transactions_s,
                "batches/s": transactions_s * len(places[0]),
                "markers/s": transactions_s * len(places[0]),
                "coordinator records/s": (_log_end(bootstrap) - log_before) / took_s,
            }
    points = _point(count, idle, idle_figures), _point(count, busy, busy_figures)
    for point in points:
        print(f"  {point}", flush=True)
    return points


def places_of(count: int) -> tuple[tuple[int, ...], ...]:
    """The partitions of each producer: together they cover all; a round has `TRANSACTIONS_S` of the producers."""
    producers = max(TRANSACTIONS_S, count // OF_A_TRANSACTION)
    return tuple(
        tuple((number * OF_A_TRANSACTION + step) % count for step in range(OF_A_TRANSACTION))
        for number in range(producers)
    )


def _log_end(bootstrap: str) -> int:
    """The sum of the end offsets of the coordinators' log: every record, and nothing else, has an offset."""
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})) as consumer:
        partitions = consumer.list_topics(TRANSACTION_STATE_TOPIC).topics[TRANSACTION_STATE_TOPIC].partitions
        places = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in partitions]
        return sum(consumer.get_watermark_offsets(place, timeout=10.0)[1] for place in places)


def _between(gate: CountingGate, pid: int) -> tuple[Usage, dict[str, float]]:
    """A window of the watch: its usage, and what both clients requested."""
    clients = (WATCH, GROUP)
    before = {client: gate.seen(client) for client in clients}
    with usage_of(pid) as usage:
        time.sleep(MEASURED_S)
    figures: dict[str, float] = {"cores": usage.cores}
    for client in clients:
        then, now = before[client], gate.seen(client)
        figures[f"requests/s of {client}"] = (now.requests - then.requests) / usage.took_s
        figures[f"bytes/s to {client}"] = (now.back - then.back) / usage.took_s
        figures[f"bytes/s from {client}"] = (now.out - then.out) / usage.took_s
    return usage, figures


def _point(count: int, usage: Usage, figures: dict[str, float]) -> Point:
    ratio = figures[f"bytes/s to {WATCH}"] / max(1.0, figures[f"bytes/s to {GROUP}"])
    return Point(count, usage.took_s, usage.cpu_s, ratio, figures)


@contextlib.contextmanager
def _consumer(bootstrap: str, topic: str) -> Iterator[None]:
    """A consumer group's one member, reading all of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": GROUP, "auto.offset.reset": "latest"}
    )
    consumer.subscribe([topic])
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            consumer.consume(1_000, 0.2)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10.0)
        consumer.close()


@contextlib.contextmanager
def _written(bootstrap: str, topic: str) -> Iterator[None]:
    """Writes `TOO_MUCH` bytes a second."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "sticky.partitioning.linger.ms": 0})
    is_over = threading.Event()

    def write() -> None:
        due = time.monotonic()
        while not is_over.is_set():
            for _ in range(AT_A_TIME):
                producer.produce(topic, bytes(TOO_MUCH // RECORDS_S))
            producer.poll(0)
            due += AT_A_TIME / RECORDS_S
            time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10.0)
        producer.flush(10.0)


def run_limited(directory: Path, rows: list[Row]) -> None:
    """More is written than the watch may fetch; measured once it knows what each partition writes."""
    topic = _topic(SIZES[0])
    flags = (*_flags(topic, "scanned"), "--max-bytes-per-second", str(RATE))
    with CountingGate() as gate, GatedKafka(directory / "kafka", gate) as kafka:
        kafka.start()
        _create(kafka.bootstrap_servers, topic, SIZES[0])
        with RunningWatch(gate.address, directory / "limited", *flags) as watch:
            watch.until_ready()
            with _written(kafka.bootstrap_servers, topic):
                time.sleep(RATES_KNOWN_S)
                before = gate.fetched[WATCH]
                with usage_of(watch.pid) as usage:
                    time.sleep(LIMITED_S)
                rate = (gate.fetched[WATCH] - before) / usage.took_s
    figures = {"bytes/s written": TOO_MUCH, "bytes/s allowed": RATE, "bytes/s fetched": rate, "cores": usage.cores}
    point = Point(SIZES[0], usage.took_s, usage.cpu_s, figures=figures)
    rows.append(Row("limit", "--max-bytes-per-second", "partitions", points=[point]))
