"""What the brokers' clocks may do to a verdict of time: delay it by what cannot be known, and never invent one."""

from __future__ import annotations

import pytest

from support.clocked_log import ClockedLog, LogPartition
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.verdicts import DetectionPolicy, Verdict

POLICY = DetectionPolicy()
APP, OTHER, BUSY = 7, 8, 9
MINUTE_MS, WEEK_MS = 60_000, 7 * 86_400_000


def two_logs(*, second_clock_ms: int = 0, second_leader: int = 2) -> ClockedLog:
    """Two partitions of the coordinators' log; the first is led by broker 1, whose clock is right."""
    return ClockedLog({0: LogPartition(1), 1: LogPartition(second_leader)}, {1: 0, 2: second_clock_ms})


def watched(cluster: ClockedLog) -> ClockedLog:
    """Read to its end twice, so that what comes now is new."""
    cluster.batch()
    cluster.batch()
    return cluster


def first_reported_ms(cluster: ClockedLog, for_ms: int, step_ms: int = 500) -> int | None:
    """After how long the first verdict of time is found; None if there is none."""
    since_ms = cluster.now_ms
    while cluster.now_ms - since_ms < for_ms:
        if cluster.candidates(step_ms):
            return cluster.now_ms - since_ms
    return None


def test_reading_a_log_of_a_week_again_does_not_silence_the_verdicts_of_time() -> None:
    cluster = two_logs()
    cluster.now_ms -= WEEK_MS
    cluster.log_value(0, OTHER, S.COMPLETE_COMMIT)
    cluster.now_ms += WEEK_MS
    watched(cluster)
    cluster.log_value(0, APP, S.PREPARE_COMMIT)
    cluster.batch(reread=(0,))
    reported_ms = first_reported_ms(cluster, 2 * MINUTE_MS)
    assert reported_ms is not None, f"never reported: {cluster.counts[0]}"
    assert reported_ms <= POLICY.stuck_prepare_ms + 1_000


def test_a_partition_of_the_log_that_is_back_after_a_minute_moves_no_clock() -> None:
    cluster = watched(two_logs())
    for _ in range(120):
        cluster.log_value(1, OTHER, S.COMPLETE_COMMIT)
        cluster.batch(stale=(1,))
    cluster.log_value(0, APP, S.PREPARE_COMMIT)
    cluster.batch()
    reported_ms = first_reported_ms(cluster, 2 * MINUTE_MS)
    assert reported_ms is not None
    assert reported_ms <= POLICY.stuck_prepare_ms + 1_000


@pytest.mark.parametrize("apart_ms", [-3_600_000, -62_000, 62_000, 3_600_000])
@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.ONGOING])
@pytest.mark.parametrize("watched_before", [0, 2], ids=["when reading begins", "while we watch"])
def test_a_record_of_a_millisecond_is_never_overdue_whatever_the_clocks(
    apart_ms: int, state: S, watched_before: int
) -> None:
    cluster = two_logs(second_clock_ms=apart_ms)
    cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
    for _ in range(watched_before):
        cluster.batch()
    for _ in range(3):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        cluster.log_value(1, OTHER, S.COMPLETE_COMMIT)
        cluster.batch()
    cluster.now_ms += 499
    cluster.log_value(1, APP, state, start_ms=cluster.stamp_ms(1))
    assert cluster.candidates(1) == []
    for _ in range(20):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        assert cluster.candidates() == []


@pytest.mark.parametrize("apart_ms", [-3_600_000, 0, 62_000])
def test_an_old_transaction_is_reported_at_the_start_once_its_broker_has_stamped_a_record(apart_ms: int) -> None:
    cluster = two_logs(second_clock_ms=apart_ms, second_leader=2)
    cluster.logs[2] = LogPartition(2)
    cluster.log_value(1, APP, S.PREPARE_COMMIT)
    cluster.now_ms += 5 * MINUTE_MS
    cluster.log_value(2, BUSY, S.COMPLETE_COMMIT)
    cluster.batch()  # a log that is read for the first time may have been overtaken by compaction: one more must follow
    (candidate,) = cluster.candidates()
    assert candidate.verdict is Verdict.STUCK_PREPARE
    assert 5 * MINUTE_MS <= candidate.age_ms <= 5 * MINUTE_MS + 1_000


@pytest.mark.parametrize("apart_ms", [-3_600_000, 0, 62_000])
def test_an_old_transaction_on_an_idle_broker_is_reported_after_one_threshold(apart_ms: int) -> None:
    cluster = two_logs(second_clock_ms=apart_ms)
    cluster.log_value(1, APP, S.PREPARE_COMMIT)
    cluster.now_ms += 5 * MINUTE_MS
    cluster.batch()
    reported_ms = first_reported_ms(cluster, 2 * MINUTE_MS)
    assert reported_ms is not None
    assert reported_ms <= POLICY.stuck_prepare_ms + 1_000


@pytest.mark.parametrize(("old_ms", "new_ms"), [(0, 62_000), (-62_000, 0), (62_000, 0), (-3_600_000, 3_600_000)])
def test_a_failover_to_another_clock_makes_nothing_old(old_ms: int, new_ms: int) -> None:
    cluster = ClockedLog({0: LogPartition(1)}, {1: old_ms, 2: new_ms})
    watched(cluster)
    for _ in range(3):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        cluster.batch()
    cluster.log_value(0, APP, S.PREPARE_COMMIT)
    cluster.log_value(0, OTHER, S.ONGOING, start_ms=cluster.stamp_ms(0))
    cluster.lead(0, 2)
    for _ in range(20):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        assert cluster.candidates() == []
    reported_ms = first_reported_ms(cluster, 2 * MINUTE_MS)
    assert reported_ms is not None, "the estimate follows, and our own eyes have seen it"
    assert reported_ms + 20 * 500 <= POLICY.stuck_prepare_ms + 1_000


def set_forward_while_watched() -> ClockedLog:
    """A prepared transaction of a broker whose clock is then set an hour forward."""
    cluster = watched(two_logs())
    for _ in range(3):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        cluster.batch()
    cluster.log_value(0, APP, S.PREPARE_COMMIT)
    cluster.batch()
    cluster.clocks_ms[1] = 3_600_000
    return cluster


def test_a_clock_that_is_set_while_we_watch_makes_nothing_old() -> None:
    cluster = set_forward_while_watched()
    for _ in range(20):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        assert cluster.candidates() == []


def test_a_clock_that_was_set_stays_so_for_what_its_broker_leads_when_it_takes_over_more() -> None:
    cluster = set_forward_while_watched()
    for _ in range(3):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        assert cluster.candidates() == []
    cluster.lead(1, 1)
    for _ in range(20):
        cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
        assert cluster.candidates() == []


def test_a_coordinator_that_takes_over_with_a_clock_ahead_has_time_to_act() -> None:
    cluster = watched(ClockedLog({0: LogPartition(1)}, {1: 0, 2: 3_600_000}))
    cluster.log_value(0, APP, S.ONGOING, start_ms=cluster.stamp_ms(0))
    cluster.batch()
    cluster.lead(0, 2)
    cluster.log_value(0, BUSY, S.COMPLETE_COMMIT)
    cluster.batch()
    reported_ms = first_reported_ms(cluster, 2 * MINUTE_MS)
    grace_ms = POLICY.scan_interval_ms(None) + POLICY.late_buffer_ms
    assert reported_ms is not None
    assert grace_ms < reported_ms <= grace_ms + 1_000, "by its own clock the timeout has passed; it must scan"
