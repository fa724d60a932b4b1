"""Which watchers are active and what they do not cover, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.heartbeats import NOW_MS, a_heartbeat
from txnwatch.state.incidents.heartbeat import (
    ACTIVE_MS,
    AHEAD_MS,
    Heartbeat,
    Missing,
    last_of_each,
    uncovered,
    undetected,
    unspoken,
    unwatched,
)
from txnwatch.state.model.values import DAY_MS

LOG = "__transaction_state-7"
Part = tuple[str, Missing, tuple[str, ...], int]


def watcher(instance: str = "a", **changes: Any) -> Heartbeat:
    """An active watcher that proves everything."""
    return a_heartbeat(**{"instance": instance, "unproven_partitions": 0, "unproven_names": (), **changes})


WHOLE = watcher("whole")
BLIND = watcher("blind", is_coordinator_read=False, unproven_partitions=9, unread_log_partitions=5)
LOG_BEHIND = watcher("log", unproven_partitions=2, unread_log_partitions=1, unproven_names=(LOG, "orders-1"))
DATA_BEHIND = watcher("data", unproven_partitions=4, unproven_names=("orders-1", "orders-2", "orders-3"))
UNNAMED = watcher("unnamed", unproven_partitions=6, unread_log_partitions=2)
ASKING = watcher("asking", coordinator_view="api")
WITHOUT = watcher("without", coordinator_view="none")
OLD = ACTIVE_MS + 1

COVERAGE: dict[str, tuple[list[Heartbeat], list[Part]]] = {
    "nobody watches": ([], []),
    "everything is proven": ([WHOLE], []),
    "no part of the log is read": ([BLIND], [("blind", Missing.EVERYTHING, (), 0)]),
    "another one has read the log, so its data counts": (
        [WHOLE, BLIND],
        [("blind", Missing.DATA, (), 4)],
    ),
    "the coordinators are asked": ([ASKING], []),
    "no hang is proven without the coordinators": ([WITHOUT], [("without", Missing.HANGS, (), 0)]),
    "one that does not use the log has not read it for another": (
        [ASKING, BLIND],
        [("blind", Missing.EVERYTHING, (), 0)],
    ),
    "another one that is old has read the log": (
        [replace(WHOLE, evaluated_ms=NOW_MS - OLD), BLIND],
        [("blind", Missing.EVERYTHING, (), 0)],
    ),
    "another one has read the log of another cluster": (
        [replace(WHOLE, cluster_id="other"), BLIND],
        [("blind", Missing.EVERYTHING, (), 0)],
    ),
    "another one has read only a part of the log": (
        [LOG_BEHIND, BLIND],
        [
            ("log", Missing.LOG, (LOG,), 0),
            ("log", Missing.DATA, ("orders-1",), 0),
            ("blind", Missing.EVERYTHING, (), 0),
        ],
    ),
    "a part of the log that another one has read": ([WHOLE, LOG_BEHIND], [("log", Missing.DATA, ("orders-1",), 0)]),
    "data that another one proves may be of other topics": (
        [WHOLE, DATA_BEHIND],
        [("data", Missing.DATA, ("orders-1", "orders-2", "orders-3"), 1)],
    ),
    "more partitions than names": (
        [UNNAMED],
        [("unnamed", Missing.LOG, (), 2), ("unnamed", Missing.DATA, (), 4)],
    ),
    "an old watcher covers nothing and misses nothing": ([replace(DATA_BEHIND, evaluated_ms=NOW_MS - OLD)], []),
    "numbers that do not fit together": (
        [watcher(unproven_partitions=1, unread_log_partitions=3, unproven_names=("orders-1",))],
        [("a", Missing.LOG, (), 3), ("a", Missing.DATA, ("orders-1",), 0)],
    ),
}


@pytest.mark.parametrize(("last", "expected"), COVERAGE.values(), ids=COVERAGE.keys())
def test_active_watchers_leave_the_expected_partitions_uncovered(last: list[Heartbeat], expected: list[Part]) -> None:
    found = uncovered(last, NOW_MS)
    assert [(one.watcher.instance, one.missing, one.names, one.more) for one in found] == expected


UNDETECTED: dict[str, tuple[list[Heartbeat], dict[str, list[str]]]] = {
    "nobody watches": ([], {}),
    "the log is read": ([WHOLE], {}),
    "the coordinators are asked": ([ASKING], {"cluster": ["stuck_prepare", "late", "long_running"]}),
    "only the partitions are read": (
        [WITHOUT],
        {"cluster": ["hanging", "stuck_prepare", "long_running", "stray_write"]},
    ),
    "two views together": ([ASKING, WITHOUT], {"cluster": ["stuck_prepare", "long_running"]}),
    "another one reads the log": ([ASKING, WHOLE], {}),
    "another one that is old has read the log": (
        [replace(WHOLE, evaluated_ms=NOW_MS - OLD), ASKING],
        {"cluster": ["stuck_prepare", "late", "long_running"]},
    ),
    "another one reads the log of another cluster": (
        [replace(WHOLE, cluster_id="other"), ASKING],
        {"cluster": ["stuck_prepare", "late", "long_running"]},
    ),
}


@pytest.mark.parametrize(("last", "expected"), UNDETECTED.values(), ids=UNDETECTED.keys())
@pytest.mark.parametrize("order", [1, -1])
def test_verdicts_that_no_active_watcher_of_a_cluster_detects(
    last: list[Heartbeat], expected: dict[str, list[str]], order: int
) -> None:
    found = undetected(last[::order], NOW_MS)
    assert {cluster: list(verdicts) for cluster, verdicts in found.items()} == expected


AGES = {
    "judged now": (0, []),
    "judged a minute ago": (-ACTIVE_MS, []),
    "judged too long ago": (-ACTIVE_MS - 1, ["cluster"]),
    "a clock that is a little ahead": (AHEAD_MS, []),
    "of the future": (AHEAD_MS + 1, ["cluster"]),
}


@pytest.mark.parametrize(("evaluated_ms", "alone"), AGES.values(), ids=AGES.keys())
def test_a_cluster_is_watched_only_by_a_plausible_and_recent_heartbeat(evaluated_ms: int, alone: list[str]) -> None:
    beat = watcher(evaluated_ms=NOW_MS + evaluated_ms)
    assert unwatched(["cluster"], [beat], NOW_MS) == alone
    assert unwatched(["cluster", "other"], [beat], NOW_MS) == [*alone, "other"]


times = st.integers(NOW_MS - 3, NOW_MS + 3) | st.integers(NOW_MS + AHEAD_MS - 1, NOW_MS + AHEAD_MS + 2)
beats = st.builds(watcher, st.sampled_from("ab"), time_ms=times, evaluated_ms=times, barrier=st.integers(0, 9))


@given(st.lists(beats, max_size=8))
def test_the_last_plausible_heartbeat_of_each_instance_counts(found: list[Heartbeat]) -> None:
    last = last_of_each(found, NOW_MS)
    assert {beat.instance for beat in last} == {beat.instance for beat in found}
    assert len({beat.key for beat in last}) == len(last)
    for beat in last:
        plausible = [one for one in found if one.key == beat.key and one.doubt(NOW_MS) is None]
        if plausible:
            assert beat in plausible
            assert beat.time_ms == max(one.time_ms for one in plausible)
    doubts = [beat.doubt(NOW_MS) is not None for beat in last]
    assert doubts == sorted(doubts)


AHEAD = {"time_ms": NOW_MS + AHEAD_MS + 1, "evaluated_ms": NOW_MS + AHEAD_MS + 1}
OTHERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "is silent, too": ({"speaks": False}, ["cluster"]),
    "publishes": ({"speaks": True}, []),
    "publishes, and its clock is ahead": ({"speaks": True, **AHEAD}, []),
    "published once, and its clock was a year ahead": (
        {"speaks": True, "time_ms": NOW_MS + 365 * DAY_MS, "evaluated_ms": NOW_MS + 365 * DAY_MS},
        ["cluster"],
    ),
    "is silent, and its clock is ahead": ({"speaks": False, **AHEAD}, ["cluster"]),
    "publishes, and has other topics": ({"speaks": True, "topics_digest": "other"}, ["cluster"]),
}


@pytest.mark.parametrize(("other", "nobody_in"), OTHERS.values(), ids=OTHERS.keys())
def test_beside_a_silent_watcher_somebody_has_to_publish(other: dict[str, Any], nobody_in: list[str]) -> None:
    silent = watcher(topics_digest="digest", speaks=False)
    assert unspoken([silent, watcher("b", **{"topics_digest": "digest", **other})], NOW_MS) == nobody_in
