"""Healthy transactional applications, through confluent-kafka, that the demo and the tests run beside the watch.

Apart: the tests run them too, without the demo.

They commit, abort, send offsets to the transaction, write idempotently without a transaction, and use old and future
event times. Each runs in a thread until it is stopped; `error` has the exception of one that fails.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from txnwatch.state.model.values import FIRST_OFFSET, Offset

_DAY_MS = 24 * 3600 * 1000
_QUIET = {"log_level": 2}


@dataclass
class Application:
    """One application in a thread, which calls `step` until it is stopped."""

    name: str
    step: Callable[[], None]
    close: Callable[[], object]
    pause_s: float
    error: Exception | None = None
    steps: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> Application:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Finishes the current step and stops."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30.0)

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.pause_s):
                self.step()
                self.steps += 1
            self.close()
        except (KafkaException, RuntimeError) as exc:
            self.error = exc


def transactional_writer(
    bootstrap: str, name: str, topic: str, *, abort_every: int = 5, pause_s: float = 0.2, seed: int = 0
) -> Application:
    """Writes to a topic in transactions; aborts every `abort_every`-th one."""
    producer = _transactional(bootstrap, name)
    chance = random.Random(seed)  # noqa: S311 - a seed makes the demo repeatable
    numbers = itertools.count(1)

    def step() -> None:
        number = next(numbers)
        producer.begin_transaction()
        for _ in range(chance.randint(1, 5)):
            producer.produce(topic, value=f"{name}-{number}".encode(), key=str(chance.random()).encode())
        producer.flush()  # librdkafka fails fatally if it aborts a transaction before anything was sent
        if number % abort_every == 0:
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    return Application(name, step, producer.flush, pause_s)


def exactly_once_copier(bootstrap: str, name: str, source: str, target: str, *, pause_s: float = 0.3) -> Application:
    """Consumes, produces, and commits its offsets in the same transaction, as Kafka Streams does."""
    producer = _transactional(bootstrap, name)
    consumer = Consumer(
        {
            **_QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])

    def step() -> None:
        messages = [message for message in consumer.consume(20, timeout=0.2) if message.error() is None]
        if not messages:
            return
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, value=message.value(), key=message.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()

    def close() -> None:
        producer.flush()
        consumer.close()

    return Application(name, step, close, pause_s)


def idempotent_writer(bootstrap: str, name: str, topic: str, *, pause_s: float = 0.2) -> Application:
    """Writes without transactions, with event times from 30 days ago to 12 hours ahead."""
    producer = Producer({**_QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True})
    offsets_ms: Iterator[int] = itertools.cycle([-30 * _DAY_MS, 0, _DAY_MS // 2])

    def step() -> None:
        stamp = int(time.time() * 1000) + next(offsets_ms)
        producer.produce(topic, value=name.encode(), timestamp=stamp)
        producer.poll(0)

    return Application(name, step, producer.flush, pause_s)


class CommittedReader:
    """A read_committed consumer of one topic, which a hang stops. Keeps the position of each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                **_QUIET,
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.positions: dict[int, Offset] = dict.fromkeys(range(partitions), FIRST_OFFSET)
        self.records: dict[int, int] = dict.fromkeys(range(partitions), 0)

    def poll(self) -> None:
        """Reads the available records; waits at most 0.1 s."""
        for message in self._consumer.consume(1000, timeout=0.1):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise KafkaException(error)
            self.records[message.partition() or 0] += 1
        for at in self._consumer.position(self._consumer.assignment()):
            if at.offset >= 0:
                self.positions[at.partition] = Offset(at.offset)

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


def _transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer(
        {**_QUIET, "bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(60.0)
    return producer
