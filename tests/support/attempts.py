"""One bucket as Spark runs it: attempts that fail, workers that come and go, batches that are run again.

Law: what an attempt writes counts only if the attempt is committed; another attempt at the same batch finds the version
before. A worker keeps what it has decoded, whatever became of the attempt. Beside it runs the plain bucket, which reads
all of its state in each batch and writes all of it: both must emit the same, and hold the same. The plain bucket
removes idle producers when the log of the other has a new snapshot.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from support.facts import (
    NAME,
    START_MS,
    TOPIC_IDS,
    DictStore,
    a_marker,
    decode_bucket,
    encode_bucket,
    gone,
    log_notice,
    notice,
    seen,
    transaction,
)
from txnwatch.state.detection.bucket import process
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.detection.open_transactions import LastOpenLists
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.facts import Barrier, CensusListing, CensusTaken, Fact, LastStable, NoticeKind, OpenDescribed
from txnwatch.state.model.findings import CensusOffsets, Finding, ListedOffsets, OpenTransactions
from txnwatch.state.model.transaction import ProducerState
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy
from txnwatch.state.store.bucket_log import MAX_ENTRIES, SMALL_LOG, TOKEN_BYTES, KeptBucket, decode_producer, load

POLICY = DetectionPolicy(listed_after_ms=5_000)
NEVER_REMOVED_MS = 10**12
PARTITIONS = [TopicPartition("orders", number) for number in range(4)]
STANDS = TopicPartition("orders", len(PARTITIONS))  # its last stable offset seldom moves
PRODUCERS, WORKERS = 24, 3
USUAL_CHANGES = (0, 0, 1, 4, 12)
_STATES = (S.ONGOING, S.ONGOING, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


class AttemptFailedError(Exception):
    """The attempt ends here."""


@dataclass
class Version:
    """What one version of the state store holds of the bucket."""

    stored_head: bytes | None = None
    entries: dict[int, bytes] = field(default_factory=dict)


class Writing:
    """A LogStore of one attempt, on a copy of the committed version; may fail before its writes, or between them."""

    def __init__(self, version: Version, fails_at: str = "") -> None:
        self.version = Version(version.stored_head, dict(version.entries))
        self._fails_at = fails_at
        self.has_snapshot = False

    def head(self) -> bytes | None:
        return self.version.stored_head

    def put_head(self, head: bytes) -> None:
        self._fail("head")
        self.version.stored_head = head

    def entry(self, sequence: int) -> bytes | None:
        return self.version.entries.get(sequence)

    def put_entry(self, sequence: int, entry: bytes) -> None:
        self._fail("entry")
        self.version.entries[sequence] = entry

    def clear(self) -> None:
        self.has_snapshot = True
        self.version.entries.clear()

    def _fail(self, at: str) -> None:
        if self._fails_at == at:
            raise AttemptFailedError


class TimedStore(DictStore):
    """A ProducerStore that also has the time of the last write of each producer."""

    def __init__(self, rows: dict[int, bytes], written_ms: dict[int, int], now_ms: int) -> None:
        super().__init__()
        self.rows, self.written_ms, self._now_ms = dict(rows), dict(written_ms), now_ms

    def put(self, producer: ProducerState) -> None:
        super().put(producer)
        self.written_ms[producer.producer_id] = self._now_ms

    def without_idle(self, before_ms: int) -> int:
        """Removes the producers with nothing open that were not written after a time; how many those are."""
        written = self.written_ms.items()
        idle = [one for one, at_ms in written if at_ms <= before_ms and not decode_producer(self.rows[one]).is_awaited]
        for producer_id in idle:
            del self.rows[producer_id], self.written_ms[producer_id]
        return len(idle)


@dataclass
class Plain:
    """The same bucket without a log and without anything kept."""

    bucket: bytes = field(default_factory=lambda: encode_bucket(BucketState()))
    rows: dict[int, bytes] = field(default_factory=dict)

    written_ms: dict[int, int] = field(default_factory=dict)

    def run(self, facts: list[Fact], now_ms: int, idle_before_ms: int | None) -> tuple[Plain, list[Finding], int]:
        """The bucket after a batch, what it says, and how many idle producers it has removed."""
        store, bucket = TimedStore(self.rows, self.written_ms, now_ms), decode_bucket(self.bucket)
        emitted = process(bucket, store, facts, POLICY, reports_partitions=True)
        removed = store.without_idle(idle_before_ms) if idle_before_ms is not None else 0
        return Plain(encode_bucket(bucket), store.rows, store.written_ms), emitted, removed


class Query:
    """A query over one bucket; `seen` counts what has happened.

    `changes` are the numbers of producers that a batch may change, each as likely as the others.
    """

    def __init__(
        self, seed: int, retention_ms: int = NEVER_REMOVED_MS, changes: tuple[int, ...] = USUAL_CHANGES
    ) -> None:
        self._retention_ms, self._changes = retention_ms, changes
        self.rng = random.Random(seed)
        self._reports = random.Random(f"{seed} reports")
        self.seen: Counter[str] = Counter()
        self.number = 0
        self.committed: list[tuple[Version, Plain]] = [(Version(), Plain())]
        self.workers: list[KeptBucket | None] = [None] * WORKERS
        self.driver: LastOpenLists | None = LastOpenLists()
        self._of_plain = LastOpenLists()
        self._log_offset = 0

    def batch(self) -> None:
        """One batch: attempts until one is committed."""
        self.number += 1
        if self.rng.random() < 0.04:
            self._go_back()
        while not self._attempt():
            self.seen["failed"] += 1

    def next_facts(self) -> list[Fact]:
        """The facts of one more batch, for a bucket that has no attempts."""
        self.number += 1
        return self._facts()

    def _go_back(self) -> None:
        """The query dies and begins again, some batches back; sometimes in processes that have forgotten nothing."""
        batches = min(self.rng.randrange(4), len(self.committed) - 1)
        self.committed = self.committed[: len(self.committed) - batches]
        self.number -= batches
        self.seen["gone back"] += 1
        if self.rng.random() < 0.5:
            self.workers, self.driver, self._of_plain = [None] * WORKERS, LastOpenLists(), LastOpenLists()
        elif batches:
            self.driver = None  # its values are outdated, and no run of a query continues with outdated values

    def _attempt(self) -> bool:
        rng, (version, plain) = self.rng, self.committed[-1]
        now_ms = START_MS + self.number * 500
        worker = rng.randrange(WORKERS)
        if rng.random() < 0.1:
            self.workers[worker] = None
            self.seen["a worker died"] += 1
        facts = self._facts()
        store = Writing(version, rng.choice(("", "", "", "", "", "", "entry", "head")))
        kept, self.workers[worker] = self.workers[worker], None
        try:
            now = load(kept, store, number=0)
            self.seen["as it was kept" if now is kept else "read anew"] += 1
            emitted = process(now.bucket, now, facts, POLICY, reports_partitions=True)
            now.write(store, rng.randbytes(TOKEN_BYTES), now_ms, self._retention_ms)
        except AttemptFailedError:
            return False
        self.workers[worker] = now
        if rng.random() < 0.15:
            return False  # all was written, and then the task, or the batch of the driver, failed
        self._check_log(version, store)
        after, expected, removed = plain.run(facts, now_ms, now_ms - self._retention_ms if store.has_snapshot else None)
        self.seen["removed"] += removed
        self._compare(now, emitted, after, expected)
        self.committed = [*self.committed[-4:], (store.version, after)]
        return True

    def _compare(self, now: KeptBucket, emitted: list[Finding], after: Plain, expected: list[Finding]) -> None:
        assert _others(emitted) == _others(expected)
        whole = self._of_plain.whole(expected)
        self.seen["offsets by census"] += any(finding.offsets for finding in _ends(whole))
        self.seen["offsets by census, emitted"] += bool(_ends(emitted))
        if self.driver is not None:
            known = self.driver.whole(emitted)
            assert _open(known) == _open(expected), "what the driver holds as open is so"
            assert _offsets(known) == _offsets(whole), "and so are the offsets of what only a census watches"
        self.seen["blocked"] += any(finding.blocked for finding in _open(expected))
        self.seen["holders"] += bool(now.bucket.holding)
        self.seen["listed"] += len(_open(emitted))
        digests: dict[str, Any] = {"open_list_digest": None, "ends_digest": None}
        assert replace(now.bucket, **digests) == replace(decode_bucket(after.bucket), **digests)
        assert now.producer_ids == after.rows.keys()
        stored = DictStore()
        stored.rows = after.rows
        for producer_id in self.rng.sample(sorted(after.rows), min(3, len(after.rows))):
            assert now.get(producer_id) == stored.get(producer_id)

    def _check_log(self, before: Version, store: Writing) -> None:
        """The log begins again when it has MAX_ENTRIES entries, or as many bytes as are worth a snapshot."""
        sizes = [len(entry) for _, entry in sorted(before.entries.items())]
        is_long = len(sizes) >= MAX_ENTRIES
        is_large = sum(sizes[1:]) > max(SMALL_LOG, 2 * sizes[0] if sizes else 0)
        if store.version.stored_head == before.stored_head:
            assert store.version.entries == before.entries
        elif sizes:
            assert store.has_snapshot == (is_long or is_large)
            self.seen["a snapshot of a long log"] += is_long
            self.seen["a snapshot of a large log"] += is_large
            assert len(store.version.entries) == (1 if store.has_snapshot else len(sizes) + 1)

    def _facts(self) -> list[Fact]:
        """What this attempt has read: another one may read more, and its census sees another moment."""
        rng, start = self.rng, self.number * 10
        now_ms = START_MS + self.number * 500
        facts: list[Fact] = [self._barrier(now_ms)]
        for producer_id in rng.sample(range(PRODUCERS), rng.choice(self._changes)):
            partition = rng.choice(PARTITIONS)
            if rng.random() < 0.8:
                marker = a_marker(start + 4) if rng.random() < 0.6 else None
                data, after = rng.choice((None, start + 2)), rng.choice((None, start + 7)) if marker else None
                facts.append(
                    seen(
                        start,
                        start + 10,
                        data=data,
                        marker=marker,
                        data_after=after,
                        producer_id=producer_id,
                        partition=partition,
                        listed_ms=now_ms,
                    )
                )
            if rng.random() < 0.7:
                self._log_offset += 1
                facts.append(
                    transaction(
                        self._log_offset,
                        rng.choice(_STATES),
                        *rng.sample(PARTITIONS, rng.randrange(3)),
                        producer_id=producer_id,
                        transactional_id=f"{NAME}-{producer_id}",
                        log_partition=producer_id % 3,
                        start_ms=now_ms - 100,
                        record_timestamp_ms=now_ms - 100,
                    )
                )
        return facts + self._census(now_ms) + self._notices(start)

    def _barrier(self, now_ms: int) -> Barrier:
        rng = self.rng
        reread = {TopicPartition(TRANSACTION_STATE_TOPIC, rng.randrange(3)): 0} if rng.random() < 0.2 else {}
        return Barrier(
            self.number,
            now_ms - 1,
            now_ms,
            risen=frozenset(rng.sample(PARTITIONS, 1)) if rng.random() < 0.1 else frozenset(),
            reread=reread,
            leaders={log_numbered(0): Leader(1, rng.randrange(2))} if rng.random() < 0.05 else {},
            clocks={1: Clock(rng.randrange(-5_000, 5_000), None, now_ms)} if rng.random() < 0.1 else {},
        )

    def _census(self, now_ms: int) -> list[Fact]:
        rng = self.rng
        if rng.random() > 0.25:
            return []
        asked = rng.sample(PARTITIONS, rng.choice((1, 2, 4)))
        below = self.number * 10
        taken = {p: CensusListing(TOPIC_IDS["orders"], below, below, is_scanned=rng.random() < 0.7) for p in asked}
        shown = [
            OpenDescribed(rng.choice(asked), producer_id, 0, rng.randrange(below), now_ms, now_ms)
            for producer_id in rng.sample(range(PRODUCERS), rng.randrange(4))
        ]
        return [CensusTaken(taken, is_round=rng.random() < 0.2), *shown]

    def _notices(self, start: int) -> list[Fact]:
        rng, facts = self.rng, list[Fact]()
        partition = rng.choice(PARTITIONS)
        if rng.random() < 0.08:
            kind = rng.choice((NoticeKind.TRUNCATED, NoticeKind.LOST, NoticeKind.GAP, NoticeKind.LEFT))
            facts.append(notice(kind, rng.randrange(start), partition=partition))
        if rng.random() < 0.05:
            facts.append(log_notice(NoticeKind.TRUNCATED, 5, rng.randrange(3)))
        if rng.random() < 0.1:
            facts.append(gone(self._log_offset + 1, f"{NAME}-{rng.randrange(PRODUCERS)}"))
        if rng.random() < 0.3:
            facts.append(LastStable(partition, TOPIC_IDS["orders"], rng.randrange(start)))
        if self._reports.random() < 0.7:
            facts.append(LastStable(STANDS, TOPIC_IDS["orders"], self.number // 60))
        return facts


def _others(emitted: list[Finding]) -> list[Finding]:
    return [finding for finding in emitted if not isinstance(finding, OpenTransactions | ListedOffsets)]


def _open(emitted: list[Finding]) -> list[OpenTransactions]:
    return [finding for finding in emitted if isinstance(finding, OpenTransactions)]


def _ends(emitted: list[Finding]) -> list[ListedOffsets]:
    return [finding for finding in emitted if isinstance(finding, ListedOffsets)]


def _offsets(emitted: list[Finding]) -> set[CensusOffsets]:
    return {one for finding in _ends(emitted) for one in finding.offsets}
