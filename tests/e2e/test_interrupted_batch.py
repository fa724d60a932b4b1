"""A process that ends within a micro-batch, after the events of the batch: the next start repeats it, and no event."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.process_memory import descendants
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about, events_of, statuses
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

VERDICT_S = 30.0
SETTLE_S = 3.0
ATTEMPTS = 5


def newest(directory: Path) -> int:
    return max(int(file.name) for file in directory.iterdir() if file.name.isdigit())


@contextmanager
def within_a_batch(running: RunningWatch, cluster: Cluster, topic: str) -> Iterator[tuple[TopicPartition, int]]:
    """A hang whose event is out, while Spark stands still before the commit of its batch; ends the JVM at the end.

    Yields the partition and the producer id.
    """
    (jvm,) = [pid for pid, name in descendants(running.pid).items() if name.strip() == "java"]
    state = Path(running.state)
    for _ in range(ATTEMPTS):
        (partition,) = create_topic(cluster, unique(topic))
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        deadline = time.monotonic() + VERDICT_S
        while not any("OPENED" in line and partition.topic in line for line in running.lines):
            assert time.monotonic() < deadline, running.lines[-5:]
            time.sleep(0.001)
        os.kill(jvm, signal.SIGSTOP)
        if newest(state / "offsets") > newest(state / "commits"):
            yield partition, producer.producer_id
            break
        os.kill(jvm, signal.SIGCONT)  # too late: the batch was committed
        abort_by_hand(cluster, partition, producer.producer_id)
    else:
        raise AssertionError("every batch was committed before Spark stood still")
    with suppress(ProcessLookupError):  # txnwatch has killed it
        os.kill(jvm, signal.SIGKILL)


def test_no_event_of_a_batch_that_was_not_committed_is_lost_or_repeated(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    bootstrap, events = kafka.bootstrap_servers, unique("interrupted.events")
    prefix = unique("interrupted")
    flags = ("--events-topic", events, "--topics", f"{prefix}.*", "--census-topics", f"{prefix}.*")
    with RunningWatch(bootstrap, tmp_path, *flags) as running:
        running.until_ready()
        with within_a_batch(running, cluster, prefix) as (first, producer_id):
            assert running.stop() == 0
        assert any("the current micro-batch is interrupted" in line for line in running.lines)
        running.start().until_ready()
        with within_a_batch(running, cluster, prefix) as (second, _):
            running.kill()
        abort_by_hand(cluster, first, producer_id)
        running.start().until_ready()
        eventually(lambda: len(events_about(bootstrap, first, events)) == 2, VERDICT_S, "the end that was missed")
        eventually(lambda: events_about(bootstrap, second, events), VERDICT_S, "the event of the batch")
        time.sleep(SETTLE_S)
        assert statuses(events_about(bootstrap, first, events)) == ["opened", "resolved"]
        assert statuses(events_about(bootstrap, second, events)) == ["opened"]
        published = [(event.incident_id, event.sequence) for event in events_of(bootstrap, events)]
        assert len(published) == len(set(published))
        assert running.stop() == 0
