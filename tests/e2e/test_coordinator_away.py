"""A part of the coordinators' log has no leader: every hang waits, because a second id of its producer may be there."""

from __future__ import annotations

import contextlib
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
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, TopicPartition
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import await_end, set_verification

pytestmark = pytest.mark.long

NAME = "coordinator-away"
STAYS, AWAY = 1, 2
REPORTED_S = 120.0


@dataclass(frozen=True)
class Scene:
    """Transactions of ids of both brokers, on partitions that broker STAYS leads. No log is copied, and AWAY is dead.

    Attributes:
        lost: the partitions of the coordinators' log that nobody leads.
        hanging: a late write of an id that STAYS coordinates, and that was idle when reading began.
        idle: a producer of another such id; nothing of it hangs yet on `late`.
        unread: a late write of an id that AWAY coordinates.
        healthy: an open transaction of an id that AWAY coordinates.
    """

    kafka: EmbeddedKafka
    lost: tuple[TopicPartition, ...]
    hanging: TopicPartition
    late: TopicPartition
    idle: RawProducer
    unread: TopicPartition
    healthy: TopicPartition

    def events_of(self, partition: TopicPartition) -> list[IncidentEvent]:
        return events_about(self.kafka.bootstrap_servers, partition)

    def first_event_of(self, partition: TopicPartition) -> IncidentEvent:
        eventually(lambda: self.events_of(partition), REPORTED_S, f"an event about {partition}")
        return self.events_of(partition)[0]


@pytest.fixture
def scene(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp(NAME)
    kafka = clusters.start(NAME, lambda: EmbeddedKafka(directory, brokers=2))
    set_verification(kafka.bootstrap_servers, [STAYS, AWAY], enabled=False)
    create_coordinators(kafka)
    with contextlib.closing(connect(kafka)) as cluster:
        hanging, late, unread, healthy = create_topic(cluster, unique("away"), replicas=[[STAYS]] * 4)
        late_write_after_abort(cluster, coordinated_by(cluster, STAYS), hanging)
        late_write_after_abort(cluster, coordinated_by(cluster, AWAY), unread)
        idle = RawProducer(cluster, coordinated_by(cluster, STAYS)).init()
        idle.add(late)
        idle.produce(late)
        idle.end(commit=True)
        await_end(cluster, idle, late)
        owner = RawProducer(cluster, coordinated_by(cluster, AWAY), LONG_TIMEOUT_MS).init()
        owner.add(healthy)
        owner.produce(healthy)
        log = cluster.refresh().topics[TRANSACTION_STATE_TOPIC].partitions
        led = (number for number, info in log.items() if info.leader == AWAY)
        lost = tuple(TopicPartition(TRANSACTION_STATE_TOPIC, number) for number in led)
        kafka.broker(AWAY).kill()
        for partition in lost:
            await_leader(cluster, partition, None)
        yield Scene(kafka, lost, hanging, late, idle, unread, healthy)
    clusters.end(NAME)


def test_no_hang_is_published_until_all_ids_can_be_listed(scene: Scene, tmp_path: Path) -> None:
    assert scene.lost
    with RunningWatch(scene.kafka.bootstrap_servers, tmp_path / "checkpoint") as watch:
        why = watch.until(f"hanging {scene.hanging}@2")
        assert "can be neither confirmed nor refuted now" in why
        assert TRANSACTION_STATE_TOPIC in why
        assert "has no leader: its ids cannot be listed" in why
        scene.idle.produce(scene.late, [b"too late"])
        watch.until(f"hanging {scene.late}@2")
        everywhere = (scene.hanging, scene.late, scene.unread, scene.healthy)
        assert [scene.events_of(partition) for partition in everywhere] == [[], [], [], []]

        scene.kafka.start_broker(AWAY)
        for partition in (scene.hanging, scene.late, scene.unread):
            event = scene.first_event_of(partition)
            assert (event.verdict, event.reason) == ("hanging", "already_completed")
        assert scene.events_of(scene.late)[-1].transactional_id == scene.idle.transactional_id
    assert scene.events_of(scene.healthy) == []
