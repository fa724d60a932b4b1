"""Many partitions: what the watch costs itself and the brokers, scanned and by census, idle and busy.

One broker, seen through a gate that counts requests and bytes by client. Beside the watch a consumer group of one
librdkafka consumer reads the same partitions, with its defaults: that is what the brokers' operator knows. Busy is a
thousand records of a hundred bytes a second, spread over all partitions. CPU is that of all processes of the watch.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from bench.idle import cpu_seconds
from bench.results import Point, Row
from support.gate import Gate, GatedKafka
from support.watch import RunningWatch

SCANNED, BY_CENSUS = (10, 100, 1_000), (100, 1_000, 10_000)
AT_ONCE = 500  # partitions that one request creates
WARM_UP_S, MEASURED_S = 20.0, 30.0
RECORDS_PER_S, RECORD = 1_000, bytes(100)
RATE, TOO_MUCH = 1 << 20, 4 << 20  # bytes a second: what is allowed, and what is written
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
        for count in sorted({*SCANNED, *BY_CENSUS}):
            _create(kafka.bootstrap_servers, f"many-{count}", count)
        for how, sizes in (("scanned", SCANNED), ("by census", BY_CENSUS)):
            idle, busy = (
                Row("partitions", f"{how}, {what}", "partitions", "the consumer group's bytes")
                for what in ("idle", "busy")
            )
            for count in sizes:
                for row, point in zip(
                    (idle, busy), _measure(directory, gate, kafka.bootstrap_servers, count, how), strict=True
                ):
                    row.points.append(point)
            rows += [idle, busy]
        rows.append(_limited(directory, gate, kafka.bootstrap_servers))


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
    topic = f"many-{count}"
    checkpoint = directory / f"{how}-{count}".replace(" ", "-")
    with RunningWatch(gate.address, checkpoint, *_flags(topic, how)) as watch, _consumer(gate.address, topic):
        watch.until_ready()
        time.sleep(WARM_UP_S)
        idle = _between(gate, watch.pid, count)
        with _written(bootstrap, topic, RECORDS_PER_S, RECORD):
            time.sleep(WARM_UP_S / 3)
            return idle, _between(gate, watch.pid, count)


def _between(gate: CountingGate, pid: int, count: int) -> Point:
    clients = (WATCH, GROUP)
    cpu, since = sum(cpu_seconds(pid).values()), time.monotonic()
    before = {client: gate.seen(client) for client in clients}
    time.sleep(MEASURED_S)
    took_s = time.monotonic() - since
    cpu_s = sum(cpu_seconds(pid).values()) - cpu
    figures: dict[str, float] = {"cores": cpu_s / took_s}
    for client in clients:
        then, now = before[client], gate.seen(client)
        figures[f"requests/s of {client}"] = (now.requests - then.requests) / took_s
        figures[f"bytes/s to {client}"] = (now.back - then.back) / took_s
        figures[f"bytes/s from {client}"] = (now.out - then.out) / took_s
    ratio = figures[f"bytes/s to {WATCH}"] / max(1.0, figures[f"bytes/s to {GROUP}"])
    point = Point(count, took_s, cpu_s, ratio, figures)
    print(f"  {point}", flush=True)
    return point


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
def _written(bootstrap: str, topic: str, records_per_s: int, record: bytes) -> Iterator[None]:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "sticky.partitioning.linger.ms": 0})
    is_over = threading.Event()

    def write() -> None:
        due, number = time.monotonic(), 0
        while not is_over.is_set():
            for _ in range(max(1, records_per_s // 50)):
                producer.produce(topic, record, key=str(number))
                number += 1
            producer.poll(0)
            due += max(1, records_per_s // 50) / records_per_s
            time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10.0)
        producer.flush(10.0)


def _limited(directory: Path, gate: CountingGate, bootstrap: str) -> Row:
    """More is written than the watch may fetch."""
    topic = f"many-{SCANNED[0]}"
    flags = (*_flags(topic, "scanned"), "--max-bytes-per-second", str(RATE))
    with RunningWatch(gate.address, directory / "limited", *flags) as watch:
        watch.until_ready()
        with _written(bootstrap, topic, TOO_MUCH // 10_000, bytes(10_000)):
            time.sleep(WARM_UP_S / 3)
            before, since = gate.fetched[WATCH], time.monotonic()
            time.sleep(MEASURED_S)
            rate = (gate.fetched[WATCH] - before) / (time.monotonic() - since)
    figures = {"bytes/s written": TOO_MUCH, "bytes/s allowed": RATE, "bytes/s fetched": rate}
    return Row("partitions", "--max-bytes-per-second", "partitions", points=[Point(SCANNED[0], figures=figures)])
