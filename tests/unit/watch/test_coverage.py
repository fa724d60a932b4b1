"""What a watch does not see is reported: in the line `ready`, when it changes, and in the metrics."""

from __future__ import annotations

from typing import Any

import pytest

from support.facts import ORDERS, PAYMENTS, BucketRun, notice, seen
from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.log_lines import LogLines
from support.metrics import Scrape
from support.recording_sink import RecordingTopic
from txnwatch.metrics.collector import Metrics
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.facts import CensusTaken, Fact, NoticeKind
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition, log_numbered
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.job.checkpoint import Progress
from txnwatch.watch.coverage import Coverage

NO_LOG = {"has_coordinator_log": False}
LEADERLESS = {"stale_coordinator": frozenset({log_numbered(7)})}
LOG = [TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in (3, 7)]


def a_round(*failed: TopicPartition) -> CensusTaken:
    """A round of the census in which these leaders did not describe their partitions."""
    return CensusTaken({}, frozenset(failed), is_round=True)


class Scene:
    """A bucket whose findings go to a coverage and to metrics."""

    def __init__(self) -> None:
        self.run, self.lines, self.batches = BucketRun(), LogLines(), 0
        self.log_ends: dict[TopicPartition, int] = {}
        self.watched: tuple[int, int] | None = None
        self.coverage = Coverage(
            self.lines,
            progress=lambda: Progress({}, self.log_ends, self.log_ends),
            watched=lambda: self.watched,
            now_ms=lambda: self.run.now_ms,
        )
        self.metrics = Metrics(lambda: self.run.now_ms)
        topic, origin = TopicOutbox(RecordingTopic(), self.lines), Origin("cluster-1", "unused:1")
        self.ledger = RunningLedger(origin, FakeAdmin(), FakeGroups(), topic, lambda: self.run.now_ms)

    def batch(self, *facts: Fact, **exceptions: Any) -> Scrape:
        self.run.batch(*facts, **exceptions)
        self.batches += 1
        self.coverage.on_batch(self.run.everything)
        is_ready = self.coverage.is_ready
        evidence = self.coverage.evidence
        self.metrics.on_batch(self.batches, self.run.everything, self.ledger, is_ready=is_ready, evidence=evidence)
        return Scrape.of(self.metrics.registry)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_is_well(scene: Scene) -> None:
    assert not scene.coverage.is_ready
    scrape = scene.batch(seen(0, 10, data=5))
    assert scene.coverage.is_ready
    assert scene.coverage.reach == "every transaction is being watched"
    assert scrape.value("unproven_partitions", log="coordinator") == 0


NONE = "no topic that the brokers show to this user matches --topics"
REACHES: dict[tuple[int, int] | None, str] = {
    None: "every transaction is being watched",
    (4, 0): "every transaction is being watched",
    (0, 4): f"transactions are being watched, but {NONE}: all are watched by census only",
    (0, 0): f"no transaction is being watched: {NONE} or --census-topics",
}


@pytest.mark.parametrize(("watched", "reach"), REACHES.items(), ids=str)
def test_a_watch_whose_topics_match_none_is_not_said_to_watch_every_transaction(
    scene: Scene, watched: tuple[int, int] | None, reach: str
) -> None:
    scene.watched = watched
    scene.batch()
    assert scene.coverage.is_ready
    assert scene.coverage.reach == reach


def test_a_hidden_participant_is_not_being_watched(scene: Scene) -> None:
    scrape = scene.batch(notice(NoticeKind.HIDDEN, 0))
    assert scene.coverage.reach == f"transactions are being watched, but nothing is proven on 1 partition: {ORDERS}"
    assert scrape.value("partition_notices_total", kind="hidden") == 1
    scrape = scene.batch(stale_data=frozenset({ORDERS}))
    assert str(ORDERS) in scene.coverage.reach
    assert scrape.value("unproven_partitions", log="data") == 1
    scene.batch()
    assert scene.coverage.reach == "every transaction is being watched"


def test_transactional_data_without_a_coordinators_log_is_reported_once(scene: Scene) -> None:
    scrape = scene.batch(seen(0, 10, data=5), **NO_LOG)
    assert not scene.coverage.is_ready
    assert scrape.value("unproven_partitions", log="coordinator") == 1
    assert scrape.value("unproven_transactions", why="coordinator_log_not_shown") == 1
    scene.batch(**NO_LOG)
    (line,) = scene.lines
    assert "no broker shows __transaction_state: nothing is proven" in line
    scrape = scene.batch()
    assert scene.coverage.is_ready
    assert scene.lines[1:] == ["__transaction_state is shown again, or no data is open any more"]
    assert scrape.value("unproven_partitions", log="coordinator") == 0


def test_a_new_cluster_has_no_verdict(scene: Scene) -> None:
    scene.batch(**NO_LOG)
    assert (scene.lines, scene.coverage.is_ready) == ([], True)


def test_a_census_only_partition_that_is_never_described_is_unproven_from_the_first_round_on(scene: Scene) -> None:
    for _ in range(5):
        scrape = scene.batch(a_round(ORDERS))
        assert scene.coverage.reach == f"transactions are being watched, but nothing is proven on 1 partition: {ORDERS}"
        assert scene.coverage.evidence.unproven == (ORDERS,)
        assert scrape.value("unproven_partitions", log="data") == 1
        assert scrape.value("undescribed_partitions") == 1
    scrape = scene.batch(a_round())
    assert scene.coverage.reach == "every transaction is being watched"
    assert scene.coverage.evidence.unproven == ()
    assert scrape.value("unproven_partitions", log="data") == 0


def test_one_failed_round_of_a_described_partition_is_not_reported(scene: Scene) -> None:
    scene.batch(a_round())
    for rounds in range(40):
        scene.run.pass_time(5_000)
        scrape = scene.batch(a_round(*([ORDERS] if rounds % 2 else [])))
        assert scene.coverage.evidence.unproven == ()
        assert scene.coverage.reach == "every transaction is being watched"
        assert scrape.value("unproven_partitions", log="data") == 0
    assert scene.lines == []


def test_rounds_that_fail_for_half_a_minute_make_a_partition_unproven(scene: Scene) -> None:
    scene.batch(a_round())
    for _ in range(8):
        scene.batch(a_round(ORDERS))
        scene.run.pass_time(5_000)
    assert scene.coverage.evidence.unproven == (ORDERS,)
    assert scene.lines == [f"warning: partitions not described by their leaders, so nothing is proven there: {ORDERS}"]


def test_a_census_of_other_partitions_proves_nothing_about_those_it_did_not_ask(scene: Scene) -> None:
    scene.batch(a_round())
    wanted = CensusTaken({}, frozenset({PAYMENTS}), failed_scanned=frozenset({PAYMENTS}))
    for _ in range(8):
        scene.batch(a_round(ORDERS))
        scrape = scene.batch(wanted)
        assert scrape.value("undescribed_partitions") == 2
        scene.run.pass_time(5_000)
    assert scene.coverage.evidence.unproven == (ORDERS, PAYMENTS)
    scene.batch(wanted)
    assert scene.coverage.evidence.unproven == (ORDERS, PAYMENTS)
    scene.batch(a_round())
    assert scene.coverage.evidence.unproven == (PAYMENTS,), "a round no longer names the other one"


def test_one_leaderless_partition_of_the_log_does_not_keep_a_watch_from_being_ready(scene: Scene) -> None:
    scene.log_ends = {LOG[0]: 10}
    scene.batch(**LEADERLESS)
    assert not scene.coverage.is_ready, "it may still be read"
    assert scene.coverage.evidence.is_log_read, "the other partitions are read"
    scene.run.pass_time(30_000)
    scrape = scene.batch(**LEADERLESS)
    assert scene.coverage.is_ready
    assert scene.coverage.reach == (
        "transactions are being watched, but nothing is proven about the transactional ids in 1 partition of the "
        f"coordinators' log that cannot be read: {LOG[1]}"
    )
    assert scrape.value("ready") == 1
    assert scrape.value("unproven_partitions", log="coordinator") == 1
    scene.batch()
    assert scene.coverage.reach == "every transaction is being watched"


def test_a_watch_is_not_ready_while_more_of_the_log_gets_read(scene: Scene) -> None:
    scene.log_ends = {LOG[0]: 10}
    for unread in range(9, 0, -1):
        scene.batch(stale_coordinator=frozenset(map(log_numbered, range(unread))))
        assert not scene.coverage.is_ready
        scene.run.pass_time(20_000)
    scene.batch()
    assert scene.coverage.is_ready


def test_a_log_of_which_nothing_is_read_makes_no_watch_ready(scene: Scene) -> None:
    scene.log_ends = {LOG[1]: 10}
    for _ in range(10):
        scene.batch(**LEADERLESS)
        scene.run.pass_time(30_000)
        assert not scene.coverage.is_ready
        assert not scene.coverage.evidence.is_log_read


def test_an_election_of_the_log_changes_no_event(scene: Scene) -> None:
    scene.batch()
    for _ in range(2):
        scene.batch(**LEADERLESS)
        assert scene.coverage.evidence.unproven == ()
        assert scene.coverage.evidence.is_log_read
        scene.run.pass_time(10_000)
    scene.run.pass_time(20_000)
    scene.batch(**LEADERLESS)
    assert scene.coverage.evidence.unproven == (LOG[1],)
    assert not scene.coverage.evidence.is_log_read, "it is the only partition"


def test_a_watch_is_ready_once_the_census_was_taken_or_does_not_come(scene: Scene) -> None:
    scene.coverage.awaits_census = True
    scene.batch()
    assert not scene.coverage.is_ready
    scene.batch(a_round(ORDERS))
    assert scene.coverage.is_ready
    waiting = Scene()
    waiting.coverage.awaits_census = True
    waiting.batch()
    waiting.run.pass_time(30_000)
    waiting.batch()
    assert waiting.coverage.is_ready
