"""Random requests to a real broker: applications, zombies and administrators on a few partitions of their own.

Law: every step is one thing a real client can ask for; what the broker refuses has not happened, and is counted. When
a step returns, the markers it caused are written, so that whoever looks sees what it left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from confluent_kafka import TopicPartition as Position

from support.answers import is_live
from support.raw_producer import RawProducer
from support.topics import admin_of, create_topic, unique
from support.waiting import eventually
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.ports import MarkerSpec
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster

PARTITIONS, ZOMBIES, APPLICATIONS = 3, 3, 2


class LiveScript:
    """The topic and its clients; `step` does something.

    Attributes:
        steps: what was done, in order.
        refused: the broker's refusals, by error.
    """

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._admin = ClusterAdmin(cluster)
        self._deletes = admin_of(cluster)
        self._random = random
        self.partitions = create_topic(cluster, unique("differential"), PARTITIONS)
        eventually(self._are_led, 15.0, "the leader to lead")  # its leader is known before it leads
        self._zombies = [RawProducer(cluster, unique("zombie")).init() for _ in range(ZOMBIES)]
        self._applications = [RawProducer(cluster, unique("application")).init() for _ in range(APPLICATIONS)]
        self._ends = dict.fromkeys(self.partitions, 0)
        self.steps: list[str] = []
        self.refused: Counter[str] = Counter()
        self._steps: dict[Callable[[], str], int] = {
            self._write: 8,
            self._write_with_a_newer_epoch: 2,
            self._write_outside_of_a_transaction: 1,
            self._mark: 8,
            self._begin: 4,
            self._write_late: 2,
            self._end: 4,
            self._fence: 1,
            self._abort_by_hand: 1,
            self._delete_records: 1,
        }

    def _are_led(self) -> bool:
        return all(reading.problem is None for reading in self._admin.read_partitions(self.partitions).values())

    def step(self) -> str:
        """Something happens, or is refused."""
        (act,) = self._random.choices(list(self._steps), list(self._steps.values()))
        name = getattr(act, "__name__", "").strip("_")
        try:
            done = f"{name}: {act()}"
        except TxnwatchError as exc:
            self.refused[str(exc).rsplit(" ", 1)[-1]] += 1
            done = f"{name} refused: {exc}"
        self.steps.append(done)
        return done

    def _partition(self) -> TopicPartition:
        return self._random.choice(self.partitions)

    def _append(self, producer: RawProducer, *, transactional: bool = True) -> str:
        partition = self._partition()
        values = [b"x"] * self._random.randint(1, 3)
        base = producer.produce(partition, values, transactional=transactional)
        self._ends[partition] = base + len(values)
        return f"{partition}@{base}+{len(values)} by {producer.producer_id}/{producer.producer_epoch}"

    def _write(self) -> str:
        return self._append(self._random.choice(self._zombies))

    def _write_with_a_newer_epoch(self) -> str:
        producer = self._random.choice(self._zombies)
        _adopt(producer, producer.producer_epoch + 1)
        return self._append(producer)

    def _write_outside_of_a_transaction(self) -> str:
        return self._append(self._random.choice(self._zombies), transactional=False)

    def _mark(self) -> str:
        producer = self._random.choice(self._zombies)
        epoch = max(0, producer.producer_epoch + self._random.choice((0, 0, 0, 1, 1, -1)))
        done = self._marker(producer.producer_id, epoch, self._random.choice((0, 0, 0, 1)))
        if epoch > producer.producer_epoch and self._random.random() < 0.8:
            _adopt(producer, epoch)
        return done

    def _marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> str:
        marker = MarkerSpec(self._partition(), producer_id, epoch, coordinator_epoch, self._random.random() < 0.5)
        problem = self._admin.write_marker(marker)
        if problem is not None:
            raise TxnwatchError(f"{marker}: {problem}")
        return str(marker)

    def _begin(self) -> str:
        producer = self._random.choice(self._applications)
        producer.add(*self.partitions)
        return self._append(producer)

    def _write_late(self) -> str:
        return self._append(self._random.choice(self._applications))

    def _end(self) -> str:
        producer = self._random.choice(self._applications)
        commit, version = self._random.random() < 0.5, self._random.choice((4, 5))
        producer.end(commit=commit, version=version)
        self._await_markers(producer)
        return f"{producer.transactional_id} {commit=} {version=}"

    def _fence(self) -> str:
        producer = self._random.choice(self._applications).init()
        return f"{producer.transactional_id} has {producer.producer_id}/{producer.producer_epoch} now"

    def _abort_by_hand(self) -> str:
        producer = self._random.choice(self._applications)
        return self._marker(producer.producer_id, producer.producer_epoch, 0)

    def _delete_records(self) -> str:
        partition = self._partition()
        before = self._random.randint(0, self._ends[partition])
        (done,) = self._deletes.delete_records([Position(*partition, before)]).values()
        try:
            return f"{partition} starts at {done.result(15.0).low_watermark}"
        except Exception as exc:
            raise TxnwatchError(f"DeleteRecords: {exc}") from exc

    def _await_markers(self, producer: RawProducer) -> None:
        """EndTxn answers before they are written; the coordinator completes the transaction afterwards."""
        name = producer.transactional_id
        eventually(lambda: not is_live(self._admin.describe_transactions([name])[name]), 15.0, "the markers")


def _adopt(producer: RawProducer, epoch: int) -> None:
    producer.producer_epoch = epoch
    producer._sequences.clear()
