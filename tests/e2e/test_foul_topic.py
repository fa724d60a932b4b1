"""A watch on an events topic that others write too: it starts, it publishes, and it reports them in a few lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.incidents import an_event, id_of
from support.kafka_faults import late_write_after_abort
from support.metrics import Scrape
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import to_json
from txnwatch.sinks.delivery.event_log import read_events
from txnwatch.sinks.delivery.events_topic import ensure_topic
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

pytestmark = pytest.mark.long

VERDICT_S, HEARTBEAT_S = 30.0, 60.0
BAD = 2_000


def foul(config: dict[str, str], topic: str) -> None:
    """Records that kill a careless reader, and many that are only odd."""
    raw = json.loads(to_json(an_event("poison")))
    producer = Producer(config)
    deadly = [
        b"[" * 100_000 + b"]" * 100_000,
        json.dumps({**raw, "open_since_ms": 1e30}).encode(),
        json.dumps({**raw, "time_ms": 10**17}).encode(),
        json.dumps({**raw, "verdict": "free text \x1b[2J\n"}).encode(),
        json.dumps({**raw, "sequence": 10**400}).encode(),
    ]
    for value in deadly:
        producer.produce(topic, key=id_of("poison"), value=value)
    for number in range(BAD - len(deadly)):
        producer.produce(topic, key=f"odd-{number}", value=b"\xff\x1b[2J{")
    assert producer.flush(30.0) == 0


def test_invalid_records_on_the_topic_stop_nothing_and_are_reported(
    kafka: EmbeddedKafka,
    redis_server: EmbeddedRedis,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (partition,) = create_topic(cluster, unique("foul"))
    config, topic = {"bootstrap.servers": kafka.bootstrap_servers}, unique("foul.events")
    ensure_topic(config, topic)
    foul(config, topic)
    key_file = tmp_path / "keys"
    key_file.write_text("0123456789abcdef" * 4)
    key_file.chmod(0o600)
    flags = ("--topics", partition.topic, "--census-topics", partition.topic, "--events-heartbeat-ms", "2000")
    events_flags = ("--events-topic", topic, "--events-key-file", str(key_file))
    places = (
        ("--bootstrap-server", kafka.bootstrap_servers, *events_flags),
        ("--redis-url", redis_server.url, "--events-key-file", str(key_file)),
    )
    watch = RunningWatch(
        *(kafka.bootstrap_servers, tmp_path / "checkpoint", *flags, *events_flags),
        *("--redis-url", redis_server.url, "--http-port", "0"),
    )

    def incidents() -> list[IncidentEvent]:
        return [found for found in read_events(config, topic) if isinstance(found, IncidentEvent)]

    def beats() -> list[Heartbeat]:
        return [found for found in read_events(config, topic) if isinstance(found, Heartbeat)]

    with watch as running:
        running.until_ready()
        late_write_after_abort(cluster, unique("zombie"), partition)
        (opened, *_) = eventually(incidents, VERDICT_S, "the incident")
        producer = Producer(config)
        producer.produce(topic, key=opened.incident_id, value=None)  # somebody wants it to be silent
        producer.flush(10.0)
        eventually(lambda: len(incidents()) == 2, VERDICT_S, "the incident, published again")
        assert incidents() == [opened, opened]

        last = eventually(lambda: beats()[1:], HEARTBEAT_S, "two heartbeats")[-1]
        assert (last.scanned_partitions, last.is_coordinator_read) == (1, True)
        assert last.instance.endswith(f":{tmp_path / 'checkpoint'}")
        for flags_of_place in places:
            capsys.readouterr()
            assert main(["status", *flags_of_place, "--fail-on-found"]) == 3
            assert main(["status", *flags_of_place, "--format", "json"]) == (
                1 if "--events-topic" in flags_of_place else 0
            )
            (watcher,) = json.loads(capsys.readouterr().out.splitlines()[-1])["watchers"]
            assert (watcher["instance"], watcher["is_active"]) == (last.instance, True)
        scrape = Scrape.at(running.metrics_url)
        counted = sum(
            scrape.value("events_passed_over_total", why=why) or 0 for why in ("unsigned", "undecodable", "invalid")
        )
        assert counted == BAD
        assert running.stop() == 0
    lines = [line for line in watch.lines if re.search("skipped .* of the events topic", line)]
    assert 1 <= len(lines) <= 3, lines
    assert re.search(rf"skipped {BAD} records of the events topic \(unsigned\)", lines[0])
    assert all(line.isprintable() for line in watch.lines)
    assert not any("Traceback" in line for line in watch.lines)
