"""An events topic that is deleted and made again while a watch reads it: every event is gone."""

from __future__ import annotations

from contextlib import closing

import pytest

from support.incidents import an_event
from support.topics import delete_topic, unique
from support.waiting import eventually
from txnwatch.sinks.delivery.event_log import EventLog
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.state.incidents.heartbeat import TopicRecord
from txnwatch.state.model.incident import IncidentEvent, Overwritten
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

SEEN_S = 60.0


@pytest.mark.parametrize("has_records", [False, True])
def test_a_topic_that_begins_anew_has_lost_every_event(
    kafka: EmbeddedKafka, cluster: Cluster, *, has_records: bool
) -> None:
    config, name = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
    first, second = an_event(), an_event(sequence=2)
    new = [second] if has_records else []
    ensure_topic(config, name)
    with closing(EventLog(config, name)) as log:
        assert list(log.history()) == []
        with closing(KafkaEventsTopic(config, name)) as topic:
            topic.publish([first, second, an_event("other")])
        read: list[TopicRecord] = []
        eventually(lambda: read.extend(log.new_records()) or len(read) == 3, SEEN_S, "the events")
        delete_topic(cluster, name)
        eventually(lambda: ensure_topic(config, name) is None, SEEN_S, "the topic again")
        with closing(KafkaEventsTopic(config, name)) as topic:
            topic.publish(new)
        read.clear()
        expected: list[IncidentEvent | Overwritten] = [Overwritten(None), *new]
        eventually(lambda: read.extend(log.new_records()) or len(read) >= len(expected), SEEN_S, "what is there now")
    assert read == expected
