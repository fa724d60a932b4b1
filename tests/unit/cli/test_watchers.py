"""The watchers as rows and as text: each one once, with what it covers, and a limited number of them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from support.heartbeats import NOW_MS, a_heartbeat
from txnwatch.cli.status import listed, not_reached, watchers_of
from txnwatch.state.incidents.heartbeat import Heartbeat, last_of_each, uncovered, unwatched
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition

UNREAD = TopicPartition(TRANSACTION_STATE_TOPIC, 3)


def test_every_watcher_is_listed_once_by_its_last_heartbeat() -> None:
    first, second = (
        a_heartbeat(instance="one"),
        a_heartbeat(instance="two", evaluated_ms=NOW_MS - 5, time_ms=NOW_MS - 5),
    )
    older = replace(first, time_ms=NOW_MS - 10_000, evaluated_ms=NOW_MS - 10_000)
    future = replace(second, time_ms=NOW_MS + 10_000_000, evaluated_ms=NOW_MS + 10_000_000)
    shown = watchers_of(last_of_each([first, second, older, future], NOW_MS), NOW_MS)
    assert [(one.heartbeat.instance, one.age_ms, one.is_active) for one in shown] == [
        ("one", 0, True),
        ("two", 5, True),
    ]


def test_a_watcher_is_shown_as_one_line() -> None:
    (shown,) = watchers_of([a_heartbeat()], NOW_MS + 1_500)
    assert shown.line() == (
        "watcher host:/checkpoint (0.9) of cluster cluster: evaluated barrier 812 1.5s ago; 120 partitions scanned, "
        "30 by census, 2 unproven (orders-1, orders-2), at most 12 offsets behind, coordinator view log"
    )
    (blind,) = watchers_of([a_heartbeat(is_coordinator_read=False)], NOW_MS)
    assert blind.line() == (
        "watcher host:/checkpoint (0.9) of cluster cluster: evaluated barrier 812 0.0s ago and proved nothing: "
        "no part of the coordinators' log is read to its end; coordinator view log"
    )
    why = "webhook pager: 3 events wait, the oldest for 3 min 20 s: a:443 answers 503"
    (failing,) = watchers_of([a_heartbeat(failing_targets=(why,))], NOW_MS)
    assert failing.line().endswith(f"coordinator view log; does not deliver to {why}")
    (odd,) = watchers_of([a_heartbeat(time_ms=NOW_MS + 10**9)], NOW_MS)
    assert ": ignored, " in odd.line()


def test_a_watcher_in_json_has_the_members_of_its_heartbeat() -> None:
    beat = a_heartbeat()
    (watcher,) = watchers_of([beat], NOW_MS + 1_500)
    assert watcher.members() == {**asdict(beat), "age_ms": 1_500, "is_active": True, "doubt": None, "undetected": ()}


def test_a_cluster_without_a_watcher_is_named() -> None:
    last = last_of_each([a_heartbeat(), a_heartbeat(cluster_id="b", evaluated_ms=0)], NOW_MS)
    assert unwatched({"cluster", "b", "c"}, last, NOW_MS) == ["b", "c"]


def a_watcher(**changes: Any) -> Heartbeat:
    """One that reaches everything."""
    return a_heartbeat(**{"unproven_partitions": 0, "unproven_names": (), **changes})


def missing_of(*beats: Heartbeat) -> dict[str, str]:
    return dict(not_reached(uncovered(last_of_each(beats, NOW_MS), NOW_MS)))


def test_a_watcher_that_reaches_everything_leaves_nothing_unchecked() -> None:
    assert missing_of(a_watcher()) == {}


def test_a_watcher_that_judges_looks_and_what_it_does_not_reach_is_not_checked() -> None:
    partly = a_watcher(unproven_partitions=5, unproven_names=(str(UNREAD), "orders-1"), unread_log_partitions=1)
    (watcher,) = watchers_of([partly], NOW_MS)
    assert watcher.is_active
    assert unwatched(["cluster"], [partly], NOW_MS) == []
    who = "watcher host:/checkpoint of cluster cluster"
    assert missing_of(partly) == {
        str(UNREAD): f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids",
        "orders-1": f"{who} proves nothing there",
        "3 more partitions": f"{who} proves nothing there",
    }
    assert "5 unproven (__transaction_state-3, orders-1 and 3 more), 1 of them of the coordinators' log" in (
        watcher.line()
    )


def test_a_part_of_the_log_without_a_leader_names_the_brokers_that_must_come_back() -> None:
    other, data = TopicPartition(TRANSACTION_STATE_TOPIC, 4), "orders-1"
    partly = a_watcher(
        unproven_partitions=4,
        unproven_names=(str(UNREAD), str(other), data),
        unread_log_partitions=3,
        leaderless_names=(f"{UNREAD}: broker 2 or 3", "made up", f"{data}: broker 9"),
    )
    who = "watcher host:/checkpoint of cluster cluster"
    why = f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids"
    assert missing_of(partly) == {
        str(UNREAD): f"{why} until one of its replicas is back: broker 2 or 3",
        str(other): why,
        "1 more partition": why,
        data: f"{who} proves nothing there",
    }


def test_open_data_that_may_hang_is_not_checked_and_names_the_brokers_that_must_come_back() -> None:
    why = "__transaction_state-3: has no leader: its ids cannot be listed until one of its replicas is back: broker 2"
    waits = a_watcher(undecided_spans=3, undecided_names=(f"orders-0@5 of producer id 7: {why}",))
    who = "watcher host:/checkpoint of cluster cluster"
    assert missing_of(waits) == {
        "orders-0@5 of producer id 7": f"{who} cannot prove whether this open data hangs: {why}",
        "2 more open transactions": f"{who} cannot prove whether they hang",
    }
    (watcher,) = watchers_of([waits], NOW_MS)
    assert "3 open transactions unproven" in watcher.line()


def test_a_watcher_that_has_read_no_part_of_the_log_proves_nothing() -> None:
    blind = a_watcher(is_coordinator_read=False, unproven_partitions=50, unread_log_partitions=50)
    assert list(missing_of(blind)) == ["cluster cluster"]
    assert missing_of(blind, a_watcher(instance="another")) == {}, "they read the same log, and this one has read it"
    assert list(missing_of(blind, a_watcher(instance="another", cluster_id="b"))) == ["cluster cluster"]


def test_a_watcher_may_leave_out_partitions_that_another_one_scans() -> None:
    partly = a_watcher(unproven_partitions=1, unproven_names=("orders-1",))
    assert list(missing_of(partly, a_watcher(instance="another"))) == ["orders-1"]
    gone = replace(partly, evaluated_ms=0)
    assert missing_of(gone, a_watcher(instance="another")) == {}, "it does not look any more"


def test_made_up_watchers_do_not_make_the_answer_endless() -> None:
    made_up = [a_watcher(instance=f"x{n}", cluster_id=f"c{n}", is_coordinator_read=False) for n in range(300)]
    assert len(missing_of(*made_up)) == 21
    assert "280 more" in missing_of(*made_up)


def test_made_up_watchers_do_not_hide_one_that_looks() -> None:
    made_up = [a_heartbeat(instance=f"x{n}", cluster_id=f"c{n}", evaluated_ms=NOW_MS + 9_000) for n in range(30)]
    last = last_of_each([a_heartbeat(), *made_up], NOW_MS)
    assert unwatched(["cluster"], last, NOW_MS) == []
    assert len(listed(watchers_of(last, NOW_MS))) == 20


VIEWS = {
    "log": "coordinator view log",
    "api": "coordinator view api, which does not detect stuck_prepare, late, long_running",
    "none": "coordinator view none, which does not detect hanging, stuck_prepare, long_running, stray_write",
}


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize(("view", "text"), VIEWS.items(), ids=VIEWS.keys())
def test_the_line_of_a_watcher_ends_with_its_view_and_what_the_view_does_not_detect(
    *, view: str, text: str, is_read: bool
) -> None:
    (shown,) = watchers_of([a_watcher(coordinator_view=view, is_coordinator_read=is_read)], NOW_MS)
    assert shown.line().endswith(f"{'offsets behind,' if is_read else ';'} {text}")
    assert ("coordinators' log" in shown.line()) is (view == "log" and not is_read)
    assert text.removeprefix(f"coordinator view {view}, which does not detect ").split(", ") == (
        list(shown.members()["undetected"]) or [text]
    )


@pytest.mark.parametrize("view", ["api", "none"])
def test_a_watcher_that_reads_nothing_without_the_log_does_not_blame_the_log(view: str) -> None:
    blind = a_watcher(coordinator_view=view, is_coordinator_read=False)
    who = "watcher host:/checkpoint of cluster cluster"
    assert missing_of(blind) == {"cluster cluster": f"{who} proves nothing there: it reads no partition"}


def test_a_view_that_detects_hangs_leaves_nothing_unchecked_and_one_that_does_not_does() -> None:
    assert missing_of(a_watcher(coordinator_view="api")) == {}
    (why,) = missing_of(a_watcher(coordinator_view="none")).values()
    assert why == (
        "watcher host:/checkpoint of cluster cluster has the coordinator view none, and proves no hang; it does not "
        "detect hanging, stuck_prepare, long_running, stray_write"
    )


def test_what_is_beyond_the_bytes_per_second_is_told_with_what_a_scan_adds() -> None:
    (watcher,) = watchers_of([a_heartbeat(beyond_partitions=3, beyond_names=("logs-0", "logs-1"))], NOW_MS)
    assert "30 by census (logs-0, logs-1 and 1 more beyond --max-bytes-per-second: no stray writes" in watcher.line()
