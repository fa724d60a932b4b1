"""The disturbances of the soak, one after the other. All but the hangs are no fault: healthy clusters have them."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from confluent_kafka import ElectionType, KafkaException

from soak.hangs import Hangs
from soak.redis_outages import RedisOutages
from support.raw_producer import RawProducer
from support.topics import admin_of
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import DurationMs, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SOURCE = "soak.source"
PARTITIONS = 6
DIES = "dies-"  # transactional ids of clients that die
PAUSE_S = 8.0  # from one disturbance to the next
_CLIENT_TIMEOUT_MS = DurationMs(5_000)
_TRIES = 5  # to start a server while other work uses the machine


@dataclass
class Trouble:
    """The disturbances, and how many of each there were."""

    kafka: EmbeddedKafka
    cluster: Cluster
    hangs: Hangs
    redis: RedisOutages
    done: Counter[str] = field(default_factory=Counter)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _restarts: Iterator[int] = field(default_factory=itertools.count)

    def next(self) -> None:
        """The next disturbance. A hang is made before Redis goes, so that it is open when Redis comes back."""
        number = next(self._numbers)
        steps: tuple[Callable[[int], None], ...] = (
            self.client_dies,
            self.restart,
            self.hang,
            self.redis_goes,
            self.client_dies,
            self.move_coordinators,
            self.redis_comes,
            self.client_dies,
        )
        steps[number % len(steps)](number)

    def client_dies(self, number: int) -> None:
        """A transaction is left open; its coordinator aborts it after five seconds."""
        partition = TopicPartition(SOURCE, number % PARTITIONS)
        with contextlib.suppress(TxnwatchError):
            producer = RawProducer(self.cluster, f"{DIES}{number}", _CLIENT_TIMEOUT_MS).init()
            producer.add(partition)
            producer.produce(partition)
            self.done["clients that died with a transaction open"] += 1

    def restart(self, _: int) -> None:
        """The next broker restarts, in order or after kill -9. Node 1, the only controller, is always killed."""
        number = next(self._restarts)
        node = number % 3 + 1
        is_orderly = node != 1 and (number // 3) % 2 == 0
        (self.kafka.broker(node).stop if is_orderly else self.kafka.broker(node).kill)()
        patiently(lambda: self.kafka.start_broker(node))
        self.done["clean restarts of a broker" if is_orderly else "restarts of a broker after kill -9"] += 1

    def hang(self, number: int) -> None:
        """A stray write, which no marker ends."""
        if self.hangs.make(number, PARTITIONS):
            self.done["hangs"] += 1

    def redis_goes(self, _: int) -> None:
        """Redis is killed."""
        self.redis.go()

    def redis_comes(self, _: int) -> None:
        """Redis starts again."""
        patiently(self.redis.come)
        self.done["outages of Redis"] += 1

    def end(self) -> None:
        """Redis comes back if it is away: a run can end between two disturbances. It then agrees before the result."""
        if self.redis.is_away:
            self.redis_comes(0)
        self.redis.await_agreement()

    def move_coordinators(self, _: int) -> None:
        """The leader of every partition is its first replica again, also for the coordinators."""
        admin = admin_of(self.cluster)  # kept until the answer is there: with the client goes the request
        with contextlib.suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, None).result(20.0)
            self.done["elections of the preferred leaders"] += 1


def patiently(start: Callable[[], object]) -> None:
    """Starts a server again that was not ready in time."""
    for number in range(_TRIES):
        try:
            start()
        except TxnwatchError:
            if number == _TRIES - 1:
                raise
        else:
            return
