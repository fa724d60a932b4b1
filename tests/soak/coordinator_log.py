"""The coordinators' log as it grows: for how long each transaction was really in its state, by the coordinators.

Decoded here and not by txnwatch, because its verdicts are checked against it. A state ends when the record of the next
one is committed, which is when a consumer can read it. The record can have been stamped long before, if its replicas
do not acknowledge it.
"""

from __future__ import annotations

import struct
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import zip_longest

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.state.model.verdicts import Verdict

STUCK_MS, LATE_MS = 30_000, 15_000  # txnwatch's defaults; late is counted from the transaction's own timeout
_ONGOING, _PREPARED = {1}, {2, 3}
_VALUE = struct.Struct(">hqhib")  # version, producer id, producer epoch, timeout, state: the beginning of a value


@dataclass(frozen=True)
class Step:
    """One record of a producer id: when it was stamped, and when it could be read."""

    at_ms: int
    read_ms: int
    state: int
    timeout_ms: int


class CoordinatorLog:
    """Reads all partitions in a thread until it is closed; what is compacted away later stays here."""

    def __init__(self, bootstrap: str, partitions: int) -> None:
        self.steps: dict[int, list[Step]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "soak-coordinator-log",
                "enable.auto.commit": False,
                "log_level": 2,
            }
        )
        numbers = range(partitions)
        self._consumer.assign([TopicPartition(TRANSACTION_STATE_TOPIC, one, OFFSET_BEGINNING) for one in numbers])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops reading."""
        self._stop.set()
        self._thread.join(10.0)
        self._consumer.close()

    def is_true(self, event: IncidentEvent) -> bool:
        """Whether the transaction of a `stuck_prepare` or `late` was in its state for so long before the event."""
        steps = self.steps.get(event.producer_id or -1, [])
        for step, following in zip_longest(steps, steps[1:]):
            states, limit_ms = (
                (_PREPARED, STUCK_MS)
                if event.verdict == Verdict.STUCK_PREPARE
                else (
                    _ONGOING,
                    step.timeout_ms + LATE_MS,
                )
            )
            lasted = following is None or following.read_ms - step.at_ms >= limit_ms
            if step.state in states and lasted and step.at_ms + limit_ms <= event.time_ms:
                return True
        return False

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None or (value := message.value()) is None:
                continue
            self.add(message.timestamp()[1], int(time.time() * 1000), value)

    def add(self, at_ms: int, read_ms: int, value: bytes) -> None:
        """Adds one record."""
        _, producer_id, _, timeout_ms, state = _VALUE.unpack_from(value)
        self.steps[producer_id].append(Step(at_ms, read_ms, state, timeout_ms))
