"""A cluster in memory, as far as transactions go: partitions with producers, coordinators with transactional ids.

Follows the brokers' rules (ProducerAppendInfo): a batch opens a span or joins the open one, a newer epoch closes
nothing, a marker closes unless its producer epoch or coordinator epoch is older than the last.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from txnwatch.state.model.ports import ActiveProducer, MarkerSpec, SpanHistory
from txnwatch.state.model.transaction import Marker, TransactionState
from txnwatch.state.model.values import TopicPartition


@dataclass
class FakePartition:
    """One partition as its leader has it; `written` has the offset and the epoch of each producer's data."""

    topic_id: str
    leader: int = 1
    leader_epoch: int = 0
    log_start: int = 0
    end: int = 0
    producers: dict[int, ActiveProducer] = field(default_factory=dict)
    starts: dict[int, SpanHistory] = field(default_factory=dict)
    markers: dict[int, Marker] = field(default_factory=dict)
    all_markers: dict[int, list[Marker]] = field(default_factory=dict)
    written: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop; never below the log's start."""
        starts = [row.txn_start_offset for row in self.producers.values() if row.txn_start_offset is not None]
        return max(self.log_start, min([*starts, self.end]))


@dataclass
class FakeTransaction:
    """One transactional id as its coordinator has it; `partitions` are those that still lack a marker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = 0
    state: TransactionState = TransactionState.EMPTY
    timeout_ms: int = 60_000
    start_ms: int | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    coordinator: int = 1


class FakeCluster:
    """What really happens.

    Attributes:
        policies: cleanup.policy by topic.
        now_ms: the brokers' and the clients' clock.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, FakePartition] = {}
        self.transactions: dict[str, FakeTransaction] = {}
        self.policies: dict[str, str] = {}
        self.now_ms = 1_700_000_000_000
        self._producer_ids = itertools.count(1000)
        self._topic_ids = itertools.count(1)

    def create_topic(self, name: str, partitions: int = 1, cleanup_policy: str = "delete") -> list[TopicPartition]:
        """A topic; creating one that is there re-creates it, with another topic id and nothing in it."""
        topic_id = f"topic-id-{next(self._topic_ids)}"
        created = [TopicPartition(name, number) for number in range(partitions)]
        self.partitions.update({partition: FakePartition(topic_id) for partition in created})
        self.policies[name] = cleanup_policy
        return created

    def init(self, transactional_id: str, *, timeout_ms: int = 60_000) -> FakeTransaction:
        """InitProducerId: a new id gets a producer id, a known one the next epoch; what it had open is aborted."""
        known = self.transactions.get(transactional_id)
        if known is None:
            known = FakeTransaction(transactional_id, next(self._producer_ids), timeout_ms=timeout_ms)
            self.transactions[transactional_id] = known
            return known
        known.producer_epoch += 1
        self._mark_all(known, commit=False)
        known.state, known.timeout_ms, known.start_ms = TransactionState.EMPTY, timeout_ms, None
        return known

    def begin(self, transactional_id: str, *partitions: TopicPartition) -> FakeTransaction:
        """AddPartitionsToTxn and one batch on each partition."""
        owner = self.transactions.get(transactional_id) or self.init(transactional_id)
        if owner.state is not TransactionState.ONGOING:
            owner.state, owner.start_ms = TransactionState.ONGOING, self.now_ms
        owner.partitions.update(partitions)
        for partition in partitions:
            self.write(partition, owner.producer_id, owner.producer_epoch)
        return owner

    def write(self, partition: TopicPartition, producer_id: int, producer_epoch: int = 0, records: int = 1) -> int:
        """A transactional batch, whoever owns it; opens a span or joins the open one. Returns its offset."""
        at = self.partitions[partition]
        base, before = at.end, at.producers.get(producer_id)
        is_open = before is not None and before.txn_start_offset is not None
        same_epoch = before is not None and before.producer_epoch == producer_epoch
        at.producers[producer_id] = ActiveProducer(
            producer_id,
            producer_epoch,
            (
                before.last_sequence + records
                if before and before.last_sequence is not None and same_epoch
                else records - 1
            ),
            self.now_ms,
            before.coordinator_epoch if before is not None else None,
            before.txn_start_offset if before is not None and is_open else base,
        )
        if not is_open:
            marker = at.markers.get(producer_id)
            at.starts[producer_id] = SpanHistory(producer_epoch, marker, is_first=marker is None and at.log_start == 0)
        at.written.setdefault(producer_id, []).append((base, producer_epoch))
        at.end += records
        return base

    def plain(self, partition: TopicPartition, records: int = 1) -> None:
        """Records outside of any transaction."""
        self.partitions[partition].end += records

    def end(self, transactional_id: str, *, commit: bool) -> None:
        """EndTxn, every marker and Complete*."""
        owner = self.transactions[transactional_id]
        self._mark_all(owner, commit=commit)
        owner.state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT

    def prepare(self, transactional_id: str, *, commit: bool) -> None:
        """EndTxn and no marker yet."""
        self.transactions[transactional_id].state = (
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        )

    def lose_markers(self, transactional_id: str, *, commit: bool) -> None:
        """Complete*, although no marker was written: what hangs."""
        owner = self.transactions[transactional_id]
        owner.state = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        owner.partitions.clear()

    def forget(self, transactional_id: str) -> None:
        """The coordinator no longer knows the id."""
        del self.transactions[transactional_id]

    def mark(self, marker: MarkerSpec) -> str | None:
        """A marker as the leader takes it: refused if its producer or coordinator epoch is older than the last."""
        at = self.partitions[marker.partition]
        before = at.producers.get(marker.producer_id)
        if before is not None and marker.producer_epoch < before.producer_epoch:
            return "INVALID_PRODUCER_EPOCH"
        if before is not None and marker.coordinator_epoch < (before.coordinator_epoch or 0):
            return "TRANSACTION_COORDINATOR_FENCED"
        same_epoch = before is not None and before.producer_epoch == marker.producer_epoch
        at.producers[marker.producer_id] = ActiveProducer(
            marker.producer_id,
            marker.producer_epoch,
            before.last_sequence if before is not None and same_epoch else None,
            self.now_ms,
            marker.coordinator_epoch,
            None,
        )
        written = Marker(at.end, marker.producer_epoch, marker.commit, marker.coordinator_epoch, self.now_ms)
        at.markers[marker.producer_id] = written
        at.all_markers.setdefault(marker.producer_id, []).append(written)
        at.end += 1
        return None

    def move_leader(self, partition: TopicPartition, leader: int) -> None:
        """Another leader, under the next epoch."""
        at = self.partitions[partition]
        at.leader, at.leader_epoch = leader, at.leader_epoch + 1

    def _mark_all(self, owner: FakeTransaction, *, commit: bool) -> None:
        for partition in owner.partitions:
            self.mark(MarkerSpec(partition, owner.producer_id, owner.producer_epoch, 0, commit))
        owner.partitions.clear()
