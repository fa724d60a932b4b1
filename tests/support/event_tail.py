"""The events topic as it grows: each event with the moment it could be read. Heartbeats are left out."""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from txnwatch.sinks.delivery.encoding import from_bytes
from txnwatch.state.incidents.heartbeat import KEY_PREFIX
from txnwatch.state.model.incident import IncidentEvent


class PublishedEvent(NamedTuple):
    """An event, and our clock in seconds when it was there."""

    at_s: float
    event: IncidentEvent


class EventTail:
    """Reads one partition of events in a thread until it is closed; nothing is ever compacted away from `published`."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.published: list[PublishedEvent] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-tail",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "log_level": 2,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None or (value := message.value()) is None:
                continue
            if not (message.key() or b"").startswith(KEY_PREFIX.encode()):
                self.published.append(PublishedEvent(time.time(), from_bytes(value)))

    def close(self) -> None:
        """Stops reading."""
        self._stop.set()
        self._thread.join(10.0)
        self._consumer.close()
