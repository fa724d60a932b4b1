"""The push of a whole watch: slow, failing and missing receivers and a real Alertmanager, over a kill of the watch."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.alertmanager import RunningAlertmanager, an_alertmanager
from support.http_receiver import ReceivedRequest, Receiver, Says, receiving
from support.kafka_faults import abort_by_hand, late_write_after_abort
from support.metrics import Scrape
from support.push_world import ids_of
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, free_ports

VERDICT_S, LONG_S = 30.0, 120.0
HANGING = "KafkaTransactionHanging"
SLOW_S = 2.0
# After the kill, at most the delivery that was under way is repeated.
MOST_DOUBLES = 1


def slowly(_: ReceivedRequest) -> Says:
    time.sleep(SLOW_S)
    return Says(202)


class Stage:
    """The receivers by what they do, and an Alertmanager that notifies one of them."""

    def __init__(self, closing: ExitStack, directory: Path) -> None:
        names = ("quick", "slow", "down", "limited", "failing", "gone", "notified")
        self.receivers: dict[str, Receiver] = {name: closing.enter_context(receiving()) for name in names}
        self.receivers["slow"].usually = slowly
        self.receivers["down"].stop()
        self.receivers["limited"].answers = [Says(429, {"Retry-After": "2"}), Says(429, {"Retry-After": "2"})]
        self.receivers["failing"].answers = [Says(500), Says(503)]
        self.receivers["gone"].answers = [Says(410)]
        route = {"receiver": "hook", "group_by": ["incident"], "group_wait": "0s", "group_interval": "1s"}
        hook = {"url": self.receivers["notified"].url, "send_resolved": True}
        config: dict[str, Any] = {"route": route, "receivers": [{"name": "hook", "webhook_configs": [hook]}]}
        self.alertmanager: RunningAlertmanager = closing.enter_context(
            an_alertmanager(directory, *free_ports(1), config)
        )

    @property
    def file(self) -> str:
        """The push file."""
        hooks = [(name, receiver.url) for name, receiver in self.receivers.items() if name != "notified"]
        targets = [f'[[webhook]]\nname = "{name}"\nurl = "{url}/hook"\n' for name, url in hooks]
        peer = f'[[alertmanager]]\nname = "main"\nurls = ["{self.alertmanager.url}"]\nresend_ms = 1000\n'
        return "".join([*targets, peer])

    def taken(self, name: str) -> list[str]:
        """The ids of the events that a receiver has taken, in order."""
        return ids_of(self.receivers[name].taken)

    def said(self) -> set[tuple[str, str]]:
        """The name and status of each alert that Alertmanager has told about."""
        told = (alert for one in self.receivers["notified"].received for alert in json.loads(one.body)["alerts"])
        return {(alert["labels"]["alertname"], alert["status"]) for alert in told}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as closing:
        yield Stage(closing, tmp_path)


def ids_on_topic(kafka: EmbeddedKafka, partition: TopicPartition, topic: str) -> list[str]:
    return [event.event_id for event in events_about(kafka.bootstrap_servers, partition, topic)]


def waiting(watch: RunningWatch, sink: str) -> float | None:
    return Scrape.at(watch.metrics_url).value("sink_waiting_events", sink=sink)


@pytest.mark.long
def test_no_target_delays_another_one_or_the_watch_and_a_kill_loses_nothing(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path, stage: Stage
) -> None:
    topic = unique("push.events")
    (partition,) = create_topic(cluster, unique("pushed"))
    (tmp_path / "push.toml").write_text(stage.file)
    flags = ("--events-topic", topic, "--push-file", str(tmp_path / "push.toml"), "--http-port", "0")
    flags = (*flags, "--topics", partition.topic, "--census-topics", "none")
    with RunningWatch(kafka.bootstrap_servers, tmp_path / "checkpoint", *flags) as watch:
        watch.until_ready()
        producer = late_write_after_abort(cluster, unique("zombie"), partition)
        eventually(lambda: stage.taken("quick"), VERDICT_S, "the event at the receiver that is quick")
        eventually(lambda: (HANGING, "firing") in stage.said(), VERDICT_S, "the alert")
        for name in ("slow", "limited", "failing"):
            eventually(lambda: stage.taken(name), LONG_S, f"the event at the one that is {name}")  # noqa: B023
        for sink in ("webhook down", "webhook gone"):
            eventually(lambda: waiting(watch, sink) == 1, VERDICT_S, f"the event that waits for {sink}")  # noqa: B023
        assert Scrape.at(watch.metrics_url).value("sink_stopped", sink="webhook gone") == 1
        assert Scrape.at(watch.metrics_url).value("sink_delivered_events_total", sink="webhook quick") == 1
        watch.kill()
        abort_by_hand(cluster, partition, producer.producer_id)
        stage.receivers["down"].start()
        assert (HANGING, "resolved") not in stage.said(), "a watcher that has died ends no alert"
        watch.start().until("ready: ", times=2)
        expected = eventually(
            lambda: (found := ids_on_topic(kafka, partition, topic))[-1:] and len(found) >= 2 and found,
            LONG_S,
            "the end on the topic",
        )
        for name in ("quick", "slow", "down", "limited", "failing"):
            eventually(lambda: expected[-1] in stage.taken(name), LONG_S, f"the end at the one that is {name}")  # noqa: B023
            times = Counter(stage.taken(name))
            assert list(times) == expected, f"{name}: all, in order"
            assert sum(times.values()) - len(times) <= MOST_DOUBLES, f"{name}: {times}"
        eventually(lambda: (HANGING, "resolved") in stage.said(), LONG_S, "the end of the alert")
        assert [line for line in watch.lines if "webhook gone: " in line and "answers 410" in line]
        assert not [line for line in watch.lines if "/hook" in line], "no line has the path of a URL"
