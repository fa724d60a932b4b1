"""A TransactionAdmin over a simulated cluster, in which anything may happen between any two of its requests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from simulation.encoding import Data, Mark
from simulation.partition import DataPartition
from simulation.truth import Truth, data_of
from simulation.world import World
from support.batches import TIMESTAMP_MS
from txnwatch.state.model.ports import (
    UNKNOWN_PARTITION,
    ActiveProducer,
    ListedTransaction,
    MarkerSpec,
    NotSent,
    PartitionReading,
    SpanHistory,
    TransactionListing,
)
from txnwatch.state.model.transaction import (
    ClosingMarker,
    DescribedTransaction,
    Marker,
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import Problem, SpanStart, TopicPartition

_NO_BUDGET = Problem("the time budget was used up before this request")


class WorldAdmin:
    """A TransactionAdmin of the world; the world continues between its requests.

    It passes the contract suite of TransactionAdmin but for two answers: the last sequence of a producer is the offset
    of its last batch, which identifies the batch even after an election, but for a partition that has offsets; and no
    topic has a configuration.

    Attributes:
        harm: what markers that were accepted have done to transactions that their clients or coordinators still own.
        stands_still: nothing happens between two requests.
        unread_share: how often a history cannot be read when it is requested.
    """

    def __init__(self, world: World, truth: Truth, most_between: int) -> None:
        self.world, self.truth, self.most_between = world, truth, most_between
        self.harm: list[str] = []
        self.stands_still = False
        self.unread_share = 0.2
        self._is_out_of_time = False
        self.rng = random.Random(repr(world.rng.getstate()[1][:8]))  # of its own: the world's draws stay the same

    def _time_passes(self) -> None:
        if not self.stands_still:
            for _ in range(self.world.rng.randrange(self.most_between)):
                self.world.step()

    @contextmanager
    def within(self, budget_ms: int) -> Iterator[None]:
        """A budget of 0 is used up at once, any other lasts."""
        before, self._is_out_of_time = self._is_out_of_time, budget_ms <= 0
        try:
            yield
        finally:
            self._is_out_of_time = before

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        self._time_passes()
        return {partition: self.reading(partition) for partition in partitions}

    def reading(self, partition: TopicPartition) -> PartitionReading:
        log, is_hidden = self.world.data.get(partition), partition.topic in self.world.hidden
        if self._is_out_of_time:
            return PartitionReading(partition, _NO_BUDGET)
        if log is None and not is_hidden:
            return PartitionReading(partition, UNKNOWN_PARTITION, is_absent=True)
        if log is None or is_hidden or not log.is_listable:
            return PartitionReading(partition, Problem("no leader, or not shown"))
        rows = []
        for producer_id, known in log.producers.items():
            last = max(data_of(log, producer_id), default=None)
            rows.append(
                ActiveProducer(
                    *(producer_id, known.epoch, 0 if log.has_offsets and last is not None else last),
                    *(known.last_timestamp_ms, known.coordinator_epoch, known.open_start),
                )
            )
        return PartitionReading(
            partition, None, log.topic_id, 1, log.epoch, log.end, log.end, log.last_stable_offset, log.high_watermark,
            log.start, tuple(rows),
        )  # fmt: skip

    def read_span_histories(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanHistory]:
        self._time_passes()
        return {span: self._history(*span) for span in sorted(spans)}  # callers may hand a set

    def _history(self, partition: TopicPartition, producer_id: int, start_offset: int) -> SpanHistory:
        if self._is_out_of_time:
            return SpanHistory(problem=str(_NO_BUDGET))
        if self.rng.random() < self.unread_share:
            self.world.seen["a history was not read"] += 1
            return SpanHistory(problem="the leader sent nothing")
        log = self.world.data.get(partition)
        if log is None or not log.is_listable:
            return SpanHistory(problem="no leader")
        epoch, last, position, is_first = None, None, log.start, log.start == 0
        for offset, next_offset, _, body in log.entries:
            if not log.start <= offset <= start_offset:
                continue
            if offset > position:
                last, is_first = None, False
            position = next_offset
            match body:
                case Data(owner, producer_epoch, _, _) if owner == producer_id and offset == start_offset:
                    epoch = producer_epoch
                case Mark(owner, producer_epoch, coordinator_epoch, commit) if owner == producer_id:
                    last, is_first = Marker(offset, producer_epoch, commit, coordinator_epoch, TIMESTAMP_MS), False
        return SpanHistory(epoch, last, is_first)

    def log_epochs(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, int | Problem]:
        self._time_passes()
        found = {at: self.world.logs[at.partition] for at in logs}
        away = Problem("no leader")
        return {at: log.epoch if log.is_listable else away for at, log in found.items()}

    def closing_marker(self, span: SpanStart, from_offset: int) -> ClosingMarker | None:
        self._time_passes()
        log, first = self.world.data.get(span.partition), max(span.start_offset, from_offset)
        if self._is_out_of_time or log is None or not log.is_listable or log.start > first:
            return None
        closing = self.decided_by(log, span.producer_id, first, log.high_watermark)
        if closing is None:
            return None
        joined, position = [], first
        for offset, next_offset, _, body in log.entries:
            if first <= offset < closing.offset and offset <= position:
                position = next_offset  # above a missing offset nothing is known to have joined
                if isinstance(body, Data) and body.producer_id == span.producer_id:
                    joined.append(body.producer_epoch)
        return ClosingMarker(closing, max(joined, default=None))

    def decided_by(self, log: DataPartition, producer_id: int, first: int, below: int) -> Marker | None:
        """What decided the data that was open at an offset: the first marker of its producer below another one."""
        for offset, _, _, body in log.entries:
            if first <= offset < below and isinstance(body, Mark) and body.producer_id == producer_id:
                return Marker(offset, body.producer_epoch, body.commit, body.coordinator_epoch, TIMESTAMP_MS)
        return None

    def list_transactions(self, producer_ids: Iterable[int]) -> TransactionListing:
        self._time_passes()
        if self._is_out_of_time:
            return TransactionListing((), (_NO_BUDGET,), (_NO_BUDGET,))
        if self.world.is_log_hidden:
            return TransactionListing((), *[(Problem("the coordinators' log is not shown"),)] * 2)
        wanted, logs = set(producer_ids), self.world.logs
        return TransactionListing(
            tuple(
                ListedTransaction(known.transactional_id, known.value.producer_id, known.value.state, 1)
                for known in self.world.coordinators.transactions.values()
                if known.value is not None and known.value.producer_id in wanted and logs[known.log].has_leader
            ),
            () if all(log.has_leader for log in logs) else (Problem("a coordinator is away"),),
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        self._time_passes()
        return {name: self._description(name) for name in transactional_ids}

    def _description(self, name: str) -> TransactionDescription:
        if self._is_out_of_time:
            return NotDescribed(name, _NO_BUDGET)
        client = next((client for client in self.world.clients if client.transactional_id == name), None)
        if client is not None and not self.world.logs[client.log].has_leader:
            return NotDescribed(name, Problem("its coordinator is away"))
        known = self.world.coordinators.transactions.get(name)
        value = known.value if known is not None else None
        if known is None or value is None:
            return UnknownTransactionalId(name, 1)
        held = known.unmarked if value.state.is_prepare else known.held
        return DescribedTransaction(
            name, 1, value.state, value.producer_id, value.producer_epoch, value.transaction_timeout_ms,
            value.start_ms, frozenset(held),
        )  # fmt: skip

    def cleanup_policies(self, _: Iterable[str]) -> dict[str, str]:
        return {}

    def write_marker(self, marker: MarkerSpec) -> Problem | NotSent | None:
        self._time_passes()
        log = self.world.data.get(marker.partition)
        if self._is_out_of_time:
            return NotSent(_NO_BUDGET.text)
        if log is None or not log.has_leader:
            return NotSent("no leader")
        if marker.leader_epoch not in {None, log.epoch}:
            return NotSent(f"the leader changed (epoch {marker.leader_epoch}, now {log.epoch})")
        known = log.producers.get(marker.producer_id)
        start = known.open_start if known is not None else None
        harmed = [] if start is None else list(self.truth.harmed(self.world, log, marker.producer_id, start))
        owners = [] if start is None else list(self.world.owners.of(log, marker.producer_id, start))
        body = Mark(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit)
        if not log.mark(body, is_version_2=False):
            self.world.seen["abort: refused by the leader"] += 1
            is_older = known is not None and marker.producer_epoch < known.epoch
            return Problem("INVALID_PRODUCER_EPOCH" if is_older else "TRANSACTION_COORDINATOR_FENCED")
        self.world.note(f"ABORT by txnwatch: {marker}")
        self.harm.extend(harmed)
        self.truth.said(owners, f"HARM: {marker} was written")
        self.world.seen["abort: marker"] += 1
        self.world.commit(log)
        # The watch acts between two steps of the world: until the next one, its last reading shows what it has ended.
        self.world.tick += 1
        self.world.look()
        self.world.tick -= 1
        return None
