"""The whole job on a real Kafka, a Redis and a web hook: silence for the healthy, a name for the hung, nothing lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.metrics import Scrape
from support.push_world import ids_of
from support.raw_producer import RawProducer
from support.redis_view import RedisView
from support.servers import connect
from support.shared_watch import EVENTS, SharedWatch
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.admin.transactions import ClusterAdmin
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.applications import exactly_once_copier, idempotent_writer, transactional_writer

VERDICT_S = 30.0
SILENT_S = 25.0


@pytest.fixture
def cluster(shared_watch: SharedWatch) -> Iterator[Cluster]:
    """Fresh connections to the cluster of the watch."""
    with closing(connect(shared_watch.kafka)) as found:
        yield found


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("e2e"))
    return created


def opened(shared_watch: SharedWatch, partition: TopicPartition) -> IncidentEvent:
    events = eventually(
        lambda: events_about(shared_watch.kafka.bootstrap_servers, partition, EVENTS),
        VERDICT_S,
        f"an incident about {partition}",
    )
    return events[0]


def redis_hash(shared_watch: SharedWatch, event: IncidentEvent) -> dict[str, str]:
    client: Any = redis.Redis.from_url(shared_watch.redis.url, decode_responses=True)
    held: dict[str, str] = client.hgetall(f"txnwatch:{{{event.cluster_id}}}:incident:{event.incident_id}")
    client.close()
    return held


def test_a_late_write_is_named_on_the_topic_and_in_redis_and_resolved_by_its_marker(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = late_write_after_abort(cluster, unique("zombie"), partition)
    event = opened(shared_watch, partition)
    assert (event.verdict, event.reason) == ("hanging", "already_completed")
    assert (event.transactional_id, event.producer_id) == (producer.transactional_id, producer.producer_id)
    assert (event.txn_start_offset, event.last_stable_offset, event.high_watermark, event.hidden_records) == (
        2,
        2,
        3,
        1,
    )
    assert event.is_lso_blocker is True
    assert event.expected_outcome == "none"
    assert event.evidence.complete is True
    held = eventually(lambda: redis_hash(shared_watch, event), VERDICT_S, "the incident in Redis")
    assert (held["status"], held["transactional_id"]) == ("opened", producer.transactional_id)

    abort_by_hand(cluster, partition, producer.producer_id)

    def both() -> list[IncidentEvent]:
        found = events_about(shared_watch.kafka.bootstrap_servers, partition, EVENTS)
        return found if len(found) == 2 else []

    assert statuses(eventually(both, VERDICT_S, "the end of the incident")) == ["opened", "resolved"]
    resolved = both()[-1]
    assert resolved.resolution is not None
    assert (resolved.resolution.how, resolved.resolution.marker_offset) == ("aborted", 3)
    eventually(lambda: redis_hash(shared_watch, event)["status"] == "resolved", VERDICT_S, "resolved in Redis")
    assert any(producer.transactional_id in line and "RESOLVED" in line for line in shared_watch.watch.lines)


def test_a_hang_is_in_the_scrape_while_it_lasts_and_gone_after_it(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    where = {"topic": partition.topic, "partition": str(partition.partition)}
    before = Scrape.at(shared_watch.watch.metrics_url)
    assert (before.value("up"), before.value("ready")) == (1, 1)
    assert before.value("lso_pinned_seconds", **where) is None

    def open_hangs(scrape: Scrape) -> float:
        return scrape.value("open_incidents", verdict="hanging", severity="critical", owner="none") or 0.0

    producer = late_write_after_abort(cluster, unique("zombie"), partition)
    event = opened(shared_watch, partition)

    def pinned() -> Scrape | None:
        scrape = Scrape.at(shared_watch.watch.metrics_url)
        return scrape if scrape.value("hidden_records", **where) is not None else None

    scrape = eventually(pinned, VERDICT_S, "the partition in the scrape")
    assert scrape is not None
    assert scrape.value("hidden_records", **where) == 1
    assert (scrape.value("lso_pinned_seconds", **where) or 0) >= 2
    assert open_hangs(scrape) == open_hangs(before) + 1
    assert (scrape.value("transactions", state="unowned") or 0) >= 1
    labels = {"verdict": "hanging", "answer": "confirmed"}
    assert (scrape.value("confirmations_total", **labels) or 0) > (before.value("confirmations_total", **labels) or 0)
    assert (scrape.value("detection_latency_seconds_count", verdict="hanging") or 0) >= 1
    assert not scrape.label_values() & {producer.transactional_id, str(producer.producer_id)}

    with closing(RedisView(shared_watch.redis.url, event.cluster_id)) as view:

        def is_shown() -> bool:
            return producer.transactional_id in {member["transactional_id"] for member, _ in view.open_transactions()}

        eventually(is_shown, VERDICT_S, "the open transaction in Redis")
        abort_by_hand(cluster, partition, producer.producer_id)

        def released() -> bool:
            scrape = Scrape.at(shared_watch.watch.metrics_url)
            return scrape.value("lso_pinned_seconds", **where) is None and open_hangs(scrape) == open_hangs(before)

        eventually(released, VERDICT_S, "the hang to leave the scrape")
        eventually(lambda: not is_shown(), VERDICT_S, "the transaction to leave Redis")


def test_transactions_that_end_are_timed_in_every_stage(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    def count(scrape: Scrape, stage: str, state: str) -> float:
        return scrape.value(f"transaction_{stage}_seconds_count", target_state=state) or 0.0

    before = Scrape.at(shared_watch.watch.metrics_url)
    for commit in (True, False, True):
        producer = RawProducer(cluster, unique("timed")).init()
        producer.add(partition)
        producer.produce(partition)
        producer.end(commit=commit)
    expected = {
        ("completion", "CompleteCommit"): 2,
        ("completion", "CompleteAbort"): 1,
        ("state_append", "CompleteCommit"): 2,
        ("marker_completion", "CompleteAbort"): 1,
        ("failover_completion", "CompleteCommit"): 0,
    }

    def timed() -> bool:
        now = Scrape.at(shared_watch.watch.metrics_url)
        return all(count(now, *key) - count(before, *key) == number for key, number in expected.items())

    eventually(timed, VERDICT_S, "three transactions in the scrape")
    now = Scrape.at(shared_watch.watch.metrics_url)
    assert (now.value("transaction_completion_seconds_sum", target_state="CompleteCommit") or 0) < 60
    assert (now.value("jvm_process_resident_memory_bytes") or 0) > 100_000_000, "the JVM of Spark, beside the driver"
    assert (now.value("source_lag_seconds") or 99) < 10
    assert now.value("source_lag_offsets") is not None


def test_a_stray_write_of_a_transaction_that_never_began(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    producer = RawProducer(cluster, unique("stray")).init()
    producer.produce(partition)
    event = opened(shared_watch, partition)
    assert (event.reason, event.transactional_id) == ("not_started", producer.transactional_id)
    assert shared_watch.watch.lines


def test_healthy_applications_are_never_mentioned(shared_watch: SharedWatch, cluster: Cluster) -> None:
    source, target = unique("healthy"), unique("healthy")
    slow, *_ = create_topic(cluster, source, 3)
    create_topic(cluster, target, 2)
    bootstrap = shared_watch.kafka.bootstrap_servers
    before, warned = len(events_of(bootstrap, EVENTS)), shared_watch.watch.warnings
    applications = [
        transactional_writer(bootstrap, unique("writer"), source, abort_every=2, pause_s=0.02),
        transactional_writer(bootstrap, unique("writer"), source, abort_every=5, pause_s=0.3),
        exactly_once_copier(bootstrap, unique("copier"), source, target, pause_s=0.05),
        idempotent_writer(bootstrap, unique("audit"), source, pause_s=0.05),
    ]
    timed_out = RawProducer(cluster, unique("slow"), timeout_ms=3_000).init()
    timed_out.add(slow)
    timed_out.produce(slow)
    for application in applications:
        application.start()

    def is_aborted() -> bool:
        reading = ClusterAdmin(cluster).read_partitions([slow])[slow]
        return reading.problem is None and reading.open_transaction(timed_out.producer_id) is None

    def have_worked() -> bool:
        return any(one.error for one in applications) or min(one.steps for one in applications) > 10

    eventually(is_aborted, 60.0, "the coordinator to abort what has timed out")
    eventually(have_worked, 60.0, "some steps of each application")
    for application in applications:
        application.stop()
    assert [application.error for application in applications] == [None] * len(applications)
    (last,) = create_topic(cluster, unique("e2e"))
    late_write_after_abort(cluster, unique("zombie"), last)
    opened(shared_watch, last)
    assert {(event.topic, event.partition) for event in events_of(bootstrap, EVENTS)[before:]} == {last}
    assert shared_watch.watch.warnings == warned


def test_redis_away_the_topic_gets_its_events_and_redis_catches_up(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    shared_watch.redis.stop()
    try:
        shared_watch.watch.until("what it shows is not up to date until it answers", timeout_s=SILENT_S)
        late_write_after_abort(cluster, unique("zombie"), partition)
        event = opened(shared_watch, partition)
        shared_watch.watch.until("are kept and delivered later")
    finally:
        shared_watch.redis.start()
    eventually(lambda: redis_hash(shared_watch, event).get("status") == "opened", 60.0, "Redis to catch up")
    shared_watch.watch.until("works again: all kept events are delivered")
    shared_watch.watch.until("answers again", timeout_s=VERDICT_S)


@pytest.mark.long
def test_a_broker_that_goes_away_and_comes_back_kills_nothing(
    shared_watch: SharedWatch, partition: TopicPartition
) -> None:
    shared_watch.kafka.broker(1).kill()
    shared_watch.watch.until("no broker of", timeout_s=60.0)
    shared_watch.kafka.start_broker(1)
    shared_watch.watch.until("micro-batches complete again", timeout_s=60.0)
    with closing(connect(shared_watch.kafka)) as cluster:
        late_write_after_abort(cluster, unique("zombie"), partition)
    assert opened(shared_watch, partition).reason == "already_completed"
    assert not [line for line in shared_watch.watch.lines if "the query ended" in line]


def test_kill_9_loses_nothing_and_repeats_nothing(
    shared_watch: SharedWatch, cluster: Cluster, partition: TopicPartition
) -> None:
    other, third = create_topic(cluster, unique("e2e"), 2)
    before = len(events_of(shared_watch.kafka.bootstrap_servers, EVENTS))
    late_write_after_abort(cluster, unique("zombie"), partition)
    opened(shared_watch, partition)
    late_write_after_abort(cluster, unique("zombie"), other)
    shared_watch.watch.kill()
    assert len(events_about(shared_watch.kafka.bootstrap_servers, other, EVENTS)) <= 1
    shared_watch.watch.start().until_ready()
    opened(shared_watch, other)
    late_write_after_abort(cluster, unique("zombie"), third)
    opened(shared_watch, third)
    new = events_of(shared_watch.kafka.bootstrap_servers, EVENTS)[before:]
    assert [(event.topic, event.partition, event.status) for event in new] == [
        (*at, "opened") for at in (partition, other, third)
    ]
    eventually(
        lambda: new[-1].event_id in ids_of(shared_watch.receiver.taken), VERDICT_S, "the last event at the web hook"
    )
    told = [event.event_id for event in new]
    pushed = Counter(one for one in ids_of(shared_watch.receiver.taken) if one in told)
    assert list(pushed) == told
    assert pushed.total() - len(pushed) <= 1, "the delivery that was under way at the kill"


def test_sigterm_to_the_whole_group_stops_between_batches(shared_watch: SharedWatch) -> None:
    assert shared_watch.watch.stop_group() == 0
    assert "stopped" in shared_watch.watch.lines[-1]
    assert not [line for line in shared_watch.watch.lines if "Traceback" in line or "Exception" in line]


@pytest.mark.long
def test_the_end_that_nobody_watches_is_published_after_a_second_kill(
    shared_watch: SharedWatch, cluster: Cluster, tmp_path: Path, partition: TopicPartition
) -> None:
    bootstrap, topic = shared_watch.kafka.bootstrap_servers, unique("e2e.events")
    other, third, fourth = create_topic(cluster, unique("e2e"), 3)
    both = f"{partition.topic}|{other.topic}"
    # The census finds what other tests have left hanging, as it should; here it would be taken for a repetition.
    flags = ("--events-topic", topic, "--topics", both, "--census-topics", both)

    def hangs(at: TopicPartition) -> RawProducer:
        return late_write_after_abort(cluster, unique("zombie"), at)

    def said(*partitions: TopicPartition) -> list[list[str]]:
        return [statuses(events_about(bootstrap, at, topic)) for at in partitions]

    with RunningWatch(bootstrap, tmp_path, *flags) as running:
        running.until_ready()
        hangs(partition)
        eventually(lambda: events_about(bootstrap, partition, topic), VERDICT_S, "the first incident")
        producer = hangs(other)
        running.kill()
        running.start().until_ready()
        eventually(lambda: events_about(bootstrap, other, topic), VERDICT_S, "the verdict that was pending")
        hangs(third)
        eventually(lambda: events_about(bootstrap, third, topic), VERDICT_S, "a verdict after it")
        assert said(partition, other, third) == [["opened"]] * 3
        assert len(events_of(bootstrap, topic)) == 3
        running.kill()
        abort_by_hand(cluster, other, producer.producer_id)
        running.start().until_ready()
        eventually(lambda: len(events_about(bootstrap, other, topic)) == 2, VERDICT_S, "the end that was missed")
        hangs(fourth)
        eventually(lambda: events_about(bootstrap, fourth, topic), VERDICT_S, "a verdict after it")
        assert said(other, partition, third, fourth) == [["opened", "resolved"], *[["opened"]] * 3]
        assert running.stop() == 0
