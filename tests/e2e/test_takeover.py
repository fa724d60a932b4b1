"""Two whole processes that watch one cluster: one speaks, and the other takes over, with every incident told once."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.event_tail import EventTail
from support.kafka_faults import late_write_after_abort
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.state.incidents.speaking import SESSION_MS
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

IN_TIME_S, AT_ONCE_S = 40.0, 6.0
SILENCE_S = SESSION_MS / 1000 + 5  # the session, a rebalance, a micro-batch, and the detection itself


@pytest.fixture
def partitions(kafka: EmbeddedKafka, cluster: Cluster) -> list[TopicPartition]:
    set_verification(kafka.bootstrap_servers, [1], enabled=False)
    return create_topic(cluster, unique("takeover"), partitions=5)


@pytest.fixture
def tail(kafka: EmbeddedKafka, cluster: Cluster) -> Iterator[EventTail]:
    (events,) = create_topic(cluster, unique("takeover.events"), config={"cleanup.policy": "compact"})
    with contextlib.closing(EventTail(kafka.bootstrap_servers, events.topic)) as found:
        yield found


def records(tail: EventTail, partition: TopicPartition) -> list[IncidentEvent]:
    """Every record about a partition, doubles too."""
    events = [one.event for one in tail.published]
    return [event for event in events if (event.topic, event.partition) == partition]


def is_told(cluster: Cluster, tail: EventTail, partition: TopicPartition, within_s: float) -> None:
    """A hang is made, and told within some seconds."""
    late_write_after_abort(cluster, unique("zombie"), partition)
    eventually(lambda: records(tail, partition), within_s, f"the incident on {partition}")


@pytest.mark.long
def test_each_incident_is_told_once_whatever_becomes_of_the_speaker(
    kafka: EmbeddedKafka, cluster: Cluster, tail: EventTail, partitions: list[TopicPartition], tmp_path: Path
) -> None:
    at_first, after_kill, after_stop, while_paused, awake = partitions
    flags = ("--topics", at_first.topic, "--events-topic", tail.topic)
    first, second = (RunningWatch(kafka.bootstrap_servers, tmp_path / name, *flags) for name in ("first", "second"))
    with first, contextlib.ExitStack() as others:
        first.until_ready()
        others.enter_context(second)
        second.until_ready()
        time.sleep(SESSION_MS / 1000)  # the newcomer has joined the group, and has not got the lease
        is_told(cluster, tail, at_first, IN_TIME_S)

        first.kill()
        is_told(cluster, tail, after_kill, SILENCE_S)
        first.start().until_ready()
        time.sleep(SESSION_MS / 1000)

        second.stop()
        is_told(cluster, tail, after_stop, AT_ONCE_S)
        second.start().until_ready()
        time.sleep(SESSION_MS / 1000)

        os.killpg(first.pid, signal.SIGSTOP)
        try:
            is_told(cluster, tail, while_paused, SILENCE_S)
        finally:
            os.killpg(first.pid, signal.SIGCONT)
        is_told(cluster, tail, awake, AT_ONCE_S)
        time.sleep(SESSION_MS / 1000)
    for partition in partitions:
        assert [(event.sequence, event.status) for event in records(tail, partition)][:1] == [(1, "opened")]
        ids = [event.event_id for event in records(tail, partition)]
        assert len(ids) == len(set(ids)), "nothing is told twice"
        assert len({event.incident_id for event in records(tail, partition)}) == 1
