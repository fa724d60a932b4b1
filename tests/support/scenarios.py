"""What a fault scenario is, and the scenarios that need no broker to die. `support.broker_scenarios` has the others.

`make` brings a fault about and returns when it is in effect; `end` ends what hangs. What is expected is what is
true: the verdict, its reason, how the transaction would have ended, and how the incident is resolved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from support.answers import state_of
from support.fault_world import OFFSETS, FaultWorld, now_s
from support.injection import inject
from support.kafka_faults import (
    LONG_TIMEOUT_MS,
    abort_by_hand,
    foreign_marker,
    late_write,
    next_transaction,
    stray_write,
)
from support.offset_producer import OffsetProducer
from support.raw_producer import RawProducer
from support.topics import unique
from support.waiting import eventually
from txnwatch.state.model.transaction import DescribedTransaction, TransactionState
from txnwatch.state.model.values import TopicPartition
from txnwatch.state.model.verdicts import TWO_PHASE_TIMEOUT_MS
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.wire.internal_topics import TransactionLogValue
from txnwatch_demo.embedded.jars import KAFKA_VERSION
from txnwatch_demo.late_write import await_end

# From the newest on. The others are the last of Kafka 4 that has its coordinator in Scala, the last of Kafka 3, and
# one that verifies no transactional write.
VERSIONS = (KAFKA_VERSION, "4.3.1", "3.9.2", "3.3.2")
KAFKA_4 = tuple(version for version in VERSIONS if version.startswith("4."))
KAFKA_3 = tuple(version for version in VERSIONS if version.startswith("3."))
SHORT_TIMEOUT_MS, HOUR_MS = 5_000, 3_600_000


@dataclass(frozen=True)
class Fault:
    """A fault in effect.

    Attributes:
        producer_ids: whose; anything reported about another one is false.
        partition: the one it is about.
        at_s: since when, our clock.
    """

    transactional_id: str
    producer_ids: frozenset[int]
    partition: TopicPartition
    at_s: float
    end: Callable[[], None]


@dataclass(frozen=True)
class Scenario:
    """One row of the table.

    Attributes:
        truth: what really happened, and what hangs.
        verdicts: what is reported in the end, and before it what may be reported on the way; empty for silence.
        how: how the last incident is resolved.
        pending: the partition is named as one that lacks its marker.
        truncated: a marker that had been read is gone again, and that is reported as well.
    """

    row: str
    name: str
    fault: str
    truth: str
    make: Callable[[FaultWorld], Fault]
    verdicts: tuple[str, ...] = ("hanging",)
    reason: str | None = None
    outcome: str = "unknown"
    how: str = "aborted"
    versions: tuple[str, ...] = VERSIONS
    pending: bool = False
    truncated: bool = False


def _fault(
    world: FaultWorld, producer: RawProducer, partition: TopicPartition, end: Callable[[], None] | None = None
) -> Fault:
    at_s = now_s()

    def by_hand() -> None:
        abort_by_hand(world.cluster, partition, producer.producer_id)

    return Fault(producer.transactional_id, frozenset({producer.producer_id}), partition, at_s, end or by_hand)


def open_transaction(world: FaultWorld, partition: TopicPartition, timeout_ms: int = LONG_TIMEOUT_MS) -> RawProducer:
    """An open transaction with one record."""
    producer = RawProducer(world.cluster, unique("app"), timeout_ms).init()
    producer.add(partition)
    producer.produce(partition)
    return producer


def never_begun(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    return _fault(world, stray_write(world.cluster, unique("app"), partition), partition)


def late_after(world: FaultWorld, *, commit: bool) -> Fault:
    partition = world.partition(2)
    return _fault(world, late_write(world.cluster, unique("app"), partition, commit=commit), partition)


def late_after_timeout(world: FaultWorld) -> Fault:
    added, other = world.partition(2), world.partition(3)
    producer = open_transaction(world, added, timeout_ms=1_000)
    eventually(lambda: _state(world, producer) is TransactionState.COMPLETE_ABORT, 60.0, "the coordinator's scan")
    producer.produce(other)
    return _fault(world, producer, other)


def refused_marker(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    producer = open_transaction(world, partition)
    foreign_marker(world.cluster, partition, producer)
    producer.end(commit=True)

    def end() -> None:
        name = producer.transactional_id
        described = ClusterAdmin(world.cluster).describe_transactions([name])[name]
        assert isinstance(described, DescribedTransaction)
        completed = _value(producer, TransactionState.COMPLETE_COMMIT, (), LONG_TIMEOUT_MS)
        inject(world.cluster, name, replace(completed, start_ms=described.start_ms))

    return _fault(world, producer, partition, end)


def forgotten(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    producer = open_transaction(world, partition)
    inject(world.cluster, producer.transactional_id, None)
    world.restart(1)
    return _fault(world, producer, partition)


def absorbed_later(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    producer = stray_write(world.cluster, unique("app"), partition)
    return _fault(
        world, producer, partition, lambda: next_transaction(world.cluster, producer.transactional_id, partition)
    )


def absorbed_at_once(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    producer = stray_write(world.cluster, unique("app"), partition)
    next_transaction(world.cluster, producer.transactional_id, partition)
    return _fault(world, producer, partition, lambda: None)


def past_its_timeout(world: FaultWorld) -> Fault:
    """If the coordinator's scan comes too soon, the next try has a whole interval."""
    partition = world.partition(2)
    start = len(world.tail.published)
    tried: list[RawProducer] = []
    for _ in range(3):
        producer = open_transaction(world, partition, SHORT_TIMEOUT_MS)
        tried.append(producer)
        at_s = now_s() + SHORT_TIMEOUT_MS / 1000
        if _is_reported_late(world, start, producer):
            break
    ids = frozenset(producer.producer_id for producer in tried)
    return Fault(producer.transactional_id, ids, partition, at_s, lambda: None)


def _is_reported_late(world: FaultWorld, start: int, producer: RawProducer) -> bool:
    """Whether it is reported as late. It may also end before."""

    def is_late() -> bool:
        return any(one.event.verdict == "late" for one in world.published_after(start, [producer.producer_id]))

    def is_over() -> bool:
        return _state(world, producer) is TransactionState.COMPLETE_ABORT

    eventually(lambda: is_late() or is_over(), 60.0, "late, or its end")
    return is_late()


def long_timeout(world: FaultWorld) -> Fault:
    partition = world.partition(2)
    producer = open_transaction(world, partition)
    return _fault(world, producer, partition, lambda: producer.end(commit=True))


def two_phase(world: FaultWorld) -> Fault:
    """No release has a stable request that begins one: its record is injected; the restarted coordinator reads it."""
    partition = world.partition(2)
    producer = RawProducer(world.cluster, unique("app")).init()
    held = ((partition.topic, (partition.partition,)),)
    inject(
        world.cluster, producer.transactional_id, _value(producer, TransactionState.ONGOING, held, TWO_PHASE_TIMEOUT_MS)
    )
    world.restart(1)
    producer.produce(partition)
    return _fault(world, producer, partition, lambda: producer.end(commit=True))


def stale_view(world: FaultWorld) -> Fault:
    """A record in the log that the coordinator, going by its memory, knows nothing of: it covers a stray write."""
    partition = world.partition(2)
    producer = RawProducer(world.cluster, unique("app"), LONG_TIMEOUT_MS).init()
    held = ((partition.topic, (partition.partition,)),)
    value = _value(producer, TransactionState.ONGOING, held, TWO_PHASE_TIMEOUT_MS)
    inject(world.cluster, producer.transactional_id, replace(value, start_ms=value.start_ms - 2 * HOUR_MS))
    producer.produce(partition, [b"never added"])
    return _fault(world, producer, partition)


def late_offsets(world: FaultWorld) -> Fault:
    producer, group = OffsetProducer(world.cluster, unique("app")), unique("group")
    producer.init()
    source = world.partition(2)
    producer.add_offsets(group)
    producer.commit_offset(group, source, 1)
    producer.end(commit=True)
    await_end(world.cluster, producer, OFFSETS)
    producer.commit_offset(group, source, 2)
    return _fault(world, producer, OFFSETS)


def _state(world: FaultWorld, producer: RawProducer) -> TransactionState | None:
    name = producer.transactional_id
    return state_of(ClusterAdmin(world.cluster), name)


def _value(
    producer: RawProducer, state: TransactionState, partitions: tuple[tuple[str, tuple[int, ...]], ...], timeout_ms: int
) -> TransactionLogValue:
    now_ms = int(now_s() * 1000)
    return TransactionLogValue(
        0, producer.producer_id, producer.producer_epoch, timeout_ms, state, partitions, now_ms, now_ms
    )
