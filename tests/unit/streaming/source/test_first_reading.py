"""The first reading of the coordinators' log: cut by what is there, and what was there before is not new."""

from __future__ import annotations

from dataclasses import dataclass, field

from support.batches import a_batch, a_record
from support.facts import BucketRun, seen
from support.transaction_log import a_key, a_value
from txnwatch.state.model.facts import Barrier, Fact, TransactionSeen
from txnwatch.state.model.findings import OutstandingGap, SpanCandidate
from txnwatch.state.model.ports import ListedOffset
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.log.fetch import Budget
from txnwatch.streaming.log.range_reading import Range, RangeReading
from txnwatch.streaming.log.transaction_fold import HeldBytes
from txnwatch.streaming.source.offsets import SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.planner import Limits, ListedPartition, Listing, plan
from txnwatch.streaming.source.tasks import plan_facts, plan_reads, reading_of_range
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

LOG = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
OPTIONS = parse_options(
    {"kafka.bootstrap.servers": "kafka:9092", "subscribe": "orders", "driverFile": "rereads", "buckets": "1"}
)
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


def a_log_record(offset: int, producer_id: int, state: S, at_ms: int) -> bytes:
    partitions = ((("orders", (0,)),)) if state.is_live else ()
    value = TransactionLogValue(1, producer_id, 0, 60_000, state, partitions, at_ms, at_ms, None)
    record = a_record(key=a_key(f"app-{producer_id}"), value=a_value(value))
    return a_batch(offset, records=[record], producer_id=-1, transactional=False, leader_epoch=0, base_timestamp=at_ms)


@dataclass
class Watched:
    """The real planner, plans, folds and bucket over one partition of the log; a batch reads some records of it."""

    records: dict[int, bytes]
    end: int
    run: BucketRun = field(default_factory=BucketRun)
    done: SourceOffset = field(default_factory=SourceOffset.beginning)
    rereads: dict[TopicPartition, int] = field(default_factory=dict)
    fetches: int = 0

    def batch(self, *data: Fact, records: int = 10**9, back: int | None = None) -> list[object]:
        """One batch, which may read so many records; returns the findings of the state."""
        start = 0 if self.done.barrier == 0 else None
        listing = Listing(
            "cluster", {LOG: ListedPartition("log-id", ListedOffset(self.end, 0, 1), start)}, NOW_MS, NOW_MS + 1
        )
        rereads = self.rereads if back is None else {LOG: back}
        following = plan(self.done, listing, Limits(), rereads)
        (task,) = plan_reads(self.done, following, OPTIONS)
        reads = [reading_of_range(found, OPTIONS, HeldBytes()) for found in task.ranges]
        for read in reads:
            self._read(read, records)
        self.ranges: list[Range] = list(task.ranges)
        facts = list(plan_facts(task, reads))
        self.seen = [fact for fact in facts if isinstance(fact, TransactionSeen)]
        (self.barrier,) = [fact for fact in facts if isinstance(fact, Barrier)]
        others = [fact for fact in facts if not isinstance(fact, Barrier)]
        exceptions = {"stale_coordinator": self.barrier.stale_coordinator, "reread": self.barrier.reread}
        findings = self.run.batch(*data, *others, **exceptions, holes=self.barrier.holes)
        self.rereads = {gap.partition: gap.gap for gap in findings if isinstance(gap, OutstandingGap)}
        self.done = following
        return list(findings)

    def _read(self, read: object, records: int) -> None:
        assert isinstance(read, RangeReading)
        for offset in sorted(self.records):
            if read.fold.position <= offset and read.needs_fetch:
                self.fetches += 1
                read.fold.feed(self.records[offset])
                read.is_answered, read.size = True, read.size + 1
                budget = Budget([read], max_bytes=records)
                budget.stop_spent(0.0)


def hanging(findings: list[object]) -> list[int]:
    return [one.producer_id for one in findings if isinstance(one, SpanCandidate)]


def a_log(*states: tuple[int, S], first: int = 0) -> dict[int, bytes]:
    return {
        first + offset: a_log_record(first + offset, producer_id, state, NOW_MS - 7 * DAY_MS + offset)
        for offset, (producer_id, state) in enumerate(states)
    }


def test_thousands_of_millions_of_empty_offsets_cost_one_batch() -> None:
    far = 2_500_000_000
    watched = Watched({**a_log((1, S.COMPLETE_COMMIT)), **a_log((2, S.ONGOING), first=far - 1)}, far)
    watched.batch()
    assert (watched.fetches, watched.rereads) == (2, {})
    assert watched.run.producer(2).view is not None


def test_records_below_the_first_listed_end_are_not_new() -> None:
    states = [(number, S.COMPLETE_COMMIT if number % 2 else S.PREPARE_COMMIT) for number in range(10)]
    watched = Watched(a_log(*states, *((number, S.COMPLETE_COMMIT) for number in range(10))), 20)
    batches = 0
    while not batches or watched.rereads:
        assert not [finding for finding in watched.batch(records=4) if isinstance(finding, SpanCandidate)]
        batches += 1
        assert watched.run.ended == [], "what had ended before us took as long as it took"
        bounds = {clock.highest_ms for clock in watched.barrier.clocks.values()}
        assert bounds <= {None}, "a record of last week does not show how late it is"
        assert all(found.start < found.backlog_end for found in watched.ranges)
        assert LOG in watched.barrier.stale_coordinator, "not read to its end, or just now, while the cleaner went on"
    assert batches == 5
    watched.batch()
    assert watched.barrier.stale_coordinator == frozenset()
    idle = [number for number in range(10) if number % 2]
    assert [watched.run.producer(number).view for number in idle] == [None] * 5, "idle ids are not loaded"
    assert not watched.run.bucket.agenda, "what an early chunk showed as live, and a later one as complete, is over"


def test_records_after_the_first_listed_end_are_new() -> None:
    watched = Watched(a_log((1, S.PREPARE_COMMIT)), 1)
    watched.batch()
    watched.batch()
    watched.records[1] = a_log_record(1, 1, S.COMPLETE_COMMIT, NOW_MS)
    watched.records[2] = a_log_record(2, 5, S.COMPLETE_COMMIT, NOW_MS)
    watched.end = 3
    watched.batch()
    assert [found.start < found.backlog_end for found in watched.ranges] == [False]
    assert watched.run.ended
    assert watched.run.producer(5).view is not None


def test_a_range_with_records_of_the_first_reading_and_new_ones_separates_them() -> None:
    watched = Watched(a_log((1, S.COMPLETE_COMMIT), (2, S.COMPLETE_COMMIT)), 2)
    watched.batch(records=1)
    watched.records[2] = a_log_record(2, 3, S.COMPLETE_COMMIT, NOW_MS)
    watched.end = 3
    watched.batch()
    assert [(fact.producer_id, fact.is_past) for fact in watched.seen] == [(2, True), (3, False)]
    assert [watched.run.producer(number).view is None for number in (1, 2, 3)] == [True, True, False]


def test_an_idle_id_is_emitted_for_producers_with_something_open() -> None:
    watched = Watched(a_log((9, S.ONGOING), (7, S.COMPLETE_ABORT)), 2)
    watched.batch(seen(0, 10, data=5), records=1)
    for _ in range(2):
        watched.batch()
    assert hanging(watched.batch()) == [7]
    view = watched.run.producer(7).view
    assert view is not None
    assert view.state is S.COMPLETE_ABORT


def test_a_log_that_is_read_again_as_a_whole_is_read_in_parts_and_loads_no_idle_ids() -> None:
    watched = Watched(a_log((1, S.ONGOING), (2, S.COMPLETE_COMMIT), (3, S.COMPLETE_COMMIT)), 3)
    watched.batch()
    watched.batch()
    watched.records[1] = a_log_record(1, 1, S.COMPLETE_COMMIT, NOW_MS)
    watched.batch(records=1, back=0)
    assert watched.rereads == {LOG: 1}
    while watched.rereads:
        watched.batch(records=1)
        assert watched.run.ended == []
    watched.batch()
    assert [watched.run.producer(number).view for number in (2, 3)] == [None, None]
    assert not watched.run.bucket.agenda


def test_a_record_does_not_inherit_across_a_skipped_record() -> None:
    watched = Watched(a_log((1, S.ONGOING)), 1)
    watched.batch()
    watched.records[1] = a_log_record(1, 1, S.COMPLETE_COMMIT, NOW_MS)
    watched.end = 2
    watched.batch()
    watched.records[2] = a_log_record(2, 1, S.COMPLETE_ABORT, NOW_MS)
    watched.end = 3
    watched.batch(back=0)
    watched.batch()
    assert {at.partition: known.hole_end for at, known in watched.run.bucket.readings.items()} == {0: 3}
