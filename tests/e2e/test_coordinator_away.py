"""A part of the coordinators' log has no leader: what was read of it before shows whose a producer id is."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.kafka_faults import LONG_TIMEOUT_MS, late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import await_leader, coordinated_by, create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.cli.main import main
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, set_verification

pytestmark = pytest.mark.long

NAME = "coordinator-away"
STAYS, AWAY = 1, 2
REPORTED_S = 120.0
IN_TIME_S = 20.0  # three seconds on an idle machine; the broker is away for longer in any case


@dataclass(frozen=True)
class Scene:
    """Transactions of ids of both brokers, on partitions that broker STAYS leads. No log is copied.

    Attributes:
        lost: the partitions of the coordinators' log that nobody leads once AWAY is dead.
        hanging: a late write of an id that STAYS coordinates, and that was idle when reading began.
        idle: a producer of another such id; nothing of it hangs yet on `late`.
        active: a partition on which nothing was written.
        unread: a late write of an id that AWAY coordinates.
        healthy: an open transaction of an id that AWAY coordinates.
    """

    kafka: EmbeddedKafka
    cluster: Cluster
    lost: tuple[TopicPartition, ...]
    hanging: TopicPartition
    late: TopicPartition
    idle: RawProducer
    active: TopicPartition
    unread: TopicPartition
    healthy: TopicPartition

    def lose(self) -> None:
        """AWAY dies, and nobody leads its partitions of the log."""
        self.kafka.broker(AWAY).kill()
        for partition in self.lost:
            await_leader(self.cluster, partition, None)

    def events_of(self, partition: TopicPartition) -> list[IncidentEvent]:
        return events_about(self.kafka.bootstrap_servers, partition)

    def first_event_of(self, partition: TopicPartition) -> IncidentEvent:
        eventually(lambda: self.events_of(partition), REPORTED_S, f"an event about {partition}")
        return self.events_of(partition)[0]


def a_transaction(cluster: Cluster, partition: TopicPartition) -> RawProducer:
    """The producer of an id that STAYS coordinates, after a committed transaction."""
    producer = RawProducer(cluster, coordinated_by(cluster, STAYS)).init()
    producer.add(partition)
    producer.produce(partition)
    producer.end(commit=True)
    await_end(cluster, producer, partition)
    return producer


def told_after_s(scene: Scene, producer: RawProducer, partition: TopicPartition) -> float:
    """How long after a late write the event of its hang was made, under the right id; all clocks are this machine's."""
    written_s = time.time()
    producer.produce(partition, [b"too late"])
    event = scene.first_event_of(partition)
    assert (event.verdict, event.reason) == ("hanging", "already_completed")
    assert event.transactional_id == producer.transactional_id
    return event.time_ms / 1000 - written_s


@pytest.fixture
def scene(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp(NAME)
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory, brokers=2))
    set_verification(kafka.bootstrap_servers, [STAYS, AWAY], enabled=False)
    create_coordinators(kafka)
    with contextlib.closing(connect(kafka)) as cluster:
        hanging, late, unread, healthy, active = create_topic(cluster, unique("away"), replicas=[[STAYS]] * 5)
        late_write_after_abort(cluster, coordinated_by(cluster, STAYS), hanging)
        late_write_after_abort(cluster, coordinated_by(cluster, AWAY), unread)
        idle = a_transaction(cluster, late)
        owner = RawProducer(cluster, coordinated_by(cluster, AWAY), LONG_TIMEOUT_MS).init()
        owner.add(healthy)
        owner.produce(healthy)
        log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
        led = (number for number, info in log.items() if info.leader == AWAY)
        lost = tuple(TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in led)
        yield Scene(kafka, cluster, lost, hanging, late, idle, active, unread, healthy)
    clusters.end(NAME)


def undecided(scene: Scene, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What `status` says is not checked, with the reasons."""
    capsys.readouterr()
    main(["status", "--bootstrap-server", scene.kafka.bootstrap_servers, "--format", "json"])
    return {one["what"]: one["why"] for one in json.loads(capsys.readouterr().out)["not_checked"]}


def test_a_hang_of_another_part_is_told_in_time_if_all_parts_were_read_before(scene: Scene, tmp_path: Path) -> None:
    with RunningWatch(scene.kafka.bootstrap_servers, tmp_path / "checkpoint") as watch:
        watch.until_ready()
        for partition in (scene.hanging, scene.unread):
            scene.first_event_of(partition)
        active = a_transaction(scene.cluster, scene.active)
        scene.lose()
        took_s = [told_after_s(scene, active, scene.active), told_after_s(scene, scene.idle, scene.late)]
        assert max(took_s) < IN_TIME_S, took_s
        assert scene.events_of(scene.healthy) == []


def test_what_only_a_listing_can_tell_is_unproven_until_all_ids_can_be_listed(
    scene: Scene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scene.lost
    scene.lose()
    with RunningWatch(scene.kafka.bootstrap_servers, tmp_path / "checkpoint") as watch:
        why = watch.until(f"hanging {scene.hanging}@2")
        assert "can be neither confirmed nor refuted now" in why
        assert TRANSACTION_STATE_TOPIC in why
        assert f"has no leader: its ids cannot be listed until one of its replicas is back: broker {AWAY}" in why
        scene.idle.produce(scene.late, [b"too late"])
        watch.until(f"hanging {scene.late}@2")
        everywhere = (scene.hanging, scene.late, scene.unread, scene.healthy)
        assert [scene.events_of(partition) for partition in everywhere] == [[], [], [], []]

        place = f"{scene.hanging}@2"
        eventually(lambda: place in str(undecided(scene, capsys).keys()), REPORTED_S, "it to be unproven")
        assert any(f"broker {AWAY}" in why for what, why in undecided(scene, capsys).items() if what.startswith(place))

        scene.kafka.start_broker(AWAY)
        for partition in (scene.hanging, scene.late, scene.unread):
            event = scene.first_event_of(partition)
            assert (event.verdict, event.reason) == ("hanging", "already_completed")
        assert scene.events_of(scene.late)[-1].transactional_id == scene.idle.transactional_id
    assert scene.events_of(scene.healthy) == []
