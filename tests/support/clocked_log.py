"""Coordinators whose clocks differ, and their log as the detector reads it: planner, plans, folds and one bucket.

Law: `now_ms` is the true time, and our clock shows it. A record is stamped by the clock of the broker that leads its
partition of `__transaction_state`. Nothing here judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from support.batches import a_batch, a_record
from support.facts import START_MS, DictStore
from support.transaction_log import a_key, a_value
from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import Barrier
from txnwatch.state.model.findings import BucketCount, Finding, TransactionCandidate
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.transaction import TransactionState
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.streaming.log.transaction_fold import HeldBytes
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan
from txnwatch.streaming.source.tasks import plan_facts, plan_reads, reading_of_range
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

_OPTIONS = parse_options({"kafka.bootstrap.servers": "unused:1", "subscribe": "orders"})
_LISTING_MS = 20  # from the last answer for D to the last one for T


@dataclass(slots=True)
class LogPartition:
    """One partition of the coordinators' log: who leads it, and its batches by base offset."""

    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)


@dataclass
class ClockedLog:
    """The cluster and its watcher; `clocks_ms` is how far each broker's clock is ahead of the true time."""

    logs: dict[int, LogPartition]
    clocks_ms: dict[int, int]
    now_ms: int = START_MS
    policy: DetectionPolicy = field(default_factory=DetectionPolicy)
    offset: SourceOffset = field(default_factory=SourceOffset.beginning)
    bucket: BucketState = field(default_factory=BucketState)
    store: DictStore = field(default_factory=DictStore)

    def stamp_ms(self, log: int) -> int:
        """What the clock of a partition's leader shows now."""
        return self.now_ms + self.clocks_ms[self.logs[log].leader]

    def log_value(
        self, log: int, producer_id: int, state: TransactionState, *, start_ms: int | None = None, **changes: Any
    ) -> int:
        """The leader of a partition appends a record now; returns its timestamp."""
        at, stamp_ms = self.logs[log], self.stamp_ms(log)
        value = TransactionLogValue(1, producer_id, 0, 60_000, state, None, stamp_ms, start_ms)
        record = a_record(key=a_key(f"app-{producer_id}"), value=a_value(replace(value, **changes)))
        at.batches.append(
            a_batch(
                len(at.batches),
                records=[record],
                producer_id=-1,
                transactional=False,
                leader_epoch=at.epoch,
                base_sequence=-1,
                base_timestamp=stamp_ms,
            )
        )
        return stamp_ms

    def lead(self, log: int, broker: int) -> None:
        """Another broker takes a partition over."""
        self.logs[log].leader, self.logs[log].epoch = broker, self.logs[log].epoch + 1

    def batch(self, after_ms: int = 500, *, stale: tuple[int, ...] = (), reread: tuple[int, ...] = ()) -> list[Finding]:
        """One micro-batch that is listed `after_ms` later; returns the findings without the figures."""
        self.now_ms += after_ms
        answers = {self._partition(number): self._answer(number, stale) for number in self.logs}
        listing = Listing("cluster", answers, self.now_ms - _LISTING_MS, self.now_ms)
        back = {self._partition(number): 0 for number in reread}
        end = plan(self.offset, listing, Limits(), back)
        first, *_ = plan_reads(self.offset, end, _OPTIONS)
        reads = [reading_of_range(found, _OPTIONS, HeldBytes()) for found in first.ranges]
        for read in reads:
            for batch in self.logs[read.partition.partition].batches[read.start : read.end]:
                read.fold.feed(batch)
        facts = list(plan_facts(first, reads))
        self.barrier = next(fact for fact in facts if isinstance(fact, Barrier))
        findings = process(self.bucket, self.store, facts, self.policy, reports_partitions=True)
        self.offset = end
        self.counts = [finding for finding in findings if isinstance(finding, BucketCount)]
        return findings

    def candidates(self, after_ms: int = 500, **how: Any) -> list[TransactionCandidate]:
        """One micro-batch, and the verdicts of time it finds."""
        return [finding for finding in self.batch(after_ms, **how) if isinstance(finding, TransactionCandidate)]

    def _partition(self, number: int) -> TopicPartition:
        return TopicPartition(TRANSACTION_STATE_TOPIC, number)

    def _answer(self, number: int, stale: tuple[int, ...]) -> ListedPartition:
        at, begun = self.logs[number], self._partition(number) in self.offset.positions
        if number in stale:
            return ListedPartition("log-id", None)
        return ListedPartition("log-id", ListedOffset(len(at.batches), at.epoch, at.leader), None if begun else 0)
