"""A first reading of many ids: spread over tasks, bounded in memory, with the facts of a single task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_changes

from support.batches import a_batch, a_record
from support.large_log import a_large_log, end_of_large_log
from support.row_facts import fact_of
from support.transaction_log import a_key, a_value
from txnwatch.state.detection.batch import Batch
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.facts import Barrier, Fact, LogRead, NoticeKind, PartitionNotice, TransactionSeen
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.streaming.log.transaction_fold import FirstReadFold, HeldBytes, TransactionFold
from txnwatch.streaming.source.offsets import Position, SourceOffset
from txnwatch.streaming.source.options import parse_options
from txnwatch.streaming.source.rows import FACTS, fact_rows
from txnwatch.streaming.source.tasks import OFFSETS_WORTH_A_TASK, TaskPlan, plan_facts, plan_reads, reading_of_range
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

OPTIONS = parse_options({"kafka.bootstrap.servers": "kafka:9092", "subscribe": "orders", "inputPartitions": "3"})
ONE_TASK = replace(OPTIONS, input_partitions=1)
NOW_MS = 1_700_000_000_000


def log(number: int) -> TopicPartition:
    return TopicPartition(TRANSACTION_STATE_TOPIC, number)


def listed(ends: dict[int, int], *, known: bool = False) -> tuple[SourceOffset, SourceOffset]:
    """A batch that begins to read partitions of the log, or goes on with them."""
    positions = {log(number): Position("id", end, 0, end, leader=number % 2) for number, end in ends.items()}
    end = SourceOffset(
        "cluster", 1, NOW_MS, NOW_MS + 1, positions, backlog_end={log(n): end for n, end in ends.items()}
    )
    if not known:
        return SourceOffset.beginning(), replace(end, begun=dict.fromkeys(positions, 0))
    before = {partition: with_changes(at, offset=1, listed=1) for partition, at in positions.items()}
    return replace(end, barrier=0, positions=before), end


def shares(plans: list[TaskPlan]) -> list[list[int]]:
    return [[found.partition.partition for found in plan.ranges] for plan in plans]


def test_a_first_reading_is_spread_over_the_tasks_it_is_worth() -> None:
    plans = plan_reads(*listed(dict.fromkeys(range(50), OFFSETS_WORTH_A_TASK)), OPTIONS)
    assert [len(share) for share in shares(plans)] == [17, 17, 16]
    assert sorted(number for share in shares(plans) for number in share) == list(range(50))
    assert [plan.brings_barrier for plan in plans] == [True, False, False]
    assert all(plan.end is not None for plan in plans), "whoever reads the log knows who led it"


@pytest.mark.parametrize(
    ("ends", "known", "expected"),
    [
        ({0: 10**9}, False, [[0]]),
        ({0: 10, 1: 10, 2: 10}, False, [[0, 1, 2]]),
        ({0: 10**9, 1: 10, 2: 10, 3: 9}, False, [[0, 3], [1], [2]]),
        ({0: 10**9, 1: 10**9}, True, [[0], [1]]),
        ({0: 10_000, 1: 10_000}, True, [[0, 1]]),
    ],
    ids=["one hot partition", "a small log", "those with the most offsets first", "what goes on", "a little goes on"],
)
def test_small_and_known_readings_are_not_spread(ends: dict[int, int], known: bool, expected: list[list[int]]) -> None:  # noqa: FBT001 - a case
    assert shares(plan_reads(*listed(ends, known=known), OPTIONS)) == expected


def a_log(number: int) -> bytes:
    """An id that is idle, one that is live, and holes before both."""
    values = ((3, S.COMPLETE_COMMIT, ()), (7, S.ONGOING, (("orders", (0,)),)))
    return b"".join(
        a_batch(
            offset,
            records=[
                a_record(
                    key=a_key(f"app-{number}-{offset}"),
                    value=a_value(TransactionLogValue(1, number * 10 + offset, 0, 60_000, state, held, NOW_MS, 1)),
                )
            ],
            producer_id=-1,
            transactional=False,
            base_timestamp=NOW_MS - number,
        )
        for offset, state, held in values
    )


def facts_of(plans: list[TaskPlan]) -> list[Fact]:
    """The facts of all tasks, by way of rows."""
    facts: list[Fact] = []
    for plan in plans:
        room = HeldBytes()
        reads = [reading_of_range(found, OPTIONS, room) for found in plan.ranges]
        for read in reads:
            read.fold.feed(a_log(read.partition.partition))
        rows = FACTS.record_batch(fact_rows(plan_facts(plan, reads), buckets=1)).to_pylist()
        facts.extend(fact_of(row) for row in rows)
    return facts


@pytest.mark.parametrize("known", [False, True], ids=["a first reading", "what goes on"])
def test_tasks_that_share_the_log_emit_what_one_task_emits(known: bool) -> None:  # noqa: FBT001 - a case
    listing = listed(dict.fromkeys(range(7), OFFSETS_WORTH_A_TASK), known=known)
    plans = plan_reads(*listing, OPTIONS)
    assert len(plans) == 3
    spread, alone = Batch(facts_of(plans)), Batch(facts_of(plan_reads(*listing, ONE_TASK)))
    assert spread.barrier == alone.barrier
    assert spread.barrier.holes == dict.fromkeys(map(log_numbered, range(7)), 7)
    assert spread.barrier.clocks.keys() == {0, 1}
    assert (spread.ranges, spread.records) == (alone.ranges, alone.records)
    assert len(alone.ranges) + len(alone.records) == (14 if known else 7), (
        "a first reading leaves out the ids that are idle"
    )


def test_of_two_that_have_read_stamps_of_one_clock_the_later_counts() -> None:
    barrier = Barrier(
        1,
        NOW_MS,
        NOW_MS,
        clocks={5: Clock(-9, None, NOW_MS)},
        holes={log_numbered(0): 4},
        elected=frozenset({log_numbered(0)}),
    )
    clocks = {5: Clock(-3, None, NOW_MS), 6: Clock(0, None, NOW_MS)}
    batch = Batch([LogRead({log_numbered(1): 6}, clocks, frozenset({log_numbered(1)})), barrier])
    assert batch.barrier.clocks == {5: Clock(-3, None, NOW_MS), 6: Clock(0, None, NOW_MS)}
    assert batch.barrier.holes == {log_numbered(0): 4, log_numbered(1): 6}
    assert batch.barrier.elected == {log_numbered(0), log_numbered(1)}


def test_two_notices_about_a_hidden_partition_count_once() -> None:
    hidden = PartitionNotice(NoticeKind.HIDDEN, TopicPartition("secret", 0), "", 0, 0, "why")
    assert Batch([hidden, hidden, Barrier(1, NOW_MS, NOW_MS)]).notices == [hidden]


def test_memory_is_limited_and_all_live_ids_are_emitted() -> None:
    ids, room = 3_000, HeldBytes(100_000)
    end = end_of_large_log(ids)
    folds = [FirstReadFold(log_numbered(number), 0, end, backlog_end=end, room=room) for number in range(2)]
    most = 0
    for chunk in a_large_log(ids, live_every=30, chunk_bytes=30_000):
        for fold in folds:
            fold.feed(chunk)
            most = max(most, sum(one.size for one in folds))
    assert 50_000 < most <= 100_000
    exact = TransactionFold(log_numbered(0), 0, end, backlog_end=end)
    exact.feed(b"".join(a_large_log(ids, live_every=30)))
    reported = [fact for fact in folds[0].facts() if isinstance(fact, TransactionSeen)]
    assert reported == list(exact.facts(is_first=True))
    assert len(reported) == ids // 30
    assert not folds[0]._chunks
    assert len(folds[0]._uses) == len(folds[0]._live) == ids // 30, "nothing is known of an idle id any more"


def a_record_of(offset: int, name: str, producer_id: int, state: S, previous_id: int = -1) -> bytes:
    held = (("orders", (offset,)),) if state.is_live else ()
    value = TransactionLogValue(1, producer_id, 0, 60_000, state, held, NOW_MS, offset, previous_id)
    record = a_record(key=a_key(name), value=a_value(value))
    return a_batch(offset, records=[record], producer_id=-1, transactional=False)


def test_idle_ids_are_forgotten_when_a_fold_releases_its_bytes() -> None:
    room = HeldBytes(0)  # each answer makes the second pass at once
    fold, exact = (
        FirstReadFold(log_numbered(0), 0, 9, backlog_end=9, room=room),
        TransactionFold(log_numbered(0), 0, 9, backlog_end=9),
    )
    for offset, state in enumerate([S.ONGOING, S.COMPLETE_COMMIT, S.ONGOING]):
        fold.feed(a_record_of(offset, "app", 5, state))
        assert len(fold._uses) == len(fold._owner) == int(state.is_live)
        exact.feed(a_record_of(offset, "app", 5, state))
        exact.forget_idle_backlog()
    reported = list(fold.facts())
    assert reported == list(exact.facts(is_first=True))
    assert [fact.held for fact in reported if isinstance(fact, TransactionSeen)] == [frozenset()]


@pytest.mark.parametrize(("name", "live"), [("app", []), ("another", [5])])
def test_an_id_ends_only_its_own_use_of_the_producer_id_that_it_names_as_the_previous_one(
    name: str, live: list[int]
) -> None:
    answer = a_record_of(0, "app", 5, S.ONGOING) + a_record_of(1, name, 6, S.EMPTY, previous_id=5)
    fold, exact = (
        FirstReadFold(log_numbered(0), 0, 2, backlog_end=2, room=HeldBytes()),
        TransactionFold(log_numbered(0), 0, 2, backlog_end=2),
    )
    fold.feed(answer)
    exact.feed(answer)
    facts = list(fold.facts())
    assert facts == list(exact.facts(is_first=True))
    assert [fact.producer_id for fact in facts if isinstance(fact, TransactionSeen)] == live
