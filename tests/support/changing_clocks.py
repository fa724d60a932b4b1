"""Random batches of one bucket on a cluster whose coordinators are elected and whose clocks differ, drift and are set.

`Differential` runs each batch through two buckets: one evaluates what its agenda and the changes of clocks and leaders
ask for, the other evaluates all open producers at every barrier. Law: both emit the same findings about producers at
the same barrier, and hold the same producers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from unittest import mock

from msgspec.structs import replace

from support.facts import NAME, START_MS, TOPIC_IDS, DictStore, a_marker, notice, seen, transaction
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.bucket import Concerned
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.loaded_producers import LoadedProducers
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.facts import Barrier, CensusListing, CensusTaken, Fact, NoticeKind, OpenDescribed
from txnwatch.state.model.findings import (
    BucketCount,
    CensusRequest,
    Finding,
    ListedOffsets,
    OpenTransactions,
    TransactionCandidate,
)
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import decode_producer

PARTITIONS = [TopicPartition("orders", number) for number in range(4)]
LOGS, BROKERS, PRODUCERS = 6, 3, 14
_STATES = (S.ONGOING, S.ONGOING, S.ONGOING, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
_TIMEOUTS_MS = (10_000, 60_000, 200_000, 900_000, 2147483647)
_PAUSES_MS = (*(500,) * 30, 2_000, 7_000, 60_000, 3_000_000)
_LATEST_MS = 9_000  # how long before a listing the newest record is stamped; the bounds improve from there
# A census is requested, and a look counted, when a producer is evaluated; the open list has a test of its own.
DEPENDS_ON_EVALUATIONS = BucketCount | CensusRequest | OpenTransactions | ListedOffsets


@dataclass
class ChangingCoordinators:
    """The leaders of the log partitions, and the brokers' clocks (ahead of ours by so many ms)."""

    rng: random.Random
    leaders: dict[TopicPartition, Leader] = field(default_factory=dict)
    ahead_ms: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        apart = (0, 0, 0, 300, -5_000, 70_000, 3_600_000)
        self.leaders = {log_numbered(number): Leader(self.rng.randrange(BROKERS), 1) for number in range(LOGS)}
        self.ahead_ms = {broker: self.rng.choice(apart) for broker in range(BROKERS)}
        self._drift = {broker: self.rng.choice((0, 0, 0.0001, -0.0001, 0.0009)) for broker in range(BROKERS)}
        self._elected = self.rng.choice((0.0, 0.02, 0.2))  # the chance of an election, for each batch
        self._set = self.rng.choice((0.0, 0.0, 0.03))  # the same for a clock that is set
        self._late_ms = dict.fromkeys(range(BROKERS), _LATEST_MS)
        self._busy = {broker: self.rng.choice((0.02, 0.2, 0.9)) for broker in range(BROKERS)}

    def pass_time(self, milliseconds: int) -> None:
        for broker, drift in self._drift.items():
            self.ahead_ms[broker] += drift * milliseconds

    def change(self, seen: Counter[str]) -> None:
        """Perhaps an election, and perhaps a clock that is set."""
        rng = self.rng
        if rng.random() < self._elected:
            log = log_numbered(rng.randrange(LOGS))
            leader = self.leaders[log] = Leader(rng.randrange(BROKERS), self.leaders[log].epoch + 1)
            self._late_ms[leader.broker] = rng.choice((self._late_ms[leader.broker], _LATEST_MS))
            seen["election"] += 1
        if rng.random() < self._set:
            self.ahead_ms[rng.randrange(BROKERS)] += rng.choice((-90_000, -4_000, 1_500, 4_000, 90_000, 600_000))
            seen["clock set"] += 1

    def clocks(self, now_ms: int, pause_ms: int) -> dict[int, Clock]:
        """What the records of a batch show."""
        rng, found = self.rng, dict[int, Clock]()
        for broker, ahead_ms in self.ahead_ms.items():
            if rng.random() < self._busy[broker]:
                late_ms = self._late_ms[broker] = max(5, self._late_ms[broker] - rng.randrange(900))
                highest_ms = int(ahead_ms) + pause_ms if rng.random() < 0.5 else None
                found[broker] = Clock(int(ahead_ms) - late_ms, highest_ms, now_ms)
        return found


class Batches:
    """The facts of batch after batch; `seen` counts what has happened."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: Counter[str] = Counter()
        self.is_calm = self.rng.random() < 0.7
        self._scan_interval_ms: int | None = None
        self.number, self.now_ms = 0, START_MS + 10_000_000
        self._coordinators = ChangingCoordinators(self.rng)
        self._log_offset = 0
        self._unread: set[TopicPartition] = set()

    def facts(self) -> list[Fact]:
        """The next batch."""
        rng, pause_ms = self.rng, self.rng.choice(_PAUSES_MS)
        self.number += 1
        self.now_ms += pause_ms
        self._coordinators.pass_time(pause_ms)
        self._coordinators.change(self.seen)
        if self.is_calm:
            changed = rng.sample(range(PRODUCERS), rng.random() < 0.4)
            return [self._barrier(pause_ms), *(self._record(producer_id) for producer_id in changed)]
        changed = rng.sample(range(PRODUCERS), rng.choice((0, 0, 0, 1, 3)))
        facts = [fact for producer_id in changed for fact in self._of_producer(producer_id)]
        return [self._barrier(pause_ms), *facts, *self._census(), *self._notices()]

    def _barrier(self, pause_ms: int) -> Barrier:
        rng, leaders = self.rng, self._coordinators.leaders
        stale = frozenset(log_numbered(number) for number in range(LOGS) if rng.random() < 0.03)
        if rng.random() < 0.3:
            self._unread.clear()
        if rng.random() < 0.01:
            self._scan_interval_ms = rng.choice((None, 10_000, 4_000, 15_000))
        return Barrier(
            self.number,
            self.now_ms - 1,
            self.now_ms,
            stale_coordinator=stale,
            risen=frozenset(rng.sample(PARTITIONS, 1)) if rng.random() < 0.05 else frozenset(),
            reread=dict.fromkeys(PARTITIONS, 0) if not self._unread else {},
            leaders={log: leader for log, leader in leaders.items() if log not in stale},
            clocks=self._coordinators.clocks(self.now_ms, pause_ms),
            scan_interval_ms=self._scan_interval_ms,
        )

    def _of_producer(self, producer_id: int) -> Iterator[Fact]:
        rng, start = self.rng, self.number * 10
        if rng.random() < 0.6:
            marker = a_marker(start + 4) if rng.random() < 0.4 else None
            data, after = rng.choice((None, start + 2)), rng.choice((None, start + 7)) if marker else None
            partition = rng.choice(PARTITIONS)
            yield seen(
                start,
                start + 10,
                data=data,
                marker=marker,
                data_after=after,
                producer_id=producer_id,
                partition=partition,
                listed_ms=self.now_ms,
            )
        if rng.random() < 0.7:
            yield self._record(producer_id)

    def _record(self, producer_id: int) -> Fact:
        """A record of the coordinators' log; often a transaction that is about to reach a threshold."""
        rng, log = self.rng, log_numbered(producer_id % LOGS)
        leader, state, timeout_ms = self._coordinators.leaders[log], rng.choice(_STATES), rng.choice(_TIMEOUTS_MS)
        limits = (30_000,) if state.is_prepare else (timeout_ms + 15_000, max(120_000, timeout_ms * 4 // 5))
        old_ms = rng.choice((0, rng.choice(limits) - rng.randrange(-1_000, 12_000)))
        begun_ms = self.now_ms + int(self._coordinators.ahead_ms[leader.broker]) - old_ms
        self._log_offset += 1
        return transaction(
            self._log_offset,
            state,
            *rng.sample(PARTITIONS, rng.randrange(4)),
            producer_id=producer_id,
            transactional_id=f"{NAME}-{producer_id}",
            log_partition=log.partition,
            timeout_ms=timeout_ms,
            start_ms=begun_ms,
            record_timestamp_ms=begun_ms + (0 if state.is_prepare else rng.choice((0, max(0, old_ms - 14_000)))),
            coordinator_epoch=leader.epoch + rng.choice((0, 0, 0, -1, 1)),
        )

    def _census(self) -> list[Fact]:
        rng = self.rng
        if rng.random() > 0.15:
            return []
        asked, below = rng.sample(PARTITIONS, rng.choice((1, 2))), self.number * 10
        taken = {p: CensusListing(TOPIC_IDS["orders"], below, below, is_scanned=rng.random() < 0.7) for p in asked}
        shown = [
            OpenDescribed(rng.choice(asked), producer_id, 0, rng.randrange(below), self.now_ms, self.now_ms)
            for producer_id in rng.sample(range(PRODUCERS), rng.randrange(3))
        ]
        return [CensusTaken(taken), *shown]

    def _notices(self) -> list[Fact]:
        rng, partition = self.rng, self.rng.choice(PARTITIONS)
        if rng.random() > 0.05:
            return []
        self._unread.add(partition)
        kind = rng.choice((NoticeKind.TRUNCATED, NoticeKind.LOST, NoticeKind.GAP, NoticeKind.LEFT))
        return [notice(kind, rng.randrange(self.number * 10), partition=partition)]


@dataclass
class Run:
    """One bucket that stays in memory; `evaluated` counts evaluations."""

    of_all: bool
    bucket: BucketState = field(default_factory=BucketState)
    store: DictStore = field(default_factory=DictStore)
    evaluated: int = 0

    def batch(self, facts: list[Fact]) -> list[Finding]:
        selection = mock.patch.object(buckets, "due_producers", _all_due) if self.of_all else nullcontext()
        with selection, mock.patch.object(buckets, "at_rest_until", self._counted):
            return buckets.process(self.bucket, self.store, facts, DetectionPolicy(), reports_partitions=True)

    def _counted(self, *arguments: object) -> object:
        self.evaluated += 1
        return _AT_REST_UNTIL(*arguments)  # type: ignore[arg-type]


_DUE: Callable[..., set[int]] = buckets.due_producers
_AT_REST_UNTIL = buckets.at_rest_until


def _all_due(barrier: Barrier, loaded: LoadedProducers, concerned: Concerned) -> set[int]:
    """All; but if a log partition is not read, the owner of reported data is asked for when its candidate is due."""
    due, bucket = _DUE(barrier, loaded, concerned), loaded.bucket
    if not barrier.stale_coordinator:
        return set(bucket.agenda)
    return due | {one for one in bucket.agenda if loaded.known(one).view is not None}


class Differential:
    """The two buckets."""

    def __init__(self, seed: int) -> None:
        self.batches = Batches(seed)
        self.selective, self.of_all = Run(of_all=False), Run(of_all=True)

    def batch(self) -> None:
        facts = self.batches.facts()
        found, expected = self.selective.batch(facts), self.of_all.batch(facts)
        of_producers = [finding for finding in expected if not isinstance(finding, DEPENDS_ON_EVALUATIONS)]
        assert [finding for finding in found if not isinstance(finding, DEPENDS_ON_EVALUATIONS)] == of_producers
        for finding in of_producers:
            name = finding.verdict if isinstance(finding, TransactionCandidate) else type(finding).__name__
            self.batches.seen[str(name)] += 1
        assert self.selective.bucket.agenda.keys() == self.of_all.bucket.agenda.keys()
        assert _decoded(self.selective.store) == _decoded(self.of_all.store)


def _decoded(store: DictStore) -> dict[int, object]:
    """The producers, without what only the open list uses, because that is as of their last evaluation."""
    return {one: replace(decode_producer(row), is_listable=False) for one, row in store.rows.items()}
