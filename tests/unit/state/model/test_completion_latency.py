"""How long transactions took to end: from the coordinator's records, wherever the log is cut."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.batches import a_batch, a_record
from support.facts import BucketRun
from support.transaction_log import a_key, a_value
from txnwatch.state.model.completion_latency import BOUNDS_MS, Latencies, Stage
from txnwatch.state.model.facts import Fact, NoticeKind, PartitionNotice, TransactionSeen
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.streaming.log.transaction_fold import TransactionFold
from txnwatch.streaming.wire.internal_topics import TransactionLogValue

T = 1_700_000_000_000
COMMIT, ABORT = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)


@dataclass(frozen=True)
class LogEntry:
    state: S
    at: int
    updated: int = 0
    epoch: int = 0
    producer_id: int = 7
    previous: int | None = None
    name: str = "checkout-1"

    def encoded(self, offset: int) -> bytes:
        partitions = None if self.state is S.EMPTY else ((("orders", (0,)),) if self.state.is_live else ())
        value = TransactionLogValue(
            1, self.producer_id, 0, 60_000, self.state, partitions, T + self.updated, T, self.previous
        )
        record = a_record(key=a_key(self.name), value=a_value(value))
        return a_batch(
            offset,
            records=[record],
            producer_id=-1,
            transactional=False,
            leader_epoch=self.epoch,
            base_timestamp=T + self.at,
        )


def facts(entries: list[LogEntry], start: int = 0, end: int | None = None) -> list[Fact]:
    last = len(entries) if end is None else end
    fold = TransactionFold(log_numbered(0), start, last)
    fold.feed(b"".join(entry.encoded(offset) for offset, entry in enumerate(entries) if offset >= start))
    return list(fold.facts())


def timed(entries: list[LogEntry], *cuts: int) -> dict[tuple[Stage, S], tuple[int, int]]:
    """How many and how long in all, by stage and target state, after the ranges between the cuts."""
    run = BucketRun()
    found: Counter[tuple[Stage, S, str]] = Counter()
    for start, end in pairwise(sorted({0, len(entries), *cuts})):
        run.batch(*facts(entries, start, end))
        take(found, run.ended)
    return totals(found)


def take(found: Counter[tuple[Stage, S, str]], latencies: list[Latencies]) -> None:
    for stage, state, sum_ms, counts in latencies:
        found[stage, state, "count"] += sum(counts)
        found[stage, state, "sum"] += sum_ms


def totals(found: Counter[tuple[Stage, S, str]]) -> dict[tuple[Stage, S], tuple[int, int]]:
    return {
        (stage, state): (found[stage, state, "count"], found[stage, state, "sum"]) for stage, state, _ in sorted(found)
    }


COMMITTED = [LogEntry(S.ONGOING, 0), LogEntry(S.PREPARE_COMMIT, 100), LogEntry(S.COMPLETE_COMMIT, 160, updated=107)]
TIMES = {
    (Stage.APPEND, S.PREPARE_COMMIT): (1, 7),
    (Stage.MARKERS, S.COMPLETE_COMMIT): (1, 53),
    (Stage.COMPLETION, S.COMPLETE_COMMIT): (1, 60),
}


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2)])
def test_the_way_to_the_end_is_split_by_when_prepare_was_committed(cuts: tuple[int, ...]) -> None:
    assert timed(COMMITTED, *cuts) == TIMES


@pytest.mark.parametrize("cuts", [(), (2,)])
def test_across_a_failover_only_the_whole_duration_is_measured_and_counted_separately(cuts: tuple[int, ...]) -> None:
    moved = [*COMMITTED[:2], LogEntry(S.COMPLETE_COMMIT, 4_100, updated=4_050, epoch=1)]
    assert timed(moved, *cuts) == {
        (Stage.COMPLETION, S.COMPLETE_COMMIT): (1, 4_000),
        (Stage.FAILOVER, S.COMPLETE_COMMIT): (1, 4_000),
    }


@pytest.mark.parametrize("cuts", [(), (1,), (2,)])
def test_an_exhausted_epoch_completes_under_another_producer_id_and_counts_once(cuts: tuple[int, ...]) -> None:
    moved = [*COMMITTED[:2], LogEntry(S.COMPLETE_COMMIT, 160, updated=107, producer_id=8, previous=7)]
    assert timed(moved, *cuts) == TIMES


def test_a_complete_that_ends_nothing_that_was_prepared_is_not_timed() -> None:
    assert timed([LogEntry(S.PREPARE_ABORT, 1), LogEntry(S.COMPLETE_COMMIT, 2)]) == {}
    assert timed([LogEntry(S.ONGOING, 1), LogEntry(S.COMPLETE_COMMIT, 2)], 1) == {}
    assert timed([LogEntry(S.COMPLETE_COMMIT, 2)]) == {}


def test_clocks_that_disagree_give_zero_and_nothing_below() -> None:
    assert timed([LogEntry(S.PREPARE_ABORT, 100), LogEntry(S.COMPLETE_ABORT, 90, updated=80)]) == {
        (Stage.APPEND, S.PREPARE_ABORT): (1, 0),
        (Stage.MARKERS, S.COMPLETE_ABORT): (1, 10),
        (Stage.COMPLETION, S.COMPLETE_ABORT): (1, 0),
    }


@pytest.mark.parametrize("took_ms", [0, BOUNDS_MS[0], BOUNDS_MS[0] + 1, BOUNDS_MS[-1], BOUNDS_MS[-1] + 1])
def test_a_bound_belongs_to_what_it_bounds(took_ms: int) -> None:
    run = BucketRun()
    run.batch(*facts([LogEntry(S.PREPARE_COMMIT, 0), LogEntry(S.COMPLETE_COMMIT, took_ms)]))
    (whole,) = [latency for latency in run.ended if latency.stage is Stage.COMPLETION]
    within = [took_ms <= bound for bound in (*BOUNDS_MS, 10**9)]
    assert whole.counts.index(1) == within.index(True)


def test_a_first_reading_counts_nothing_that_ended_before_it() -> None:
    fold = TransactionFold(log_numbered(0), 0, 4, backlog_end=4)
    again = [*COMMITTED, LogEntry(S.ONGOING, 200)]
    fold.feed(b"".join(entry.encoded(offset) for offset, entry in enumerate(again)))
    (fact,) = fold.facts(is_first=True)
    assert isinstance(fact, TransactionSeen)
    assert fact.first_end is None


def test_a_range_that_is_read_again_is_not_timed_again() -> None:
    run = BucketRun()
    run.batch(*facts(COMMITTED))
    assert run.ended
    log = TopicPartition(TRANSACTION_STATE_TOPIC, 0)
    run.batch(*facts(COMMITTED, 1), reread={log: 1})
    assert run.ended == []
    run.batch(PartitionNotice(NoticeKind.TRUNCATED, log, "", 3, 3, "made by a test"))
    forgotten = [replace(entry, producer_id=9, name="long-idle") for entry in COMMITTED]
    run.batch(*facts(forgotten), reread={log: 0}, stale_coordinator=frozenset({log_numbered(0)}))
    assert run.ended == [], "what the state has forgotten is not measured either"
    more = [replace(entry, producer_id=10, name="long-idle-too") for entry in COMMITTED]
    run.batch(*facts([*COMMITTED, *more], 3), stale_coordinator=frozenset({log_numbered(0)}))
    assert run.ended == [], "nor while it goes on"
    run.batch(*facts([*COMMITTED, *forgotten, *COMMITTED], 6))
    run.batch(*facts([*COMMITTED, *COMMITTED, *COMMITTED, *COMMITTED], 9))
    assert run.ended, "and then it goes on"


def test_a_range_that_is_read_again_after_a_gap_has_parts_that_were_timed_so_none_is() -> None:
    log, run = log_numbered(0), BucketRun()
    three = [
        replace(entry, at=entry.at + 1_000 * number, producer_id=number, name=f"id-{number}")
        for number in range(3)
        for entry in COMMITTED
    ]
    run.batch(*facts(three, 0, 1), PartitionNotice(NoticeKind.GAP, log, "", 1, 3, "no leader"))
    assert run.ended == []
    run.batch(*facts(three, 3, 6))
    assert sum(sum(one.counts) for one in run.ended if one.stage is Stage.COMPLETION) == 1
    run.batch(*facts(three, 1, 9), reread={log: 1})
    assert run.ended == []


@pytest.mark.parametrize("kind", [NoticeKind.LEFT, NoticeKind.GAP])
def test_a_range_that_goes_on_where_the_batch_before_has_stopped_is_timed(kind: NoticeKind) -> None:
    log, run = log_numbered(0), BucketRun()
    run.batch(*facts(COMMITTED, 0, 1), PartitionNotice(kind, log, "", 1, 3, "made by a test"))
    assert run.ended == []
    run.batch(*facts(COMMITTED, 1), reread={log: 1})
    assert run.ended


STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([COMMIT, ABORT]), st.integers(0, 50), st.booleans()),
    max_size=8,
)


@given(STEPS, st.lists(st.integers(0, 24), max_size=5))
def test_however_the_log_is_cut_every_transaction_is_timed_once(
    steps: list[tuple[str, tuple[S, S], int, bool]], cuts: list[int]
) -> None:
    entries, now, epoch = [], 0, 0
    for name, (prepared, complete), took, fails in steps:
        producer_id = 7 if name == "a" else 8
        entries += [LogEntry(state, now, now, epoch, producer_id, name=name) for state in (S.ONGOING, prepared)]
        epoch += fails
        now += took
        entries.append(LogEntry(complete, now, now - took, epoch, producer_id, name=name))
    found = timed(entries, *(cut for cut in cuts if cut < len(entries)))
    assert sum(count for (stage, _), (count, _) in found.items() if stage is Stage.COMPLETION) == len(steps)
    assert sum(count for (stage, _), (count, _) in found.items() if stage is Stage.FAILOVER) == sum(
        fails for *_, fails in steps
    )
    assert sum(took for (stage, _), (_, took) in found.items() if stage is Stage.COMPLETION) == now
