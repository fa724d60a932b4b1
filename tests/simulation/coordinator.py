"""The transaction coordinators: every change is committed to `__transaction_state` before it takes effect.

Law: a record is appended, and only when the high watermark has passed it does memory change and anything follow
from it (the client's answer, markers, Complete*). A coordinator that takes a log over knows what the log holds,
and sends the markers of every Prepare* again. While a record is under way nothing else happens to its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from simulation.clocks import WorldClocks
from simulation.encoding import LoggedValue
from simulation.owners import Owner
from simulation.partition import PartitionLog
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

TIMEOUT_MS, TWO_PHASE_MS = 60_000, 2147483647
_IDLE = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})


class MarkerOnItsWay(NamedTuple):
    """A marker on its way to a partition."""

    partition: TopicPartition
    transactional_id: str
    log: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    version: int


@dataclass(slots=True)
class Pending:
    """A record that is in the leader's log and not committed yet."""

    offset: int
    value: TransactionLogValue | None


@dataclass(slots=True)
class Transaction:
    """One transactional id in a coordinator's memory.

    Attributes:
        unmarked: the participants that still lack a marker.
        is_complete_in_log: whether the append of its Complete* has failed and stays. The coordinator appends it again;
            it writes no marker, so whatever is written in the meantime is owed none.
    """

    transactional_id: str
    log: int
    value: TransactionLogValue | None = None
    pending: Pending | None = None
    unmarked: set[TopicPartition] = field(default_factory=set)
    is_complete_in_log: bool = False

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The partitions a live transaction has."""
        value = self.value
        if value is None or not value.state.is_live:
            return frozenset()
        return frozenset(TopicPartition(name, number) for name, parts in value.partitions or () for number in parts)

    @property
    def is_free(self) -> bool:
        """Whether the coordinator would accept a request now."""
        return self.pending is None

    @property
    def is_idle(self) -> bool:
        """Whether the id is known and has no live transaction."""
        return self.value is not None and self.value.state in _IDLE


class Coordinators:
    """All coordinators of the cluster, by partition of their log.

    Attributes:
        transactions: what they remember.
        markers: on their way, in any order.
        max_epoch: the last producer epoch before another producer id is handed out (32767 in Kafka).
        clocks: the brokers'.
        ending: by id, the transaction that its client believes to commit.
        moved: the ids whose partition of the log is another one since a restart, with its number.
        abandoned: the ids whose two-phase transaction nobody ends.
        answered: the ids whose EndTxn was answered; their clients have not noticed yet.
    """

    def __init__(self, logs: list[PartitionLog], max_epoch: int, clocks: WorldClocks) -> None:
        self.logs = logs
        self.max_epoch = max_epoch
        self.transactions: dict[str, Transaction] = {}
        self.markers: list[MarkerOnItsWay] = []
        self.clocks = clocks
        self.ending: dict[str, Owner] = {}
        self.answered: set[str] = set()
        self.moved: dict[str, int] = {}
        self.abandoned: set[str] = set()
        self._next_producer_id = 100

    def is_held(self, producer_id: int, partition: TopicPartition) -> bool:
        """The truth: whether a live transaction of the producer has the partition, so that a marker is owed."""
        return bool(self._states_of_holders(producer_id, partition))

    def is_ongoing(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether the client of such a transaction may still write; once it has ended, its marker may be lost."""
        return self._states_of_holders(producer_id, partition) == {S.ONGOING}

    def _states_of_holders(self, producer_id: int, partition: TopicPartition) -> set[S]:
        return {
            known.value.state
            for known in self.transactions.values()
            if known.value is not None and known.value.producer_id == producer_id and partition in known.held
            if not known.is_complete_in_log
        }

    def init(self, name: str, log: int, version: int, timeout_ms: int) -> None:
        """InitProducerId: a new id, the next epoch, another producer id; an open transaction is aborted first."""
        known = self.transactions.setdefault(name, Transaction(name, log))
        value = known.value
        if not known.is_free:
            return
        if value is None:
            self._append(known, self._value(log, self.new_producer_id(), 0, version, timeout_ms))
        elif value.state is S.ONGOING:
            self.fence(known)
        elif value.state in _IDLE and value.producer_epoch >= self.max_epoch - 1:
            fresh = self._value(log, self.new_producer_id(), 0, version, timeout_ms, previous=value.producer_id)
            self._append(known, fresh)
        elif value.state in _IDLE:
            epoch, previous = value.producer_epoch + 1, value.producer_id
            self._append(known, self._value(log, value.producer_id, epoch, version, timeout_ms, previous=previous))

    def add(self, known: Transaction, partition: TopicPartition) -> None:
        """AddPartitionsToTxn, or the implicit one of transaction.version 2: the whole set, Ongoing."""
        value = known.value
        if value is None or not known.is_free or not (value.state is S.ONGOING or value.state in _IDLE):
            return
        held = known.held | {partition}
        start_ms = value.start_ms if value.state is S.ONGOING else self._stamp_ms(known.log)
        self._append(known, self._changed(known, value, S.ONGOING, partitions=_grouped(held), start_ms=start_ms))

    def end(self, known: Transaction, *, commit: bool) -> None:
        """EndTxn: from transaction.version 2 on with the next epoch, or with another producer id to follow.

        An abort of an empty transaction has a start of its own, which is the time of its Prepare* record. Kafka accepts
        it from transaction.version 2 on (TransactionMetadata.prepareAbortOrCommit with noPartitionAdded, since 4.0.0).
        """
        value = known.value
        if value is None or not known.is_free:
            return
        version = value.client_transaction_version
        is_empty_abort = version == 2 and value.state in _IDLE and not commit
        if value.state is not S.ONGOING and not is_empty_abort:
            return
        epoch, following = value.producer_epoch, None
        if version == 2:
            epoch += 1
            following = self.new_producer_id() if epoch >= self.max_epoch else None
        state = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
        changes: dict[str, Any] = {"start_ms": self._stamp_ms(known.log)} if is_empty_abort else {}
        held = _grouped(known.held)
        ended = self._changed(
            known, value, state, producer_epoch=epoch, next_producer_id=following, partitions=held, **changes
        )
        self._append(known, ended)

    def fence(self, known: Transaction) -> None:
        """An abort by the coordinator, for a timeout or a successor: the next epoch in every version."""
        value = known.value
        if value is not None and known.is_free and value.state is S.ONGOING:
            epoch = value.producer_epoch + 1
            self._append(
                known,
                self._changed(known, value, S.PREPARE_ABORT, producer_epoch=epoch, partitions=_grouped(known.held)),
            )

    def expire(self, known: Transaction) -> None:
        """A tombstone for an id that was idle for long."""
        if known.is_free and known.is_idle:
            self._append(known, None)

    def forget(self, known: Transaction) -> None:
        """The fault: a tombstone for an id with a live transaction; after a restart the coordinator has lost the id."""
        if known.is_free and known.value is not None and self.logs[known.log].has_leader:
            self._append(known, None)

    def complete(self) -> None:
        """Complete* for everything whose markers are all written."""
        for known in list(self.transactions.values()):
            value = known.value
            if value is None or not known.is_free or not value.state.is_prepare or known.unmarked:
                continue
            done = S.COMPLETE_COMMIT if value.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT
            is_rotated = value.next_producer_id is not None
            moved = {"producer_id": value.next_producer_id, "producer_epoch": 0} if is_rotated else {}
            self._append(known, self._changed(known, value, done, partitions=(), next_producer_id=None, **moved))

    def acknowledge(self, marker: MarkerOnItsWay) -> None:
        """A marker is committed, or its partition is deleted, or (the fault) counts as deleted."""
        known = self.transactions.get(marker.transactional_id)
        if known is None or known.value is None or marker.coordinator_epoch != self.logs[marker.log].epoch:
            return
        value = known.value
        if value.state.is_prepare and (value.producer_id, value.producer_epoch) == marker[3:5]:
            known.unmarked.discard(marker.partition)

    def committed(self, log: int) -> None:
        """The high watermark has moved: records below it take effect."""
        watermark = self.logs[log].high_watermark
        for known in list(self.transactions.values()):
            if known.log == log and known.pending is not None and known.pending.offset < watermark:
                value, known.pending = known.pending.value, None
                self.enter(known, value)

    def take_over(self, log: int) -> None:
        """Another leader of the log, with its next epoch: its memory is the log, up to its end."""
        held = self.logs[log]
        for name in [name for name, known in self.transactions.items() if known.log == log]:
            del self.transactions[name]
        last = {
            entry.body.transactional_id: entry.body for entry in held.entries if isinstance(entry.body, LoggedValue)
        }
        for name, logged in last.items():
            if logged.value is not None and self.moved.get(name, log) == log:
                self.enter(self.transactions.setdefault(name, Transaction(name, log)), logged.value)

    def enter(self, known: Transaction, value: TransactionLogValue | None) -> None:
        known.value, known.is_complete_in_log = value, False
        if value is None:
            self.transactions.pop(known.transactional_id, None)
        elif value.state.is_prepare:
            self._answer(known, value)
            known.unmarked = set(known.held)
            self.markers.extend(
                MarkerOnItsWay(
                    partition,
                    known.transactional_id,
                    known.log,
                    value.producer_id,
                    value.producer_epoch,
                    self.logs[known.log].epoch,
                    value.state is S.PREPARE_COMMIT,
                    value.client_transaction_version,
                )
                for partition in sorted(known.unmarked)
            )

    def _answer(self, known: Transaction, value: TransactionLogValue) -> None:
        self.answered.add(known.transactional_id)
        believed = self.ending.pop(known.transactional_id, None)
        if value.state is S.PREPARE_COMMIT:
            self.told_committed(Owner(known.transactional_id, value.producer_id, value.start_ms))
            if believed is not None:
                self.told_committed(believed)

    def told_committed(self, owner: Owner) -> None:
        """A client is told that its transaction is committed; the truth listens here."""

    def owes(self, producer_id: int, partition: TopicPartition) -> bool:
        """Whether a coordinator has a marker to write there, or its transaction continues.

        A coordinator strikes a partition off once its marker is acknowledged. If the marker is lost after that, in an
        unclean election, nobody writes it again, though the log has the transaction as prepared until the last one.
        """
        return any(
            known.value is not None
            and known.value.producer_id == producer_id
            and partition in (known.unmarked if known.value.state.is_prepare else known.held)
            for known in self.transactions.values()
        )

    def _append(self, known: Transaction, value: TransactionLogValue | None) -> None:
        log = self.logs[known.log]
        if log.has_leader:
            offset = log.append(LoggedValue(known.transactional_id, value, self._stamp_ms(known.log)))
            if value is not None:
                self.clocks.logged(known.transactional_id, value)
            known.pending = Pending(offset, value)

    def _stamp_ms(self, log: int) -> int:
        return self.clocks.stamp_ms(self.logs[log])

    def _changed(self, known: Transaction, value: TransactionLogValue, state: S, **changes: Any) -> TransactionLogValue:
        previous = value.producer_id if value.version >= 1 else None
        stamp_ms = self._stamp_ms(known.log)
        return replace(value, state=state, last_update_ms=stamp_ms, previous_producer_id=previous, **changes)

    def _value(
        self, log: int, producer_id: int, epoch: int, version: int, timeout_ms: int, *, previous: int | None = None
    ) -> TransactionLogValue:
        return TransactionLogValue(
            version=min(version, 1),
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=timeout_ms,
            state=S.EMPTY,
            partitions=None,
            last_update_ms=self._stamp_ms(log),
            start_ms=None,
            previous_producer_id=(producer_id if previous is None else previous) if version else None,
            client_transaction_version=version if version == 2 else 0,
        )

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id


def _grouped(held: Iterable[TopicPartition]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    topics: dict[str, list[int]] = {}
    for partition in sorted(held):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return tuple((name, tuple(numbers)) for name, numbers in topics.items())
