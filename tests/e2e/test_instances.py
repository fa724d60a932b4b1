"""Two instances on one events topic, in Confluent framing: one life for each incident, and few events in it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.redis_view import RedisView
from support.registry import SchemaRegistry
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import RegistryCodec
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

VERDICT_S, UPDATE_S = 30.0, 60.0


@pytest.fixture
def partition(cluster: Cluster) -> TopicPartition:
    (created,) = create_topic(cluster, unique("shared"))
    return created


@pytest.fixture
def traffic(kafka: EmbeddedKafka, partition: TopicPartition) -> Iterator[None]:
    """Some records a second, and a read_committed consumer of group `billing`."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "billing",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
        }
    )
    consumer.subscribe([partition.topic])

    def work() -> None:
        while not stop.wait(0.1):
            producer.produce(partition.topic, value=b"healthy")
            producer.poll(0)
            consumer.poll(0.05)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join()
    producer.flush(5.0)
    consumer.close()


@pytest.mark.long
@pytest.mark.usefixtures("traffic")
def test_two_instances_publish_one_incident_name_the_affected_groups_and_fill_an_emptied_redis(
    kafka: EmbeddedKafka,
    cluster: Cluster,
    redis_server: EmbeddedRedis,
    registry: SchemaRegistry,
    partition: TopicPartition,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = unique("shared.events")
    flags = (
        *("--events-topic", topic, "--redis-url", redis_server.url, "--schema-registry-url", registry.url),
        *("--topics", partition.topic, "--census-topics", partition.topic, "--trigger-ms", "1000"),
    )
    codec = RegistryCodec({"url": registry.url}, topic)

    def published() -> list[IncidentEvent]:
        """As a consumer sees it that keeps `ce_id`."""
        found = read_events({"bootstrap.servers": kafka.bootstrap_servers}, topic, decode=codec.decode)
        events = [event for event in found if isinstance(event, IncidentEvent)]
        return list({event.event_id: event for event in reversed(events)}.values())[::-1]

    def until(seen: Callable[[list[IncidentEvent]], bool], timeout_s: float, what: str) -> list[IncidentEvent]:
        return eventually(lambda: found if seen(found := published()) else [], timeout_s, what)

    def a_watch() -> RunningWatch:
        return RunningWatch(kafka.bootstrap_servers, tmp_path_factory.mktemp("checkpoint"), *flags)

    with closing(codec), a_watch() as one, a_watch() as two:
        one.until_ready()
        two.until_ready()
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        (opened, *_) = until(bool, VERDICT_S, "the incident")
        updates = until(lambda events: any(map(is_stopped, events)), UPDATE_S, "the group that stands still")
        assert [event.sequence for event in updates] == list(range(1, len(updates) + 1))

        with closing(RedisView(redis_server.url, opened.cluster_id)) as view:
            view.empty()
            status = ["status", "--redis-url", redis_server.url, "--fail-on-found"]
            eventually(lambda: main(status) == 3, 20.0, "Redis to be filled again")
            assert view.hash(opened.incident_id)

        abort_by_hand(cluster, partition, producer.producer_id)
        life = until(lambda events: events[-1].status == "resolved", VERDICT_S, "the end")
        assert [event.status for event in life] == ["opened", *["updated"] * (len(life) - 2), "resolved"]
        assert {event.incident_id for event in life} == {opened.incident_id}
        assert len(life) <= 5
        assert life[-1].resolution is not None
        assert (life[-1].resolution.how, life[-1].resolution.by) == ("aborted", "administrator")
        assert not [line for line in one.lines + two.lines if "the query ended" in line or "Traceback" in line]


def is_stopped(event: IncidentEvent) -> bool:
    return ("billing", "stopped") in [(group.group_id, group.state) for group in event.consumer_groups]
