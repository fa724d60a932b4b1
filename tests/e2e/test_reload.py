"""SIGHUP to a running watch: a new threshold counts without a restart, and no SIGHUP ends the process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from support.raw_producer import RawProducer
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_of, statuses
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

VERDICT_S = 30.0
PATIENT = "long_running_fraction = 0.001\nlong_running_min_ms = 3600000\n"
IMPATIENT = "long_running_fraction = 0.001\nlong_running_min_ms = 1000\n"


def test_a_threshold_is_reloaded_and_no_sighup_ends_the_process(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("reload"))
    topic, file = unique("reload.events"), tmp_path / "txnwatch.toml"
    file.write_text(PATIENT)
    flags = ("--config", str(file), "--events-topic", topic, "--topics", partition.topic)
    flags = (*flags, "--census-topics", partition.topic)  # other tests leave hangs on this cluster
    with RunningWatch(kafka.bootstrap_servers, tmp_path / "checkpoint", *flags) as running:
        running.until("checkpoint ")
        os.kill(running.pid, signal.SIGHUP)  # while Spark starts
        running.until_ready()
        running.until("SIGHUP: no setting that can be reloaded has changed")
        producer = RawProducer(cluster, unique("slow"), timeout_ms=900_000).init()
        producer.add(partition)
        producer.produce(partition)

        file.write_text("no TOML")
        os.kill(running.pid, signal.SIGHUP)
        running.until("warning: SIGHUP: nothing is reloaded: --config")
        assert events_of(kafka.bootstrap_servers, topic) == []
        file.write_text(IMPATIENT)
        os.kill(running.pid, signal.SIGHUP)
        running.until("SIGHUP: reloaded long_running_min_ms, and the query starts again")
        found = eventually(lambda: events_of(kafka.bootstrap_servers, topic), VERDICT_S, "the transaction")
        assert [event.verdict for event in found] == ["long_running"]
        producer.end(commit=True)
        eventually(lambda: len(events_of(kafka.bootstrap_servers, topic)) == 2, VERDICT_S, "its end")
        assert statuses(events_of(kafka.bootstrap_servers, topic)) == ["opened", "resolved"]
        assert running.stop() == 0
        assert not [line for line in running.lines if "the query ended" in line]
