"""The registry: everything in the table is scraped, with Prometheus' own parser, and means what the table has."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from importlib.metadata import version

import msgspec
import pytest
from prometheus_client import generate_latest

from support.facts import NAME, ORDERS, PAYMENTS, PRODUCER, START_MS, BucketRun, a_marker, notice, seen, transaction
from support.fake_admin import FakeAdmin
from support.fake_groups import FakeGroups
from support.incidents import OWNER_VALUE, an_event, an_update
from support.log_lines import LogLines
from support.metrics import Scrape
from support.recording_sink import RecordingTopic
from txnwatch.metrics.collector import UP_WITHIN_MS, Metrics
from txnwatch.metrics.table import INITIAL_SERIES, METRICS, Kind
from txnwatch.owners.owner_table import owners_of
from txnwatch.sinks.delivery.outbox import TopicOutbox
from txnwatch.sinks.incidents.run_ledger import RunningLedger
from txnwatch.state.model.completion_latency import Completion
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.facts import Fact, NoticeKind
from txnwatch.state.model.findings import CensusResult, Finding, Mismatch, PartitionAlarm, Unproven, ViewHealed
from txnwatch.state.model.incident import Action, ActionResult, Decision, Refusal
from txnwatch.state.model.transaction import TransactionState as S
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.state.telling.commands import Origin
from txnwatch.streaming.job.checkpoint import Progress, read_progress
from txnwatch.streaming.source.offsets import NotBegun, Position, SourceOffset
from txnwatch.watch.coverage import Coverage, MissingEvidence
from txnwatch.web.server import WebServer

LATER_MS = 60_000


class CollectorWorld:
    """Metrics, a bucket that feeds them, and a clock that the test sets."""

    def __init__(self) -> None:
        self.bucket = BucketRun()
        self.metrics = Metrics(lambda: self.bucket.now_ms)
        self.coverage = Coverage(LogLines(), now_ms=lambda: self.bucket.now_ms)
        self.sink = RecordingTopic()
        self.outbox = TopicOutbox(self.sink, LogLines())
        self.ledger = RunningLedger(
            Origin("cluster-1", "unused:1"), FakeAdmin(), FakeGroups(), self.outbox, lambda: self.bucket.now_ms
        )
        self.batches = 0

    def batch(self, *facts: Fact, more: tuple[Finding, ...] = (), again: bool = False) -> Scrape:
        self.batches += not again
        self.bucket.batch(*facts)
        kinds = {type(finding) for finding in more}
        reported = [*(finding for finding in self.bucket.everything if type(finding) not in kinds), *more]
        self.coverage.on_batch(reported)
        evidence = self.coverage.evidence
        self.metrics.on_batch(self.batches, reported, self.ledger, is_ready=True, evidence=evidence)
        return self.scrape()

    def scrape(self) -> Scrape:
        return Scrape.of(self.metrics.registry)


@pytest.fixture
def world() -> CollectorWorld:
    return CollectorWorld()


def test_no_metric_has_a_name_that_a_client_has_chosen_but_that_of_a_topic(world: CollectorWorld) -> None:
    name, place = "secret" * 5_000, TopicPartition("t" * 249, 0)
    record = transaction(1, S.ONGOING, place, transactional_id=name, start_ms=START_MS - 10 * LATER_MS)
    world.batch(record, seen(0, 10, data=5, partition=place, topic_id="long"))
    world.metrics.on_event(an_event(transactional_id=name, topic=place.topic))
    lines = generate_latest(world.metrics.registry).decode().splitlines()
    assert "secret" not in "".join(lines)
    assert max(map(len, lines)) < 1_000


def test_everything_in_the_table_is_scraped_under_its_name_and_type_and_nothing_else(world: CollectorWorld) -> None:
    world.metrics.progress = lambda: Progress({"addBatch": 1}, {ORDERS: 1}, {ORDERS: 1})
    scrape = world.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    found = {(name, family.type) for name, family in scrape.families.items()}
    expected = {
        (spec.full_name.removesuffix("_total") if spec.kind is Kind.COUNTER else spec.full_name, str(spec.kind))
        for spec in METRICS
    }
    assert found == expected


def test_the_states_of_a_target_are_the_same_in_every_family(world: CollectorWorld) -> None:
    for state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        world.batch(transaction(1, state, ORDERS, record_timestamp_ms=START_MS, coordinator_epoch=3))
    families = world.scrape().families
    found = {
        name: {sample.labels["target_state"] for sample in family.samples}
        for name, family in families.items()
        if any("target_state" in sample.labels for sample in family.samples)
    }
    assert len(found) == sum("target_state" in spec.labels for spec in METRICS)
    assert {frozenset(states) for states in found.values()} == {frozenset({"CompleteCommit", "CompleteAbort"})}


def test_no_counter_has_a_series_for_the_time_of_its_creation(world: CollectorWorld) -> None:
    world.metrics.query_starts(world.ledger)
    samples = {sample.name for family in world.scrape().families.values() for sample in family.samples}
    assert "txnwatch_query_starts_total" in samples
    assert {name for name in samples if name.endswith("_created")} == set()


def test_the_figures_of_the_jvm_are_beside_those_of_the_driver(world: CollectorWorld) -> None:
    names = ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds")
    before = generate_latest(world.metrics.registry).decode()
    assert all(f"\nprocess_{name} " in before for name in names)
    assert "jvm" not in before
    world.metrics.jvm_pid = os.getpid()  # stands for it
    scrape = world.scrape()
    assert all((scrape.value(f"jvm_process_{name}") or 0) > 0 for name in names)


def test_names_are_in_base_units_and_no_label_is_an_id() -> None:
    for spec in METRICS:
        assert spec.name.endswith("_total") == (spec.kind is Kind.COUNTER), spec.name
        assert not spec.name.endswith(("_ms", "_milliseconds", "_mb", "_minutes")), spec.name
        assert not {label for label in spec.labels if label.endswith("_id")} - {"cluster_id"}, spec.name


def test_a_transactional_id_and_a_producer_id_are_nowhere(world: CollectorWorld) -> None:
    world.batch(transaction(1, S.ONGOING, ORDERS, producer_id=4711), seen(0, 10, data=5, producer_id=4711))
    world.bucket.pass_time(LATER_MS)
    world.metrics.on_event(an_event(transactional_id=NAME, producer_id=4711))
    assert not world.batch().label_values() & {NAME, "4711"}


def test_a_pinned_partition_is_shown_while_it_is_pinned_and_not_after(world: CollectorWorld) -> None:
    world.metrics.progress = lambda: Progress({}, {ORDERS: 25}, {ORDERS: 22})
    scrape = world.batch(transaction(1, S.ONGOING, ORDERS), seen(0, 10, data=5))
    assert scrape.value("lso_pinned_seconds", topic="orders", partition="0") is None, "not yet: most are over by then"
    world.bucket.pass_time(LATER_MS)
    scrape = world.batch()
    age_s = (world.bucket.now_ms - START_MS) / 1000
    assert scrape.value("lso_pinned_seconds", topic="orders", partition="0") == age_s
    assert scrape.value("hidden_records", topic="orders", partition="0") == 20
    assert scrape.value("oldest_open_transaction_seconds") == age_s
    assert scrape.value("transactions", state="Ongoing") == 1
    assert scrape.value("source_lag_offsets") == 3
    world.bucket.pass_time(1_000)
    assert world.scrape().value("lso_pinned_seconds", topic="orders", partition="0") == age_s + 1, (
        "ages grow by themselves"
    )
    scrape = world.batch(transaction(2, S.COMPLETE_ABORT), seen(10, 30, marker=a_marker(20)))
    assert scrape.value("lso_pinned_seconds", topic="orders", partition="0") is None
    assert (scrape.value("transactions", state="Ongoing"), scrape.value("oldest_open_transaction_seconds")) == (0, 0)


def test_the_lowest_open_data_pins_a_partition(world: CollectorWorld) -> None:
    world.metrics.progress = lambda: Progress({}, {ORDERS: 25}, {ORDERS: 25})
    world.batch(
        seen(0, 10, data=5, producer_id=8, listed_ms=START_MS + 600), seen(0, 10, data=3, listed_ms=START_MS + 500)
    )
    world.bucket.pass_time(LATER_MS)
    assert world.batch().value("hidden_records", topic="orders", partition="0") == 22


def test_stages_of_the_coordinators_work_are_cumulative_histograms_by_target_state(world: CollectorWorld) -> None:
    world.batch(transaction(1, S.PREPARE_COMMIT, ORDERS, record_timestamp_ms=START_MS, coordinator_epoch=3))
    scrape = world.scrape()
    assert scrape.value("transactions_pending_markers", target_state="CompleteCommit") == 1
    assert scrape.value("oldest_pending_transaction_seconds") == 0.5
    end = Completion(S.COMPLETE_COMMIT, START_MS + 40, START_MS + 8, 3)
    complete = transaction(2, S.COMPLETE_COMMIT, record_timestamp_ms=START_MS + 40)
    scrape = world.batch(msgspec.structs.replace(complete, first_end=end))
    labels = {"target_state": "CompleteCommit"}
    assert scrape.value("transaction_completion_seconds_sum", **labels) == 0.04
    assert [
        scrape.value("transaction_completion_seconds_bucket", le=le, **labels) for le in ("0.025", "0.05", "+Inf")
    ] == [
        0,
        1,
        1,
    ]
    assert scrape.value("transaction_state_append_seconds_sum", target_state="CompleteCommit") == 0.008
    assert scrape.value("transaction_marker_completion_seconds_count", **labels) == 1
    assert scrape.value("transaction_failover_completion_seconds_count", **labels) == 0
    assert scrape.value("oldest_pending_transaction_seconds") == 0


def test_a_counter_has_a_zero_before_its_first_count(world: CollectorWorld) -> None:
    world.metrics.query_starts(world.ledger)
    before = world.scrape()
    assert before.value("sink_failures_total", sink=world.sink.name) == 0
    assert before.value("detection_latency_seconds_count", verdict="stray_write") == 0
    assert before.value("transaction_state_append_seconds_count", target_state="CompleteAbort") == 0
    for verdict in Verdict:
        for status in ("opened", "updated", "resolved"):
            assert before.value("events_total", verdict=verdict, status=status) == 0
    world.metrics.on_event(an_event(verdict="stray_write"))
    assert world.scrape().value("events_total", verdict="stray_write", status="opened") == 1


def test_no_series_from_the_start_has_labels_that_nothing_counts_under() -> None:
    spec = {metric.name: metric for metric in METRICS}
    for name, series in INITIAL_SERIES.items():
        assert {len(labels) for labels in series} == {len(spec[name].labels)}, name
        assert len(set(series)) == len(series), name


def test_a_batch_that_runs_again_is_counted_once(world: CollectorWorld) -> None:
    alarm = PartitionAlarm(notice(NoticeKind.GAP, 3))
    for again in (False, True):
        scrape = world.batch(more=(alarm,), again=again)
        assert scrape.value("partition_notices_total", kind="gap") == 1
        assert scrape.value("batches_total") == 1
    assert world.batch(more=(alarm,)).value("partition_notices_total", kind="gap") == 2


def test_evidence_that_is_missing_is_visible(world: CollectorWorld) -> None:
    undecoded = msgspec.structs.replace(
        notice(NoticeKind.GAP, 3), detail="the batch at offset 3: magic 9", is_decode_failure=True
    )
    log = TopicPartition(TRANSACTION_STATE_TOPIC, 3)
    scrape = world.batch(
        undecoded,
        more=(
            Unproven((ORDERS, log)),
            CensusResult((ORDERS,)),
            ViewHealed(ORDERS, PRODUCER, 5, Mismatch.CLOSED),
        ),
    )
    assert scrape.value("decode_failures_total") == 1
    assert scrape.value("unread_gaps") == 1
    assert scrape.value("unproven_partitions", log="data") == 1
    assert scrape.value("unproven_partitions", log="coordinator") == 1
    assert scrape.value("undescribed_partitions") == 1
    assert scrape.value("census_rounds_total", result="incomplete") == 1
    assert scrape.value("view_mismatches_total", mismatch="closed") == 1
    scrape = world.batch(more=(Unproven(()), CensusResult(())))
    assert scrape.value("unproven_partitions", log="data") == 0
    assert scrape.value("undescribed_partitions") == 0


def test_up_is_a_barrier_evaluated_a_moment_ago(world: CollectorWorld) -> None:
    assert world.scrape().value("up") == 0
    assert world.scrape().value("source_lag_seconds") is None, "not known is absent"
    assert world.batch().value("up") == 1
    world.bucket.pass_time(UP_WITHIN_MS - 1)  # the barrier was listed 1 ms before its evaluation ended
    assert world.scrape().value("up") == 1
    world.bucket.pass_time(1)
    assert world.scrape().value("up") == 0
    assert (world.scrape().value("source_lag_seconds") or 0) > UP_WITHIN_MS / 1000


@pytest.mark.parametrize(("name", "label"), [("payments-eu", "payments-eu"), (None, "cluster-1")])
def test_the_name_of_the_cluster_is_a_label_of_the_info_only(
    world: CollectorWorld, name: str | None, label: str
) -> None:
    world.metrics.cluster_id, world.metrics.cluster_name = "cluster-1", name
    scrape = world.batch()
    assert scrape.value("build_info", version=version("txnwatch"), cluster_id="cluster-1", cluster_name=label) == 1
    assert [spec.name for spec in METRICS if "cluster_name" in spec.labels] == ["build_info"]


def test_who_speaks_is_known_by_the_group_whose_lease_decides(world: CollectorWorld) -> None:
    world.metrics.lease_group = "txnwatch-speaker-1-2"
    assert (world.scrape().value("speaks"), world.batch().value("speaks", group="txnwatch-speaker-1-2")) == (None, 0)
    world.ledger.on_batch([])
    assert world.batch().value("speaks", group="txnwatch-speaker-1-2") == 1


def test_the_picture_is_as_old_as_the_last_listing_that_was_read_to_its_ends(world: CollectorWorld) -> None:
    world.batch()
    listed_ms = world.bucket.now_ms - 1
    world.bucket.pass_time(LATER_MS)
    world.bucket.batch(limited_data=frozenset({ORDERS}))
    world.metrics.on_batch(2, world.bucket.everything, world.ledger, is_ready=True, evidence=MissingEvidence())
    assert world.scrape().value("source_lag_seconds") == (world.bucket.now_ms - listed_ms) / 1000
    assert (world.batch().value("source_lag_seconds") or 1) < 1


def test_incidents_confirmations_and_sinks_come_from_the_ledger(world: CollectorWorld) -> None:
    event = an_event(verdict="hanging", status="opened", detection_latency_ms=1_100)
    world.ledger.remember([replace(event, cluster_id="cluster-1")])
    world.metrics.on_event(event)
    world.ledger.counts["hanging:confirmed"] += 2
    world.sink.is_away = True
    world.outbox.put([event])
    world.outbox.deliver(world.bucket.now_ms)
    scrape = world.batch()
    assert scrape.value("open_incidents", verdict="hanging", severity="critical", owner="none") == 1
    assert scrape.value("events_total", verdict="hanging", status="opened") == 1
    assert scrape.value("detection_latency_seconds_bucket", verdict="hanging", le="1.0") == 0
    assert scrape.value("detection_latency_seconds_bucket", verdict="hanging", le="1.5") == 1
    assert scrape.value("confirmations_total", verdict="hanging", answer="confirmed") == 2
    assert scrape.value("sink_waiting_events", sink=world.sink.name) == 1
    assert scrape.value("sink_failures_total", sink=world.sink.name) == 1
    world.ledger.counts.clear()  # as a ledger that was opened again
    world.ledger.counts["hanging:confirmed"] += 1
    assert world.batch().value("confirmations_total", verdict="hanging", answer="confirmed") == 3


def test_open_incidents_are_counted_by_owner_and_a_series_ends_at_zero(world: CollectorWorld) -> None:
    table = owners_of({"owner": [{"team": "checkout", "transactional_ids": ["checkout-*"]}]}, "file")
    world.ledger.ledger.book.origin = replace(world.ledger.origin, owners=table)
    forged = {**OWNER_VALUE, "team": "forged"}
    event = an_event(verdict="hanging", transactional_id="checkout-7", cluster_id="cluster-1", owner=forged)
    world.ledger.remember([event])
    labels = {"verdict": "hanging", "severity": "critical"}
    scrape = world.batch()
    assert scrape.value("open_incidents", **labels, owner="checkout") == 1
    assert scrape.value("open_incidents", **labels, owner="none") == 0
    assert scrape.value("open_incidents", **labels, owner="forged") is None
    world.ledger.ledger.store.known.clear()
    assert world.batch().value("open_incidents", **labels, owner="checkout") == 0


def test_progress_is_what_spark_reports() -> None:
    offset = SourceOffset(
        "c",
        3,
        1,
        2,
        {ORDERS: Position("id", 7, 0, 10, leader=1), TopicPartition("new", 0): NotBegun("n")},
    )
    progress = {"durationMs": {"addBatch": 30}, "sources": [{"endOffset": offset.to_json()}]}
    assert read_progress(progress) == Progress({"addBatch": 30}, {ORDERS: 10}, {ORDERS: 7})
    assert read_progress(None) is None
    assert read_progress({"sources": [], "durationMs": {}}) is None


@pytest.fixture
def served(world: CollectorWorld) -> Iterator[str]:
    with closing(WebServer(world.metrics.registry, "127.0.0.1", 0, lambda: world.metrics.is_judging)) as server:
        yield server.url


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10.0) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        exc.close()
        return exc.code


def test_a_scrape_over_http_and_the_answers_to_probes(world: CollectorWorld, served: str) -> None:
    assert Scrape.at(f"{served}/metrics").value("up") == 0
    assert [status(f"{served}{path}") for path in ("/-/healthy", "/-/ready", "/elsewhere")] == [200, 503, 404]
    world.batch()
    assert Scrape.at(f"{served}/metrics").value("up") == 1
    assert status(f"{served}/-/ready") == 200


def test_a_port_that_is_taken_is_an_error_with_its_name(world: CollectorWorld, served: str) -> None:
    port = int(served.rpartition(":")[2])
    with pytest.raises(ConfigError, match=rf"http_port: .*127\.0\.0\.1:{port}"):
        WebServer(world.metrics.registry, "127.0.0.1", port, lambda: True)


def test_each_decision_is_counted_once_however_many_events_repeat_it(world: CollectorWorld) -> None:
    event = an_event(verdict="hanging", status="opened")
    action = Action(decision=Decision.ABORT, by="here", at_ms=1)
    announced = an_update(event, event.time_ms + 1, action=action)
    done = an_update(announced, event.time_ms + 2, action=replace(action, result=ActionResult.VERIFIED))
    updated_again = an_update(done, event.time_ms + 3, hidden_records=1_000)
    for one in (event, announced, done, updated_again):
        world.metrics.on_event(one)
    scrape = world.batch()
    assert scrape.value("abort_decisions_total", decision="abort", result="none") == 1
    assert scrape.value("abort_decisions_total", decision="abort", result="verified") == 1


def test_a_decision_from_before_a_restart_is_not_counted_again(world: CollectorWorld) -> None:
    event = replace(an_event(), cluster_id="cluster-1")
    refused = Action(decision=Decision.REFUSED, refusal=Refusal.OUTCOME_UNKNOWN, by="here", at_ms=1)
    reported = an_update(event, event.time_ms + 1, action=refused)
    world.ledger.remember([reported])
    world.metrics.query_starts(world.ledger)
    world.metrics.on_event(an_update(reported, event.time_ms + 2, hidden_records=1_000))
    assert world.scrape().value("abort_decisions_total", decision="refused", result="outcome_unknown") == 0


def test_of_an_incident_that_another_instance_has_ended_nothing_is_kept(world: CollectorWorld) -> None:
    for number in range(100):
        world.metrics.on_event(an_event(f"incident-{number}"))
    world.batch()
    assert world.metrics._acted == {}


def test_offsets_that_a_task_has_left_do_not_count_as_read() -> None:
    progress = Progress({}, {ORDERS: 25, PAYMENTS: 10}, {ORDERS: 20, PAYMENTS: 10})
    assert [progress.lag_offsets(left) for left in ({}, {ORDERS: 22}, {ORDERS: 5}, {PAYMENTS: 1})] == [5, 5, 20, 14]
