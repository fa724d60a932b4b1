"""A checkpoint that an earlier version wrote, and its event, as if that version had watched the cluster of a test."""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from support.raw_producer import RawProducer
from txnwatch.state.model.incident import span_incident_id
from txnwatch.state.model.values import Offset, TopicPartition
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

_GOLDEN = Path(__file__).parents[1] / "golden"
_A_TIME_MS = 1_000_000_000_000


@dataclass
class KeptCheckpoint:
    """An archive of tests/golden/capture_checkpoint.py, unpacked.

    Attributes:
        commit: the version that wrote it.
        path: the checkpoint directory.
        state: the directory in it that this version wrote.
    """

    commit: str
    directory: Path

    def __post_init__(self) -> None:
        with tarfile.open(_GOLDEN / f"checkpoint-{self.commit}.tar.xz") as archive:
            archive.extractall(self.directory, filter="data")
        self.path = self.directory / "path"
        self.state = self.path / "state-0c70a175"
        self.path.mkdir()
        (self.directory / "checkpoint").rename(self.state)
        self._event: dict[str, Any] = json.loads((self.directory / "event.json").read_text())

    def move_to(self, cluster_id: str) -> None:
        """Replaces the id of the cluster in Spark's logs of the offsets; the checksums of these files are removed."""
        for file in (self.state / "offsets").iterdir():
            if file.name.isdigit():
                file.write_text(file.read_text().replace(str(self._event["cluster_id"]), cluster_id))
            else:
                file.unlink()

    def publish_event(
        self, kafka: EmbeddedKafka, cluster: Cluster, topic: str, partition: TopicPartition, zombie: RawProducer
    ) -> str:
        """Publishes the event of that version, about a hang of this cluster; returns the id of the incident."""
        known = cluster.refresh()
        topic_id, offset = known.topics[partition.topic].topic_id, Offset(self._event["txn_start_offset"])
        of_cluster = {
            "incident_id": span_incident_id(
                known.cluster_id, topic_id, partition.partition, zombie.producer_id, offset
            ),
            "cluster_id": known.cluster_id,
            "topic": partition.topic,
            "topic_id": topic_id,
            "producer_id": zombie.producer_id,
            "transactional_id": zombie.transactional_id,
        }
        later_ms = wall_clock_ms() - self._event["time_ms"]
        event = {**_later(self._event, later_ms), **of_cluster}
        event["evidence"] = {**_later(event["evidence"], later_ms), "coordinator_producer_id": zombie.producer_id}
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(topic, json.dumps(event).encode(), str(event["incident_id"]))
        assert producer.flush(10.0) == 0
        return str(event["incident_id"])


def _later(fields: dict[str, Any], by_ms: int) -> dict[str, Any]:
    """The fields with later times; durations stay."""
    is_time = {name for name, value in fields.items() if name.endswith("_ms") and (value or 0) > _A_TIME_MS}
    return {name: value + by_ms if name in is_time else value for name, value in fields.items()}
