"""The contracts of the events topic and of a mirror, on the recording fakes, on Kafka and on Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pytest
import redis

from contract.sink_contract import SinkContract, ViewContract
from support.forwarder import Forwarder
from support.heartbeats import a_heartbeat
from support.incidents import a_life, an_event, id_of
from support.recording_sink import RecordingMirror, RecordingSink, RecordingTopic
from support.redis_view import RedisView
from support.topics import unique
from txnwatch.sinks.delivery.encoding import FORMATS, Encoding, to_json
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.state.model.errors import SinkError
from txnwatch.state.model.findings import OpenSpan, OpenTransaction
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TopicPartition
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

_QUICK = {"reconnect.backoff.ms": "50", "reconnect.backoff.max.ms": "200"}
_END_AT_ONCE = {"fetch.wait.max.ms": "20"}
_PATIENCE_S = 0.5


class RecordingStage:
    """A fake is its own reader."""

    def __init__(self, sink: RecordingSink) -> None:
        self.cluster_id = "cluster"
        self.sink = sink
        self.name = sink.name

    def view(self) -> dict[str, tuple[int, str]]:
        return {name: (event.sequence, event.status) for name, event in self.sink.latest.items()}

    def open_ids(self) -> list[str]:
        return [event.incident_id for event in self.sink.open_incidents]

    def published(self) -> list[str]:
        return [event.event_id for event in self.sink.published]

    def take_away(self) -> None:
        self.sink.is_away = True

    def bring_back(self) -> None:
        self.sink.is_away = False


class RecordingTopicStage(RecordingStage):
    """The fake of the events topic."""

    def __init__(self) -> None:
        self._topic = RecordingTopic()
        super().__init__(self._topic)

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        self._topic.publish(events)


class RecordingMirrorStage(RecordingStage):
    """The fake of a mirror that shows the open incidents."""

    def __init__(self) -> None:
        self.incidents = RecordingMirror()
        super().__init__(self.incidents)

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        self.incidents.deliver(events)


class TopicStage:
    """An events topic; its reader keeps the highest sequence of each incident and each event id once."""

    def __init__(self, kafka: EmbeddedKafka, forwarder: Forwarder, encoding: Encoding) -> None:
        self.cluster_id = "cluster"
        self._config = {"bootstrap.servers": kafka.bootstrap_servers}
        self._forwarder = forwarder
        self._encoding = encoding
        self._topic = unique("events")
        ensure_topic(self._config, self._topic)
        self.sink = KafkaEventsTopic(self._config, self._topic, encoding)
        self.name = self.sink.name

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        self.sink.publish(events)

    def _events(self) -> list[IncidentEvent]:
        config = {**self._config, **_END_AT_ONCE}
        found = [event for event in read_events(config, self._topic) if isinstance(event, IncidentEvent)]
        return list({event.event_id: event for event in found}.values())

    def _latest(self) -> list[IncidentEvent]:
        return list(
            {event.incident_id: event for event in sorted(self._events(), key=lambda one: one.sequence)}.values()
        )

    def view(self) -> dict[str, tuple[int, str]]:
        return {event.incident_id: (event.sequence, event.status) for event in self._latest()}

    def open_ids(self) -> list[str]:
        still_open = [event for event in self._latest() if event.is_open]
        return [event.incident_id for event in sorted(still_open, key=lambda one: one.open_since_ms)]

    def published(self) -> list[str]:
        return [event.event_id for event in self._events()]

    def take_away(self) -> None:
        config = {**_QUICK, "bootstrap.servers": self._forwarder.address}
        self.sink = KafkaEventsTopic(config, self._topic, self._encoding, timeout_s=_PATIENCE_S)

    def bring_back(self) -> None:
        self._forwarder.start()


class RedisStage(RedisView):
    """A Redis that is stopped and started again."""

    def __init__(self, server: EmbeddedRedis) -> None:
        self.cluster_id = unique("cluster")
        super().__init__(server.url, self.cluster_id)
        self.url = server.url
        self.sink = self.incidents = RedisMirror(server.url, self.cluster_id)
        self.name = self.sink.name
        self._server = server

    def deliver(self, events: Sequence[IncidentEvent]) -> None:
        self.sink.deliver(events)

    def take_away(self) -> None:
        self._server.stop()

    def bring_back(self) -> None:
        self._server.start()


class TestRecordingTopic(SinkContract):
    @pytest.fixture
    def stage(self) -> RecordingTopicStage:
        return RecordingTopicStage()


class TestRecordingMirror(ViewContract):
    @pytest.fixture
    def stage(self) -> RecordingMirrorStage:
        return RecordingMirrorStage()

    def test_a_delivery_that_breaks_has_arrived_in_part_and_is_made_good_by_the_next(self) -> None:
        sink, events = RecordingMirror(), a_life("incident")
        sink.breaks_after = 2
        with pytest.raises(SinkError, match="broke after 2 events"):
            sink.deliver(events)
        assert sink.published == events[:2]
        sink.deliver(events)
        assert sink.published == events
        assert sink.tries == [tuple(events), tuple(events)]


class TestKafkaEventsTopic(SinkContract):
    @pytest.fixture(params=["json", "avro"])
    def stage(self, kafka: EmbeddedKafka, request: pytest.FixtureRequest) -> Iterator[TopicStage]:
        host, port = kafka.bootstrap_servers.split(":")
        with Forwarder((host, int(port))) as forwarder:
            stage = TopicStage(kafka, forwarder, FORMATS[request.param])
            yield stage
            stage.sink.close()


class TestRedisMirror(ViewContract):
    @pytest.fixture
    def stage(self, redis_server: EmbeddedRedis) -> Iterator[RedisStage]:
        stage = RedisStage(redis_server)
        yield stage
        stage.sink.close()
        stage.close()

    def test_the_documented_keys_are_all_there_is(self, stage: RedisStage) -> None:
        ending, going_on = (
            a_life("ending", cluster_id=stage.cluster_id),
            a_life("going-on", cluster_id=stage.cluster_id),
        )
        stage.sink.deliver([ending[0], going_on[0], *ending[1:]])
        assert stage.keys() == {"incidents", f"incident:{id_of('ending')}", f"incident:{id_of('going-on')}", "events"}

    def test_an_incident_is_a_hash_of_its_fields(self, stage: RedisStage) -> None:
        event = an_event("incident", cluster_id=stage.cluster_id, pending_partitions=("t-1", "t-2"))
        stage.sink.deliver([event])
        held = stage.hash(id_of("incident"))
        assert held == {
            "incident_id": event.incident_id,
            "sequence": "1",
            "status": "opened",
            "verdict": "hanging",
            "reason": "already_completed",
            "severity": "critical",
            "cluster_id": stage.cluster_id,
            "topic": "orders",
            "partition": "3",
            "topic_id": "Zm9vYmFyYmF6cXV4MTIzNA",
            "producer_id": "4711",
            "producer_epoch": "2",
            "transactional_id": "payments-\u00fc",
            "coordinator_id": "1",
            "transaction_state": "CompleteAbort",
            "txn_start_offset": "99",
            "open_since_ms": "1700000000000",
            "open_since_clock": "observed",
            "last_write_ms": "1699999999995",
            "age_ms": "1234",
            "last_stable_offset": "99",
            "high_watermark": "120",
            "hidden_records": "21",
            "is_lso_blocker": "true",
            "cleanup_policy": "compact",
            "pending_partitions": '["t-1","t-2"]',
            "consumer_groups": "[]",
            "waiting_groups": "[]",
            "evidence": held["evidence"],
            "expected_outcome": "abort",
            "suggested_command": "kafka-transactions.sh --bootstrap-server 'b:9092' abort",
            "detected_at_ms": "1700000001234",
            "detection_latency_ms": "800",
            "time_ms": "1700000001234",
        }, "what is null is left out"
        assert stage.json(held["evidence"]) == json.loads(to_json(event))["evidence"]

    def test_an_event_with_the_sequence_of_an_end_does_not_open_the_incident_again(self, stage: RedisStage) -> None:
        _, later, over = a_life("incident", cluster_id=stage.cluster_id)
        stage.sink.deliver([replace(over, expected_outcome="unknown"), replace(later, sequence=over.sequence)])
        assert stage.view()[over.incident_id] == (over.sequence, "resolved")
        assert stage.open_ids() == []

    def test_a_field_that_has_become_null_is_gone(self, stage: RedisStage) -> None:
        opened, _, over = a_life("incident", cluster_id=stage.cluster_id)
        stage.sink.deliver([opened])
        assert "suggested_command" in stage.hash(id_of("incident"))
        stage.sink.deliver([over])
        assert "suggested_command" not in stage.hash(id_of("incident"))
        assert stage.json(stage.hash(id_of("incident"))["resolution"])["how"] == "aborted"

    def test_open_incidents_are_scored_by_open_since_and_stay_for_ever(self, stage: RedisStage) -> None:
        stage.sink.deliver([an_event("incident", cluster_id=stage.cluster_id)])
        assert stage.scores() == {id_of("incident"): 1_700_000_000_000.0}
        assert stage.seconds_to_live(id_of("incident")) is None

    def test_a_resolved_incident_is_kept_a_week(self, stage: RedisStage) -> None:
        stage.sink.deliver(a_life("incident", cluster_id=stage.cluster_id))
        left = stage.seconds_to_live(id_of("incident"))
        assert left is not None
        assert 0 <= 7 * 24 * 3600 - left < 60

    def test_the_stream_has_every_event_as_json(self, stage: RedisStage) -> None:
        events = a_life("incident", cluster_id=stage.cluster_id)
        stage.sink.deliver(events)
        assert [entry["id"] for entry in stage.stream()] == [event.event_id for event in events]
        assert stage.stream_events() == events

    def test_the_open_list_in_redis_is_replaced_as_a_whole_and_expires(self, stage: RedisStage) -> None:
        span = OpenSpan(TopicPartition("orders", 3), 99, 1_500)
        first = OpenTransaction(7, "checkout-\u00fc", "Ongoing", 1_000, None, (span,))
        second = OpenTransaction(8, None, "unowned", 2_000, None, ())
        show_open = stage.sink.show_open
        show_open([second, first])
        described = {"transactional_id": "checkout-\u00fc", "producer_id": 7, "state": "Ongoing"}
        (found, since_ms), (other, _) = stage.open_transactions()
        assert (found, since_ms) == ({**described, "partitions": ["orders-3"]}, 1_000.0)
        assert other["transactional_id"] is None
        assert 0 < stage.open_seconds_to_live() <= 60
        show_open([second])
        assert [member["producer_id"] for member, _ in stage.open_transactions()] == [8]
        show_open([])
        assert stage.open_transactions() == []

    def test_a_redis_that_refuses_is_a_sink_error_that_names_it(self, stage: RedisStage) -> None:
        stage.spoil("incidents")
        with pytest.raises(SinkError, match=r"^Redis 127\.0\.0\.1:\d+/0: .*WRONGTYPE"):
            stage.sink.deliver([an_event("incident", cluster_id=stage.cluster_id)])

    def test_a_heartbeat_is_a_key_of_its_own_that_goes_by_itself(self, stage: RedisStage) -> None:
        beat = a_heartbeat(cluster_id=stage.cluster_id)
        for _ in range(2):
            stage.sink.beat(beat)
        (key,) = stage.keys()
        assert key == beat.key.removeprefix("txnwatch.")
        assert 0 < stage.seconds_of(key) <= 24 * 3600

    def test_an_emptied_redis_is_reported_once_whoever_asks(self, stage: RedisStage) -> None:
        other = RedisMirror(stage.url, stage.cluster_id)
        assert stage.sink.has_lost_everything(), "never filled yet"
        stage.empty()
        assert [sink.has_lost_everything() for sink in (other, stage.sink, other)] == [True, False, False]
        other.close()

    def test_an_old_missed_end_is_removed_and_nothing_else_changes(self, stage: RedisStage) -> None:
        going_on = an_event("going-on", cluster_id=stage.cluster_id)
        stage.sink.deliver([an_event("over", cluster_id=stage.cluster_id), going_on])
        stage.sink.forget({id_of("over")}.__contains__)
        assert stage.open_ids() == [id_of("going-on")]
        assert stage.keys() == {"incidents", f"incident:{id_of('going-on')}", "events"}

    def test_a_member_of_another_client_that_is_not_text_does_not_keep_an_incident_open(
        self, stage: RedisStage
    ) -> None:
        stage.sink.deliver([an_event("over", cluster_id=stage.cluster_id)])
        with closing(redis.Redis.from_url(stage.url)) as client:
            client.zadd(f"txnwatch:{{{stage.cluster_id}}}:incidents", {b"\xff\xfe": 0})
            stage.sink.forget({id_of("over")}.__contains__)
            assert client.zrange(f"txnwatch:{{{stage.cluster_id}}}:incidents", 0, -1) == [b"\xff\xfe"]

    def test_events_that_are_sent_again_after_a_loss_are_unchanged(self, stage: RedisStage) -> None:
        events = [*a_life("over", cluster_id=stage.cluster_id), an_event("open", cluster_id=stage.cluster_id)]
        stage.sink.deliver(events)
        before = (stage.view(), stage.open_ids(), stage.hash(id_of("open")))
        stage.empty()
        stage.sink.deliver(events[2:])
        assert (stage.view(), stage.open_ids(), stage.hash(id_of("open"))) == before
