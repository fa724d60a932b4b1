"""The rows of doctor about clocks, as a table: which one differs, by how much, what is affected, and what to do."""

from __future__ import annotations

import pytest

from txnwatch.cli.doctor_clocks import clock_rows
from txnwatch.state.model.clocks import Clock
from txnwatch.state.model.values import log_numbered
from txnwatch.streaming.checks.clock_bounds import FirstLook, SeenClocks, broker_clocks
from txnwatch.streaming.log.coordinator_log import NewestStamp

NOW_MS, TEN_MINUTES_MS, HOUR_MS = 1_700_000_000_000, 600_000, 3_600_000
LOG, OTHER = log_numbered(0), log_numbered(1)
FIRST = FirstLook({LOG: 10, OTHER: 10}, NOW_MS)
READ_MS = NOW_MS + 1_000


def seen(ahead_ms: int) -> Clock:
    """Of a broker that writes during the check."""
    return Clock(ahead_ms - 500, ahead_ms + 500, NOW_MS)


def idle(stamped_ago_ms: int) -> Clock:
    """Of a broker whose newest stamp is so old, by our clock."""
    return Clock(-stamped_ago_ms, None, NOW_MS)


BY = TEN_MINUTES_MS
CASES: dict[str, tuple[SeenClocks, list[tuple[str, str, str]]]] = {
    "all agree": (SeenClocks({1: seen(0), 2: seen(900)}), [("this machine", "ok", "agree within 5.0s")]),
    "a broker is ahead": (
        SeenClocks({1: seen(0), 2: seen(BY)}),
        [("broker 2", "warning", "9m59s ahead of"), ("this machine", "ok", "broker 1")],
    ),
    "a broker is ahead, and idle for less": (
        SeenClocks({1: seen(0), 2: idle(-BY)}),
        [("broker 2", "warning", "10m00s or more ahead of"), ("this machine", "ok", "broker 1")],
    ),
    "a broker is behind": (
        SeenClocks({1: seen(0), 2: seen(-BY)}),
        [("broker 2", "warning", "9m59s behind"), ("this machine", "ok", "broker 1")],
    ),
    "our clock is ahead, and the cluster is idle": (
        SeenClocks({1: idle(BY + HOUR_MS), 2: idle(BY)}, (1, Clock(-BY - 3, -BY, NOW_MS))),
        [("broker 1", "warning", "10m00s behind"), ("broker 2", "ok", "not compared")],
    ),
    "our clock is behind all": (
        SeenClocks({1: seen(BY), 2: seen(BY)}),
        [("broker 1", "warning", "ahead of"), ("broker 2", "warning", "ahead of")],
    ),
    "a controller that is no broker": (
        SeenClocks({}, (100, Clock(BY, BY + 9, NOW_MS))),
        [("controller 100", "warning", "10m00s ahead of"), ("brokers 1, 2", "ok", "not compared")],
    ),
    "nothing can be compared": (SeenClocks({1: idle(HOUR_MS)}), [("brokers 1, 2", "warning", "1h00m old")]),
    "nothing was ever stamped": (SeenClocks(), [("brokers 1, 2", "warning", "no timestamp")]),
    "a stamp that may be old by a clock ahead agrees with nothing": (
        SeenClocks({1: seen(0), 2: idle(10)}),
        [("this machine", "ok", "broker 1"), ("broker 2", "ok", "not compared")],
    ),
    "a clock that was set between two stamps": (
        SeenClocks({1: seen(0), 2: Clock(BY, 0, NOW_MS)}),
        [("this machine", "ok", "broker 1"), ("broker 2", "ok", "not compared")],
    ),
    "apart by less than it matters": (
        SeenClocks({1: seen(4_500), 2: seen(-4_500)}),
        [("this machine", "ok", "1, broker 2")],
    ),
}


@pytest.mark.parametrize(("clocks", "expected"), CASES.values(), ids=CASES.keys())
def test_the_rows(clocks: SeenClocks, expected: list[tuple[str, str, str]]) -> None:
    rows = list(clock_rows(clocks, (1, 2)))
    assert [(row.subject, row.status) for row in rows] == [(subject, status) for subject, status, _ in expected]
    for row, (_, _, text) in zip(rows, expected, strict=True):
        assert row.check == "clock"
        assert text in row.detail
        assert (row.status == "warning") is (row.fix is not None)


def test_a_warning_says_what_is_affected_and_what_to_do() -> None:
    ahead, _ = clock_rows(SeenClocks({1: seen(0), 2: seen(BY)}), (1, 2))
    assert "find overdue transactions that much later" in ahead.detail
    assert "`run` compares the times of one clock only" in ahead.detail
    assert "find-hanging" in ahead.needed_by
    assert "that of this machine or that of broker 2" in (ahead.fix or "")
    behind, _ = clock_rows(SeenClocks({1: seen(0), 2: seen(-BY)}), (1, 2))
    assert "too high" in behind.detail


def test_if_all_differ_in_one_direction_this_machine_is_named_first() -> None:
    for row in clock_rows(SeenClocks({1: seen(BY), 2: seen(BY)}), (1, 2)):
        assert (row.fix or "").startswith("set the clock of this machine")


@pytest.mark.parametrize("ahead_ms", [-HOUR_MS, -BY, 0, BY, HOUR_MS])
@pytest.mark.parametrize("stamped_after_ms", [-5_000, -1, 0, 500, 1_000])
def test_bounds_hold_the_true_difference(ahead_ms: int, stamped_after_ms: int) -> None:
    is_new = stamped_after_ms >= 0
    stamp = NewestStamp(1, NOW_MS + stamped_after_ms + ahead_ms, LOG, 10 if is_new else 9)
    clock = broker_clocks([stamp], FIRST, READ_MS)[1]
    assert clock.lowest_ms <= ahead_ms
    assert (clock.highest_ms is not None) is is_new
    assert clock.highest_ms is None or clock.highest_ms >= ahead_ms


def test_the_partitions_of_a_broker_give_the_narrowest_bounds_and_a_former_leader_gives_none() -> None:
    stamps = [
        NewestStamp(1, NOW_MS + 400, LOG, 12),
        NewestStamp(1, NOW_MS + 700, OTHER, 10),
        NewestStamp(None, NOW_MS + BY, LOG, 12),
    ]
    assert broker_clocks(stamps, FIRST, READ_MS) == {1: Clock(-300, 400, READ_MS)}


def test_a_partition_that_the_first_look_has_not_listed_gives_no_upper_bound() -> None:
    assert broker_clocks([NewestStamp(1, NOW_MS, LOG, 12)], FirstLook({}, NOW_MS), READ_MS)[1].highest_ms is None
