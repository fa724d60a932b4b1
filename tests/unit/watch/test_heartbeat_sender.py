"""The heartbeats of a watch: when they are sent, and what they have."""

from __future__ import annotations

import msgspec

from support.heartbeats import NOW_MS
from support.log_lines import LogLines
from txnwatch.sinks.delivery.outbox import FailingTarget
from txnwatch.state.detection.proof import Look
from txnwatch.state.incidents.heartbeat import Heartbeat, from_bytes, to_bytes
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import BucketCount, CensusResult, Finding, Unproven
from txnwatch.state.model.pauses import Every
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.client.metadata import Metadata, PartitionInfo, TopicInfo
from txnwatch.streaming.client.notations import Endpoint
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.streaming.source.options import parse_options
from txnwatch.watch.coverage import Coverage
from txnwatch.watch.listening import HeartbeatSender, HeartbeatTarget

DATA, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
LOG, UNREAD = TopicPartition(TRANSACTION_STATE_TOPIC, 0), TopicPartition(TRANSACTION_STATE_TOPIC, 3)
COUNT = BucketCount(7, 0, (), (), NOW_MS, 0, (), -1, -1, 0, 0)


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
        led, leaderless = PartitionInfo(1, 0), PartitionInfo(None, None)
        log = {0: led, 2: leaderless, 3: leaderless}
        replicas = {0: (1, 2), 2: (), 3: (2, 3)}
        name = TRANSACTION_STATE_TOPIC
        topics[name] = TopicInfo(name, name, partitions=log, replicas=replicas)
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
        self.undelivered = 0
        self.undecided: list[str] = []
        self.failing: list[FailingTarget] = []
        self.pulse = HeartbeatSender(
            "host:/c",
            "cluster",
            cluster,
            options,
            lambda: progress,
            places,
            lambda: self.coverage.evidence,
            lambda: self.coverage.is_ready,
            lambda: self.undelivered,
            lambda: self.undecided,
            lambda: self.failing,
        )

    def batch(self, *emitted: Finding, after_ms: int = 0) -> None:
        self.now_ms = NOW_MS + after_ms
        self.coverage.on_batch(emitted)
        self.pulse.on_batch(emitted, self.now_ms)


def test_a_watch_sends_heartbeats_at_the_pace_of_each_sink_while_it_evaluates_barriers() -> None:
    quick, slow = Place(), Place()
    watch = Watch(HeartbeatTarget(quick.beat, Every(5_000)), HeartbeatTarget(slow.beat, Every(15_000)))
    for after_ms in range(0, 30_000, 500):
        watch.batch(COUNT, Unproven(()), after_ms=after_ms)
    assert (len(quick.sent), len(slow.sent)) == (6, 2)
    watch.batch(after_ms=60_000)
    assert len(quick.sent) == 6, "a batch without a barrier judges nothing"


def test_the_first_barrier_after_an_outage_is_not_the_only_one_for_a_while() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(15_000)))
    watch.batch(msgspec.structs.replace(COUNT, data_listed_ms=NOW_MS - 61_000), Unproven(()))
    watch.batch(COUNT, Unproven(()), after_ms=500)
    assert [beat.is_active(NOW_MS + 500) for beat in place.sent] == [False, True]


def test_it_shows_how_far_it_reaches() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    watch.batch(COUNT)
    assert not place.sent[-1].is_coordinator_read, "nothing is known of what is proven"
    watch.batch(COUNT, Unproven((DATA, UNREAD)), after_ms=1)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.is_coordinator_read) == (2, 1, True)
    assert last.unproven_names == (str(UNREAD), str(DATA)), "more depends on the log"
    watch.batch(COUNT, Unproven((DATA,)), after_ms=2)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.furthest_behind) == (1, 0, 20)
    assert (last.barrier, last.evaluated_ms, last.scanned_partitions, last.census_partitions) == (7, NOW_MS, 2, 3)


def test_what_is_beyond_the_budget_is_not_scanned() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    watch.pulse.progress = lambda: Progress({}, {}, {}, looked=(DATA,))
    watch.batch(COUNT, Unproven(()))
    last = place.sent[-1]
    assert (last.scanned_partitions, last.census_partitions) == (1, 4)
    assert (last.beyond_partitions, last.beyond_names) == (1, (str(DATA),))


def test_it_names_the_targets_that_do_not_take_their_events() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    watch.failing = [FailingTarget(f"webhook {number}", 3, NOW_MS - 200_000, "\u00fc" * 900) for number in range(9)]
    watch.batch(COUNT, Unproven(()))
    found = place.sent[-1].failing_targets
    for number in range(3):
        assert found[number].startswith(f"webhook {number}: 3 events wait, the oldest for 3 min 20 s: \u00fc\u00fc")
    watch.undecided = ["\u00fc" * 900]
    watch.batch(COUNT, Unproven(()), after_ms=1)
    beat = place.sent[-1]
    assert len(beat.failing_targets) == 3
    assert from_bytes(to_bytes(beat), beat.key) == beat, "no text is too long for a heartbeat"


def test_it_names_the_brokers_that_an_unread_part_of_the_log_waits_for() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    without_replicas = TopicPartition(TRANSACTION_STATE_TOPIC, 2)
    for after_ms in range(0, 40_000, 5_000):
        watch.batch(COUNT, Unproven((DATA, without_replicas, UNREAD)), after_ms=after_ms)
    assert place.sent[-1].unproven_names == (str(without_replicas), str(UNREAD), str(DATA))
    assert place.sent[-1].leaderless_names == (f"{UNREAD}: broker 2 or 3",)
    watch.batch(COUNT, Unproven((DATA,)), after_ms=40_000)
    assert place.sent[-1].leaderless_names == ()


def test_an_election_at_the_moment_of_a_heartbeat_is_not_reported() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    watch.batch(COUNT, Unproven(()), CensusResult(()))
    watch.batch(COUNT, Unproven((DATA, UNREAD)), CensusResult((PAYMENTS,)), after_ms=5_000)
    last = place.sent[-1]
    assert (last.unproven_partitions, last.unread_log_partitions, last.is_coordinator_read) == (0, 0, True)
    for after_ms in range(10_000, 40_000, 5_000):
        watch.batch(COUNT, Unproven((DATA, UNREAD)), CensusResult((PAYMENTS,)), after_ms=after_ms)
    last = place.sent[-1]
    assert last.unproven_names == (str(UNREAD), str(DATA), str(PAYMENTS))


def test_partitions_that_no_census_describes_are_reported_as_unproven() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    watch.batch(COUNT, Unproven(()), CensusResult((DATA, PAYMENTS)))
    assert place.sent[-1].unproven_names == (str(DATA), str(PAYMENTS))
    assert place.sent[-1].unproven_partitions == 2


def test_an_unreachable_sink_does_not_delay_the_others() -> None:
    away, there = Place(), Place()
    away.is_away = True
    watch = Watch(HeartbeatTarget(away.beat, Every(1)), HeartbeatTarget(there.beat, Every(1)))
    watch.batch(COUNT, Unproven(()))
    assert len(there.sent) == 1


def test_a_coordinators_log_that_no_broker_shows_is_not_read() -> None:
    place = Place()
    watch = Watch(HeartbeatTarget(place.beat, Every(1)))
    hidden = msgspec.structs.replace(COUNT, waiting=((Look.COORDINATOR_NOT_SHOWN, 1),))
    watch.batch(COUNT, hidden, Unproven(()))
    assert not place.sent[-1].is_coordinator_read
