"""How many producers a new leader, or a new bound of a clock, makes a barrier evaluate."""

from __future__ import annotations

from collections.abc import Mapping
from unittest import mock

import pytest

from support.facts import START_MS, DictStore, transaction
from txnwatch.state.detection import bucket as buckets
from txnwatch.state.detection.broker_clocks import RESERVE_MS
from txnwatch.state.detection.bucket import process, take_clocks
from txnwatch.state.detection.bucket_state import BucketState
from txnwatch.state.model.clocks import Clock, Leader
from txnwatch.state.model.facts import Barrier, Fact
from txnwatch.state.model.findings import Finding, OpenTransactions
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TopicPartition, log_numbered
from txnwatch.state.model.verdicts import DetectionPolicy

LOGS, OF_EACH_LOG = 4, 5
TIMEOUT_MS = 20_000_000  # no threshold is near
# Broker 0 leads 0 and 2, broker 1 leads 1 and 3.
LEADERS = {log_numbered(number): Leader(number % 2, 1) for number in range(LOGS)}
OF_BROKER_0 = OF_EACH_LOG * 2


class Watched:
    """A bucket in memory with young transactions; `batch` returns how many producers were evaluated."""

    def __init__(self, *, leaders: Mapping[TopicPartition, Leader] = LEADERS) -> None:
        self.bucket, self.store, self.number, self.now_ms = BucketState(), DictStore(), 0, START_MS
        self.leaders, self.policy = dict(leaders), DetectionPolicy()
        self.emitted: list[Finding] = []
        self.batch(*(self._young(number) for number in range(LOGS * OF_EACH_LOG)))
        self.batch(after_ms=self.policy.listed_after_ms)  # they are listable from here on

    def _young(self, number: int) -> Fact:
        begun_ms, name = self.now_ms, f"app-{number}"
        at = {"start_ms": begun_ms, "record_timestamp_ms": begun_ms, "coordinator_epoch": 1, "timeout_ms": TIMEOUT_MS}
        return transaction(
            number, S.ONGOING, producer_id=number, transactional_id=name, log_partition=number % LOGS, **at
        )

    def batch(
        self, *facts: Fact, after_ms: int = 500, scan_interval_ms: int | None = None, **bounds: tuple[int, int | None]
    ) -> int:
        """One batch; `bounds` of a clock are named by the broker: b0, b1."""
        self.number += 1
        self.now_ms += after_ms
        clocks = {int(name[1:]): Clock(*bound, self.now_ms) for name, bound in bounds.items()}
        barrier = Barrier(
            self.number,
            self.now_ms - 1,
            self.now_ms,
            leaders=dict(self.leaders),
            clocks=clocks,
            scan_interval_ms=scan_interval_ms,
        )
        with mock.patch.object(buckets, "at_rest_until", wraps=buckets.at_rest_until) as evaluated:
            self.emitted = process(self.bucket, self.store, [*facts, barrier], self.policy, reports_partitions=True)
        return evaluated.call_count


def with_clocks() -> Watched:
    run = Watched()
    run.batch(b0=(-500, 400), b1=(-500, 400))
    return run


def test_a_clock_that_is_known_for_the_first_time_concerns_the_producers_of_its_broker() -> None:
    run = Watched()
    assert run.batch() == 0
    assert run.batch(b0=(-500, 400)) == OF_BROKER_0
    assert run.batch() == 0


def test_a_bound_that_is_refreshed_again_and_again_concerns_nobody() -> None:
    run = with_clocks()
    for _ in range(10):
        known = run.bucket.clocks.brokers[0]
        assert run.batch(after_ms=1_200_000, b0=(-500, 400)) == 0
        assert run.bucket.clocks.brokers[0] != known, "the bound had fallen by the drift"


def test_a_bound_that_rises_by_more_than_the_reserve_concerns_the_producers_of_its_broker() -> None:
    run = Watched()
    run.batch(b0=(-9_000, None))
    assert run.batch(b0=(-9_000 + RESERVE_MS, None)) == 0
    assert run.batch(b0=(-9_000 + 2 * RESERVE_MS, None)) == OF_BROKER_0, "the first rise has used the reserve"


def test_an_election_concerns_the_producers_of_its_log_partition() -> None:
    run = with_clocks()
    run.leaders[log_numbered(2)] = Leader(1, 2)
    assert run.batch() == OF_EACH_LOG, "ages of the others only fall while the clock of broker 1 is not known"
    assert run.batch(b1=(-500, 400)) == OF_EACH_LOG * 3, "the clock of a broker that takes over is a new one"


def test_an_election_with_a_record_of_the_new_leader_concerns_no_others() -> None:
    run = with_clocks()
    run.leaders[log_numbered(2)] = Leader(1, 2)
    assert run.batch(b1=(-500, 400)) == OF_EACH_LOG


def test_a_clock_that_was_set_concerns_the_producers_of_its_broker() -> None:
    run = with_clocks()
    assert run.batch(b0=(-70_000, -60_000)) == OF_BROKER_0


def test_a_clock_whose_setting_is_forgotten_concerns_all_that_its_broker_leads() -> None:
    bucket, now_ms = BucketState(), START_MS
    take_clocks(bucket, Barrier(1, now_ms, now_ms, leaders=LEADERS, clocks={0: Clock(-500, 400, now_ms)}))
    take_clocks(bucket, Barrier(2, now_ms, now_ms, leaders=LEADERS, clocks={0: Clock(-70_000, -60_000, now_ms)}))
    assert bucket.clocks.brokers[0].set_ms == now_ms
    elected = {**LEADERS, log_numbered(1): Leader(0, 2)}
    clocks = {0: Clock(-70_000, -60_000, now_ms)}
    concerned = take_clocks(bucket, Barrier(3, now_ms, now_ms, leaders=elected, clocks=clocks))
    assert bucket.clocks.brokers[0].set_ms is None
    assert concerned.to_evaluate == set(map(log_numbered, range(3))), "ages may depend on other values now"


def test_the_scan_interval_concerns_all_if_it_differs_from_the_one_that_counted() -> None:
    run = with_clocks()
    assert run.batch(scan_interval_ms=10_000) == 0, "Kafka's default counted"
    assert run.batch(scan_interval_ms=20_000) == LOGS * OF_EACH_LOG


def test_other_thresholds_after_a_restart_concern_all() -> None:
    run = with_clocks()
    run.policy = DetectionPolicy(long_running_fraction=0.5)
    assert run.batch() == LOGS * OF_EACH_LOG
    assert run.batch() == 0


@pytest.mark.parametrize("ahead_ms", [RESERVE_MS // 2, 3_600_000], ids=["by a second", "by an hour"])
def test_the_open_list_follows_a_clock_that_is_ahead(ahead_ms: int) -> None:
    run = Watched()
    run.policy = DetectionPolicy(listed_after_ms=0)
    run.batch(b0=(-500, None))
    run.batch(after_ms=ahead_ms, b0=(ahead_ms, None))
    (listed,) = [finding for finding in run.emitted if isinstance(finding, OpenTransactions)]
    since_ms = {one.producer_id % 2: one.since_ms for one in listed.transactions}
    assert since_ms[1] - since_ms[0] == ahead_ms
