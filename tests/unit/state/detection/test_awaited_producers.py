"""What a batch costs where many facts concern many producers: their sum. Counted, not timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from support.facts import START_MS, TOPIC_IDS, BucketRun, DictStore, gone, log_notice, notice, seen, transaction
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection import loaded_producers
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.facts import Barrier, CensusListing, CensusTaken, Fact, NoticeKind, OpenDescribed
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy

AWAITED, FACTS = 300, 200


def name_of(producer_id: int) -> str:
    return f"app-{producer_id}"


def partition_of(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def awaiting() -> BucketRun:
    """A bucket with many producers, each with an id of its own that holds a partition of its own."""
    run = BucketRun()
    facts: list[Fact] = []
    for number in range(AWAITED):
        held = partition_of(number)
        facts.append(seen(0, 10, data=4, partition=held, producer_id=number))
        facts.append(transaction(number, S.ONGOING, held, producer_id=number, transactional_id=name_of(number)))
    run.batch(*facts)
    run.store.reads = 0
    return run


@pytest.fixture
def done() -> Iterator[Counter[str]]:
    """How often a rule was asked about a producer."""
    counts: Counter[str] = Counter()

    def counted(name: str, rule: Any) -> Any:
        def ask(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return rule(*arguments, **named)

        return ask

    with (
        mock.patch.object(loaded_producers, "apply", counted("applied", loaded_producers.apply)),
        mock.patch.object(buckets, "doubted", counted("doubted", buckets.doubted)),
        mock.patch.object(buckets, "forget_unseen", counted("forgotten", buckets.forget_unseen)),
        mock.patch.object(buckets, "judge", counted("judged", buckets.judge)),
    ):
        yield counts


def reads_of_one_pass(run: BucketRun) -> bool:
    return run.store.reads <= AWAITED + FACTS


def test_tombstones_of_others_cost_one_pass(done: Counter[str]) -> None:
    run = awaiting()
    done.clear()
    run.batch(*[gone(1_000 + number, f"expired-{number}") for number in range(FACTS)])
    assert done["applied"] == 0
    assert done["judged"] == 0, "what was only looked at is not judged"
    assert reads_of_one_pass(run)


def test_tombstones_of_awaited_ids_reach_each_its_own(done: Counter[str]) -> None:
    run = awaiting()
    done.clear()
    run.batch(*[gone(1_000 + number, name_of(number)) for number in range(FACTS)])
    assert done["applied"] == FACTS
    assert reads_of_one_pass(run)
    states = Counter(str(run.producer(number).view.state) for number in range(AWAITED))  # type: ignore[union-attr]
    assert states == {"Dead": FACTS, "Ongoing": AWAITED - FACTS}


def test_partitions_that_had_an_election_cost_one_pass(done: Counter[str]) -> None:
    run = awaiting()
    done.clear()
    run.batch(risen=frozenset(partition_of(number) for number in range(AWAITED - 10, AWAITED + FACTS)))
    assert done["doubted"] == 10
    assert reads_of_one_pass(run)


def test_notices_of_partitions_reach_who_has_something_open_there(done: Counter[str]) -> None:
    run = awaiting()
    done.clear()
    deletions = [notice(NoticeKind.DELETED, 0, partition=partition_of(number)) for number in range(FACTS)]
    run.batch(*deletions)
    assert done["applied"] == FACTS
    assert reads_of_one_pass(run)
    assert sum(not run.producer(number).spans for number in range(AWAITED)) == FACTS


def test_readings_that_end_together_cost_one_pass(done: Counter[str]) -> None:
    run = awaiting()
    logs = range(50)
    run.batch(*[log_notice(NoticeKind.TRUNCATED, 5, number) for number in logs])
    reread = {TopicPartition(TRANSACTION_STATE_TOPIC, number): 0 for number in logs}
    run.batch(reread=reread, stale_coordinator=frozenset(map(log_numbered, logs)))
    run.store.reads = 0
    done.clear()
    run.batch()
    assert done["forgotten"] == AWAITED, "each is in one partition of the log"
    assert run.store.reads <= AWAITED


class StoredFindings:
    """The same bucket from batch to batch, as a worker keeps it: what is derived is made once."""

    def __init__(self) -> None:
        self.bucket, self.store, self.number = BucketState(), DictStore(), 0

    def batch(self, *facts: Fact, **exceptions: Any) -> tuple[int, int]:
        """How many producers one batch reads and writes."""
        self.number += 1
        self.store.reads = self.store.writes = 0
        barrier = Barrier(self.number, START_MS, START_MS + self.number, **exceptions)
        buckets.process(self.bucket, self.store, [*facts, barrier], DetectionPolicy(), reports_partitions=True)
        return self.store.reads, self.store.writes


def kept_awaiting() -> StoredFindings:
    kept = StoredFindings()
    facts: list[Fact] = []
    for number in range(AWAITED):
        held = partition_of(number)
        facts.append(seen(0, 10, data=4, partition=held, producer_id=number))
        facts.append(transaction(number, S.ONGOING, held, producer_id=number, transactional_id=name_of(number)))
    assert kept.batch(*facts) == (AWAITED, AWAITED)
    kept.batch(*a_census(AWAITED + 1))  # whoever asks first makes the index
    return kept


def a_census(*numbers: int, shows: int | None = None, scanned: bool = True, is_round: bool = False) -> list[Fact]:
    listing = CensusListing(TOPIC_IDS["orders"], 100, 4, is_scanned=scanned)
    taken = CensusTaken({partition_of(number): listing for number in numbers}, is_round=is_round)
    described = [] if shows is None else [OpenDescribed(partition_of(shows), shows, 0, 4, START_MS, START_MS)]
    return [taken, *described]


def test_a_census_touches_the_producers_of_its_partitions() -> None:
    kept = kept_awaiting()
    assert kept.batch(*a_census(AWAITED + 1, AWAITED + 2, AWAITED + 3)) == (0, 0), "nobody is open there"
    assert kept.batch(*a_census(7, shows=7)) == (1, 0), "what the log has shown is not written again"
    assert kept.batch(*a_census(8, shows=8, scanned=False)) == (1, 1), "there is no scan: when it was seen counts"
    assert kept.batch(*a_census(7)) == (1, 1), "it is not shown any more"
    scanned = 20  # not in the round; one of them is due, because it is not shown any more
    assert kept.batch(*a_census(*range(scanned, AWAITED), is_round=True))[0] == AWAITED - scanned + 1


def test_a_round_touches_none_that_only_the_scan_knows_and_those_whose_partition_is_gone() -> None:
    kept = kept_awaiting()
    assert kept.batch(*a_census(AWAITED + 1, is_round=True)) == (0, 0)
    others = [AWAITED + number for number in range(10)]
    kept.batch(*a_census(*others, shows=others[0], scanned=False, is_round=True))
    assert kept.batch(*a_census(*others, shows=others[0], scanned=False, is_round=True))[0] == 1
    assert kept.batch(*a_census(*others[1:], scanned=False, is_round=True)) == (1, 1), "its partition is gone"
    gone_from = kept.store.get(others[0])
    assert gone_from is not None
    assert gone_from.spans == {}


def test_a_fact_without_a_producer_loads_only_the_producers_that_it_concerns() -> None:
    kept = kept_awaiting()
    assert kept.batch(gone(1_000, "nobody"), notice(NoticeKind.DELETED, 0, partition=partition_of(AWAITED))) == (0, 0)
    assert kept.batch(risen=frozenset({partition_of(9)})) == (1, 0)
    assert kept.batch(gone(1_000, name_of(5)), notice(NoticeKind.DELETED, 0, partition=partition_of(6))) == (2, 2)
    assert kept.batch() == (1, 1), "the one that nobody holds any more is looked at again"


def test_a_producer_with_other_partitions_is_found_under_them() -> None:
    kept = kept_awaiting()
    there = partition_of(AWAITED + 5)
    kept.batch(seen(0, 10, data=4, partition=there, producer_id=3))
    kept.batch(notice(NoticeKind.DELETED, 0, partition=there))
    producer = kept.store.get(3)
    assert producer is not None
    assert producer.spans.keys() == {partition_of(3)}
