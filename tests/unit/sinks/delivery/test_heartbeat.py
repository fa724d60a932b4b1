"""A heartbeat names its watcher and the time of its barrier; an impossible one is dropped, and none is an incident."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.heartbeats import NOW_MS, a_heartbeat
from support.incidents import an_event
from support.log_lines import LogLines
from txnwatch.cli.watchers import listed, not_reached, unwatched, watchers_of
from txnwatch.sinks.delivery import encoding
from txnwatch.sinks.delivery.heartbeat import AHEAD_MS, FRESH_MS, Heartbeat, from_bytes, to_bytes
from txnwatch.state.detection.proof import Look
from txnwatch.state.model.errors import BadEventError, SinkError
from txnwatch.state.model.findings import BucketCount, CensusIncomplete, Finding, Unproven
from txnwatch.state.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.incident import is_incident_id
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.endpoint import Endpoint
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.job.progress import Progress
from txnwatch.streaming.source.options import parse_options
from txnwatch.watch.coverage import Coverage
from txnwatch.watch.heartbeat_sender import HeartbeatSender, HeartbeatTarget

DATA, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
LOG, UNREAD = TopicPartition(TRANSACTION_STATE_TOPIC, 0), TopicPartition(TRANSACTION_STATE_TOPIC, 3)
COUNT = BucketCount(7, 0, (), 0, NOW_MS, 0, (), -1, -1, 0)


def test_a_heartbeat_survives_its_encoding() -> None:
    beat = a_heartbeat()
    assert from_bytes(to_bytes(beat), beat.key) == beat


def test_a_heartbeat_is_no_incident_and_an_incident_no_heartbeat() -> None:
    beat = a_heartbeat()
    assert not is_incident_id(beat.key)
    with pytest.raises(BadEventError):
        encoding.from_bytes(to_bytes(beat))
    with pytest.raises(BadEventError):
        from_bytes(encoding.to_json(an_event()), beat.key)


@pytest.mark.parametrize(
    "changes",
    [
        {"judged_ms": 1e30},
        {"judged_ms": -1},
        {"barrier": "7"},
        {"instance": None},
        {"instance": "x" * 40_000},
        {"instance": "\ud800"},
        {"unproven_partitions": 1 << 40},
        {"unproven_names": ["orders-1"] * 4},
        {"unproven_names": "orders-1"},
        {"unproven_names": [1]},
        {"unread_log_partitions": -1},
        {"is_coordinator_read": 1},
        {"cluster_id": "a b"},
        {"instance": "another"},
    ],
    ids=str,
)
def test_one_that_cannot_be_is_none(changes: dict[str, Any]) -> None:
    beat = a_heartbeat()
    value = json.dumps({**json.loads(to_bytes(beat)), **changes}).encode()
    with pytest.raises(BadEventError):
        from_bytes(value, beat.key)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_heartbeat_or_none(value: bytes) -> None:
    with pytest.raises(BadEventError):
        from_bytes(value, a_heartbeat().key)


def test_nested_deeper_than_a_decoder_goes_is_none() -> None:
    with pytest.raises(BadEventError):
        from_bytes(b"[" * 60_000, a_heartbeat().key)


def test_a_watcher_that_evaluated_a_moment_ago_is_active() -> None:
    beat = a_heartbeat()
    assert beat.is_active(NOW_MS)
    assert beat.is_active(NOW_MS + FRESH_MS)
    assert not beat.is_active(NOW_MS + FRESH_MS + 1)
    assert replace(beat, is_coordinator_read=False).is_active(NOW_MS), "it judges, whatever it proves"


def test_one_of_the_future_is_not_believed() -> None:
    late = a_heartbeat(judged_ms=NOW_MS + AHEAD_MS, time_ms=NOW_MS + AHEAD_MS)
    assert late.is_active(NOW_MS)
    for field in ("judged_ms", "time_ms"):
        beat = a_heartbeat(**{field: NOW_MS + AHEAD_MS + 1})
        assert not beat.is_active(NOW_MS)
        assert beat.doubt(NOW_MS) == f"its time is {AHEAD_MS + 1} ms in the future"


def test_every_watcher_is_listed_once_by_its_last_heartbeat() -> None:
    first, second = a_heartbeat(instance="one"), a_heartbeat(instance="two", judged_ms=NOW_MS - 5, time_ms=NOW_MS - 5)
    older = replace(first, time_ms=NOW_MS - 10_000, judged_ms=NOW_MS - 10_000)
    future = replace(second, time_ms=NOW_MS + 10_000_000, judged_ms=NOW_MS + 10_000_000)
    shown = watchers_of([first, second, older, future], NOW_MS)
    assert [(one.instance, one.age_ms, one.is_active) for one in shown] == [("one", 0, True), ("two", 5, True)]


def test_a_watcher_is_shown_as_one_line() -> None:
    (shown,) = watchers_of([a_heartbeat()], NOW_MS + 1_500)
    assert shown.line() == (
        "watcher host:/checkpoint (0.9) of cluster cluster: evaluated barrier 812 1.5s ago; 120 partitions scanned, "
        "30 by census, 2 unproven (orders-1, orders-2), the furthest 12 offsets behind"
    )
    (blind,) = watchers_of([a_heartbeat(is_coordinator_read=False)], NOW_MS)
    assert blind.line() == (
        "watcher host:/checkpoint (0.9) of cluster cluster: evaluated barrier 812 0.0s ago and proved nothing: "
        "no part of the coordinators' log was read to its end"
    )
    (odd,) = watchers_of([a_heartbeat(time_ms=NOW_MS + 10**9)], NOW_MS)
    assert ": ignored, " in odd.line()


def test_a_cluster_that_nobody_looks_at_is_named() -> None:
    watchers = watchers_of([a_heartbeat(), a_heartbeat(cluster_id="b", judged_ms=0)], NOW_MS)
    assert unwatched({"cluster", "b", "c"}, watchers) == ["b", "c"]


class Place:
    """Somewhere heartbeats go."""

    def __init__(self) -> None:
        self.sent: list[Heartbeat] = []
        self.is_away = False

    def beat(self, heartbeat: Heartbeat) -> None:
        if self.is_away:
            raise SinkError("away")
        self.sent.append(heartbeat)


class Topics(Cluster):
    """A cluster of two topics: one that is scanned, one by census."""

    def refresh(self, _: object = ()) -> Metadata:
        counts = {"orders": 2, "payments": 3}
        topics = {
            name: TopicInfo(name, name, partitions={number: PartitionInfo(1, 0) for number in range(count)})
            for name, count in counts.items()
        }
        return Metadata("cluster", {1: Endpoint("a", 1)}, topics)


class Watch:
    """A pulse and the coverage that it asks, with a clock by hand."""

    def __init__(self, *places: HeartbeatTarget) -> None:
        patterns = {"subscribePattern": "orders", "censusPattern": ".*"}
        options = parse_options({"kafka.bootstrap.servers": "a:1", **patterns})
        cluster = Topics(options.bootstrap, options.security)
        progress = Progress({}, {DATA: 30, LOG: 9}, {DATA: 10, LOG: 9})
        self.now_ms = NOW_MS
        self.coverage = Coverage(LogLines(), progress=lambda: progress, now_ms=lambda: self.now_ms)
        self.pulse = HeartbeatSender(
            "host:/c", "cluster", cluster, options, lambda: progress, places, lambda: self.coverage.evidence
        )

    def batch(self, *emitted: Finding, after_ms: int = 0) -> None:
        self.now_ms = NOW_MS + after_ms
        self.coverage.on_batch(emitted)
        self.pulse.on_batch(emitted, self.now_ms)


def test_a_watch_sends_heartbeats_at_the_pace_of_each_sink_while_it_evaluates_barriers() -> None:
    quick, slow = Place(), Place()
    watch = Watch(HeartbeatTarget(quick.beat, 5_000), HeartbeatTarget(slow.beat, 15_000))
    for after_ms in range(0, 30_000, 500):
        watch.batch(COUNT, Unproven(()), after_ms=after_ms)
    assert (len(quick.sent), len(slow.sent)) == (6, 2)
    watch.batch(after_ms=60_000)
    assert len(quick.sent) == 6, "a batch without a barrier judges nothing"


def test_it_shows_how_far_it_reaches() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, 1))
    watch.batch(COUNT)
    assert not place.sent[-1].is_coordinator_read, "nothing is known of what is proven"
    watch.batch(COUNT, Unproven((DATA, UNREAD)), after_ms=1)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.is_coordinator_read) == (2, 1, True)
    assert last.unproven_names == (str(UNREAD), str(DATA)), "more depends on the log"
    watch.batch(COUNT, Unproven((DATA,)), after_ms=2)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.furthest_behind) == (1, 0, 20)
    assert (last.barrier, last.judged_ms, last.scanned_partitions, last.census_partitions) == (7, NOW_MS + 2, 2, 3)


def test_an_election_at_the_moment_of_a_heartbeat_is_not_reported() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, 1))
    watch.batch(COUNT, Unproven(()), CensusIncomplete(()))
    watch.batch(COUNT, Unproven((DATA, UNREAD)), CensusIncomplete((PAYMENTS,)), after_ms=5_000)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.is_coordinator_read) == (0, 0, True)
    for after_ms in range(10_000, 40_000, 5_000):
        watch.batch(COUNT, Unproven((DATA, UNREAD)), CensusIncomplete((PAYMENTS,)), after_ms=after_ms)
    last = place.sent[-1]
    assert last.unproven_names == (str(UNREAD), str(DATA), str(PAYMENTS))


def test_partitions_that_no_census_describes_are_reported_as_unproven() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, 1))
    watch.batch(COUNT, Unproven(()), CensusIncomplete((DATA, PAYMENTS)))
    assert place.sent[-1].unproven_names == (str(DATA), str(PAYMENTS))
    assert place.sent[-1].unproven_partitions == 2


def test_an_unreachable_sink_does_not_delay_the_others() -> None:
    away, there = Place(), Place()
    away.is_away = True
    watch = Watch(HeartbeatTarget(away.beat, 1), HeartbeatTarget(there.beat, 1))
    watch.batch(COUNT, Unproven(()))
    assert len(there.sent) == 1


def test_a_coordinators_log_that_nobody_shows_is_not_read() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, 1))
    hidden = msgspec.structs.replace(COUNT, waiting=((Look.COORDINATOR_NOT_SHOWN, 1),))
    watch.batch(COUNT, hidden, Unproven(()))
    assert not place.sent[-1].is_coordinator_read


def a_watcher(**changes: Any) -> Heartbeat:
    """One that reaches everything."""
    return a_heartbeat(**{"unproven_partitions": 0, "unproven_names": (), **changes})


def missing_of(*beats: Heartbeat) -> dict[str, str]:
    return dict(not_reached(watchers_of(beats, NOW_MS)))


def test_a_watcher_that_reaches_everything_leaves_nothing_unchecked() -> None:
    assert missing_of(a_watcher()) == {}


def test_a_watcher_that_judges_looks_and_what_it_does_not_reach_is_not_checked() -> None:
    partly = a_watcher(unproven_partitions=5, unproven_names=(str(UNREAD), "orders-1"), unread_log_partitions=1)
    (watcher,) = watchers_of([partly], NOW_MS)
    assert watcher.is_active
    assert unwatched(["cluster"], [watcher]) == []
    who = "watcher host:/checkpoint of cluster cluster"
    assert missing_of(partly) == {
        str(UNREAD): f"{who} cannot read this part of the coordinators' log, so nothing is proven about its ids",
        "orders-1": f"{who} proves nothing there",
        "3 more partitions": f"{who} proves nothing there",
    }
    assert "5 unproven (__transaction_state-3, orders-1 and 3 more), 1 of them of the coordinators' log" in (
        watcher.line()
    )


def test_a_watcher_that_has_read_no_part_of_the_log_proves_nothing() -> None:
    blind = a_watcher(is_coordinator_read=False, unproven_partitions=50, unread_log_partitions=50)
    assert list(missing_of(blind)) == ["cluster cluster"]
    assert missing_of(blind, a_watcher(instance="another")) == {}, "they read the same log, and this one has read it"
    assert list(missing_of(blind, a_watcher(instance="another", cluster_id="b"))) == ["cluster cluster"]


def test_what_one_watcher_scans_another_may_not_watch_at_all() -> None:
    partly = a_watcher(unproven_partitions=1, unproven_names=("orders-1",))
    assert list(missing_of(partly, a_watcher(instance="another"))) == ["orders-1"]
    gone = replace(partly, judged_ms=0)
    assert missing_of(gone, a_watcher(instance="another")) == {}, "it does not look any more"


def test_made_up_watchers_do_not_make_the_answer_endless() -> None:
    made_up = [a_watcher(instance=f"x{n}", cluster_id=f"c{n}", is_coordinator_read=False) for n in range(300)]
    assert len(missing_of(*made_up)) == 21
    assert "280 more" in missing_of(*made_up)


def test_made_up_watchers_do_not_hide_one_that_looks() -> None:
    made_up = [a_heartbeat(instance=f"x{n}", cluster_id=f"c{n}", judged_ms=NOW_MS + 9_000) for n in range(30)]
    watchers = watchers_of([a_heartbeat(), *made_up], NOW_MS)
    assert unwatched(["cluster"], watchers) == []
    assert len(listed(watchers)) == 20
