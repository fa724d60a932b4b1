"""The real hangs of the soak: each must be found within a minute, and is then ended by hand."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from support.event_tail import EventTail
from support.kafka_faults import abort_by_hand, stray_write
from txnwatch.state.model.errors import TxnwatchError
from txnwatch.state.model.values import ProducerId, TopicPartition
from txnwatch.state.model.verdicts import Verdict
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

TOPIC = "soak.hangs"
NODES = [1, 2, 3]
OPEN_FOR_S = 45.0  # so that Redis goes and comes back while it is open
FOUND_WITHIN_S = 60.0


@dataclass
class Hang:
    """One hang; the times are of our clock, None before it was found or ended.

    Attributes:
        outcome: the outcome that its first event expects.
    """

    producer_id: ProducerId
    partition: TopicPartition
    at_s: float
    found_s: float | None = None
    outcome: str | None = None
    is_ended: bool = False


@dataclass
class Hangs:
    """All hangs of a run."""

    kafka: EmbeddedKafka
    cluster: Cluster
    tail: EventTail
    made: list[Hang] = field(default_factory=list)
    _seen: int = 0

    def make(self, number: int, partitions: int) -> bool:
        """Makes one; false if a broker did not answer. Transactional writes are verified before and after."""
        partition = TopicPartition(TOPIC, number % partitions)
        with contextlib.suppress(TxnwatchError, KafkaException):
            set_verification(self.kafka.bootstrap_servers, NODES, enabled=False)
            try:
                producer = stray_write(self.cluster, f"hangs-{number}", partition)
            finally:
                set_verification(self.kafka.bootstrap_servers, NODES, enabled=True)
            self.made.append(Hang(producer.producer_id, partition, time.time()))
            return True
        return False

    def keep_up(self) -> None:
        """Notes which hangs are found, and ends those that have been open for long enough."""
        published = self.tail.published
        for at_s, event in published[self._seen :]:
            hang = next((one for one in self.made if one.producer_id == event.producer_id), None)
            if hang is not None and hang.found_s is None and event.verdict == Verdict.HANGING:
                hang.found_s, hang.outcome = at_s, event.expected_outcome
        self._seen = len(published)
        for hang in self.made:
            if hang.found_s is not None and not hang.is_ended and time.time() > hang.at_s + OPEN_FOR_S:
                with contextlib.suppress(TxnwatchError):  # its leader restarts: the next call tries again
                    abort_by_hand(self.cluster, hang.partition, hang.producer_id)
                    hang.is_ended = True

    def finish(self) -> None:
        """Waits until each one is found and ended, or cannot be found in time any more."""
        last = max((hang.at_s for hang in self.made), default=0.0) + FOUND_WITHIN_S + OPEN_FOR_S
        while time.time() < last and not all(hang.is_ended for hang in self.made):
            self.keep_up()
            time.sleep(0.5)

    def seconds(self) -> list[float]:
        """How long each one that was found took, in ascending order."""
        return sorted(hang.found_s - hang.at_s for hang in self.made if hang.found_s is not None)

    def outcomes(self) -> dict[str, int]:
        """How many of those that were found have each outcome."""
        return dict(Counter(hang.outcome for hang in self.made if hang.outcome is not None))

    def missed(self) -> list[Hang]:
        """Those that were not found, or not in time."""
        return [hang for hang in self.made if hang.found_s is None or hang.found_s > hang.at_s + FOUND_WITHIN_S]
