"""A TransactionAdmin in memory, for tests that need no broker; it passes the same contract suite as the real one.

A test changes the world by what really happens (`begin`, `write`, `end`, `mark`, `move_leader`: see FakeCluster),
sets what cannot be read (`problems`, `listing_problems`), and lets things happen between two requests (`before`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from support.fake_cluster import FakeCluster
from support.problems import a_problem
from txnwatch.state.model.ports import (
    UNKNOWN_PARTITION,
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
    NotDescribed,
    TransactionDescription,
    UnknownTransactionalId,
)
from txnwatch.state.model.values import Problem, SpanStart, TopicPartition

NO_BUDGET = "the time budget was used up before this request"
_NO_BUDGET = Problem(NO_BUDGET)


class FakeAdmin(FakeCluster):
    """A TransactionAdmin, and the cluster it asks.

    Attributes:
        problems: why a partition, transactional id or topic cannot be read, by it; the partition of a marker too.
        unreadable: the answer for a partition whose log cannot be read, whatever its leader answers otherwise.
        log_epoch: the leader epoch of each partition of the coordinators' log, or why it is not known.
        listing_problems: what is in the way of a whole ListTransactions.
        silent: brokers that do not answer ListTransactions, and why.
        also_listed: rows of brokers that have lost the coordinators' log and do not know it.
        asked: the port's methods in the order they were called.
        budgets: every time budget that was set.
        markers: every marker that was asked for, refused ones too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.problems: dict[TopicPartition | str, str] = {}
        self.unreadable: dict[TopicPartition, SpanHistory] = {}
        self.log_epoch: int | Problem = 0
        self.listing_problems: list[str] = []
        self.silent: list[str] = []
        self.also_listed: list[ListedTransaction] = []
        self.asked: list[str] = []
        self.budgets: list[int] = []
        self.markers: list[MarkerSpec] = []
        self._before: dict[str, deque[Callable[[], object]]] = {}
        self._moving: dict[TopicPartition, int] = {}
        self._out_of_time = False

    def before(self, method: str, happens: Callable[[], object]) -> None:
        """Lets something happen once, right before a call of this method; waits behind what waits for it already."""
        self._before.setdefault(method, deque()).append(happens)

    def move_leader_while_read(self, partition: TopicPartition, leader: int) -> None:
        """In the middle of the next reading of the partition its leader changes."""
        self._moving[partition] = leader

    @contextmanager
    def within(self, budget_ms: int) -> Iterator[None]:
        """See TransactionAdmin; a budget of 0 is used up at once, any other lasts."""
        self.budgets.append(budget_ms)
        before, self._out_of_time = self._out_of_time, budget_ms <= 0
        try:
            yield
        finally:
            self._out_of_time = before

    def read_partitions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionReading]:
        """See TransactionAdmin."""
        self._called("read_partitions")
        return {partition: self._reading(partition) for partition in partitions}

    def _reading(self, partition: TopicPartition) -> PartitionReading:
        at = self.partitions.get(partition)
        problem = self._problem(partition) or (UNKNOWN_PARTITION if at is None else None)
        if at is not None and partition in self._moving:
            self.move_leader(partition, self._moving.pop(partition))
            problem = Problem(
                f"the leader changed during the read (epoch {at.leader_epoch - 1}, then {at.leader_epoch})"
            )
        if at is None or problem is not None:
            return PartitionReading(partition, problem, is_absent=at is None and self._problem(partition) is None)
        return PartitionReading(
            partition=partition,
            topic_id=at.topic_id,
            leader=at.leader,
            leader_epoch=at.leader_epoch,
            end_before=at.end,
            end_after=at.end,
            last_stable_offset=at.last_stable_offset,
            high_watermark=at.end,
            log_start_offset=at.log_start,
            producers=tuple(at.producers.values()),
        )

    def log_epochs(self, logs: Iterable[TopicPartition]) -> dict[TopicPartition, int | Problem]:
        """See TransactionAdmin."""
        self._called("log_epochs")
        return dict.fromkeys(logs, self.log_epoch)

    def read_span_histories(self, spans: Iterable[SpanStart]) -> dict[SpanStart, SpanHistory]:
        """See TransactionAdmin."""
        self._called("read_span_histories")
        return {span: self.history_of(span) for span in spans}

    def history_of(self, span: SpanStart) -> SpanHistory:
        at = self.partitions.get(span.partition)
        row = at.producers.get(span.producer_id) if at is not None else None
        problem = self._problem(span.partition)
        if at is None or problem is not None:
            return SpanHistory(problem=str(problem or UNKNOWN_PARTITION))
        if span.partition in self.unreadable:
            return self.unreadable[span.partition]
        is_there = row is not None and row.txn_start_offset == span.start_offset
        return at.starts.get(span.producer_id, SpanHistory()) if is_there else SpanHistory()

    def closing_marker(self, span: SpanStart, from_offset: int) -> ClosingMarker | None:
        """See TransactionAdmin."""
        self._called("closing_marker")
        at, first = self.partitions.get(span.partition), max(span.start_offset, from_offset)
        if at is None or at.log_start > first or self._problem(span.partition) is not None:
            return None
        closing = next((one for one in at.all_markers.get(span.producer_id, []) if one.offset >= first), None)
        if closing is None:
            return None
        joined = [epoch for offset, epoch in at.written.get(span.producer_id, []) if first <= offset < closing.offset]
        return ClosingMarker(closing, max(joined, default=None))

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """See TransactionAdmin."""
        self._called("describe_transactions")
        return {transactional_id: self._description(transactional_id) for transactional_id in transactional_ids}

    def _description(self, transactional_id: str) -> TransactionDescription:
        problem = self._problem(transactional_id)
        known = self.transactions.get(transactional_id)
        if problem is not None:
            return NotDescribed(transactional_id, problem)
        if known is None:
            return UnknownTransactionalId(transactional_id, 1)
        return DescribedTransaction(
            transactional_id=transactional_id,
            state=known.state,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
            timeout_ms=known.timeout_ms,
            start_ms=known.start_ms,
            partitions=frozenset(known.partitions),
            coordinator=known.coordinator,
        )

    def list_transactions(self, producer_ids: Iterable[int]) -> TransactionListing:
        """See TransactionAdmin."""
        self._called("list_transactions")
        if self._out_of_time:
            return TransactionListing((), (_NO_BUDGET,), (_NO_BUDGET,))
        wanted = set(producer_ids)
        found = (
            ListedTransaction(known.transactional_id, known.producer_id, known.state, known.coordinator)
            for known in self.transactions.values()
            if not wanted or known.producer_id in wanted
        )
        also = (row for row in self.also_listed if not wanted or row.producer_id in wanted)
        silent = tuple(map(a_problem, self.silent))
        return TransactionListing((*found, *also), (*map(a_problem, self.listing_problems), *silent), silent)

    def cleanup_policies(self, topics: Iterable[str]) -> dict[str, str]:
        """See TransactionAdmin."""
        self._called("cleanup_policies")
        return {
            topic: self.policies[topic] for topic in topics if topic in self.policies and self._problem(topic) is None
        }

    def write_marker(self, marker: MarkerSpec) -> Problem | NotSent | None:
        """See TransactionAdmin."""
        self._called("write_marker")
        if self._out_of_time:
            return NotSent(_NO_BUDGET.text)
        if marker.partition not in self.partitions:
            return NotSent("no leader")
        now = self.partitions[marker.partition].leader_epoch
        if marker.leader_epoch not in {None, now}:
            return NotSent(f"the leader changed (epoch {marker.leader_epoch}, now {now})")
        self.markers.append(marker)
        refused = self.problems.get(marker.partition) or self.mark(marker)
        return a_problem(refused) if refused is not None else None

    def _called(self, method: str) -> None:
        self.asked.append(method)
        waiting = self._before.get(method)
        if waiting:
            waiting.popleft()()

    def _problem(self, of: TopicPartition | str) -> Problem | None:
        if self._out_of_time:
            return _NO_BUDGET
        return a_problem(self.problems[of]) if of in self.problems else None
