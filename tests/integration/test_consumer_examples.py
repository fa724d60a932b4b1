"""The programs and commands of docs/consumers.md, run as they stand there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from support.heartbeats import a_heartbeat
from support.incidents import a_life, an_event, id_of
from support.topics import unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

PAGE = (Path(__file__).parents[2] / "docs" / "consumers.md").read_text()
GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
EVENTS = [*a_life("over"), an_event("goes-on", consumer_groups=(GROUP,))]
TOOLS = {"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    lines = [line for block in blocks("console") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(f"{program} ")]


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    config, name = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
    ensure_topic(config, name)
    watch = KafkaEventsTopic(config, name)
    watch.beat(a_heartbeat())  # of a watch: no incident, whoever reads it
    watch.publish(EVENTS)
    KafkaEventsTopic(config, name).publish(EVENTS[:1])  # published once more, as after a crash
    return name


@pytest.fixture
def lines(kafka: EmbeddedKafka, topic: str, tmp_path: Path) -> Iterator[list[str]]:
    """What the page's Python program prints."""
    (program,) = blocks("python")
    (tmp_path / "incidents.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "incidents.py")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BOOTSTRAP_SERVERS": kafka.bootstrap_servers, "EVENTS_TOPIC": topic},
    )
    printed: list[str] = []
    assert process.stdout is not None
    output = process.stdout
    thread = threading.Thread(target=lambda: printed.extend(iter(output.readline, "")), daemon=True)
    thread.start()

    yield printed

    process.kill()
    process.wait()
    thread.join()
    output.close()


def test_the_python_program_prints_each_event_once_and_keeps_what_is_open(
    kafka: EmbeddedKafka, topic: str, lines: list[str]
) -> None:
    eventually(lambda: len(_printed(lines)) >= len(EVENTS), 30.0, "every event")
    KafkaEventsTopic({"bootstrap.servers": kafka.bootstrap_servers}, topic).publish([an_event("another")])
    eventually(lambda: len(_printed(lines)) > len(EVENTS), 30.0, "the last event")
    name = EVENTS[0].transactional_id
    assert _printed(lines) == [
        f"opened hanging {name} stopped: [] open: 1",
        f"updated hanging {name} stopped: [] open: 1",
        f"resolved hanging {name} stopped: [] open: 0",
        f"opened hanging {name} stopped: ['billing'] open: 1",
        f"opened hanging {name} stopped: [] open: 2",
    ]


def _printed(lines: list[str]) -> list[str]:
    """Whole lines."""
    return "".join(lines).split("\n")[:-1]


def test_the_shell_line_prints_one_event_a_line(kafka: EmbeddedKafka, topic: str) -> None:
    (arguments,) = commands("kafka-console-consumer.sh")
    known = {"broker:9092": kafka.bootstrap_servers, "txnwatch.events": topic}
    done = kafka.tool(TOOLS[arguments[0]], *(known.get(one, one) for one in arguments[1:]))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    found = [one for one in lines if "incident_id" in one]
    assert len(lines) == len(found) + 1, "the heartbeat"
    assert [(one["incident_id"], one["sequence"]) for one in found] == [
        (event.incident_id, event.sequence) for event in [*EVENTS, EVENTS[0]]
    ]


def test_the_status_line_finds_what_is_open(
    kafka: EmbeddedKafka, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (arguments,) = commands("txnwatch")
    known = {"broker:9092": kafka.bootstrap_servers}
    assert main([*(known.get(one, one) for one in arguments[1:]), "--events-topic", topic]) == 3
    assert "billing" in capsys.readouterr().out


def test_the_redis_lines_show_the_oldest_open_incident(redis_server: EmbeddedRedis) -> None:
    cluster_id = unique("docs")
    sink = RedisMirror(redis_server.url, cluster_id)
    sink.deliver(EVENTS)
    client = redis.Redis.from_url(redis_server.url, decode_responses=True)
    known = {"CLUSTER": cluster_id, "INCIDENT": id_of("goes-on")}
    oldest, about = (
        client.execute_command(*[re.sub("CLUSTER|INCIDENT", lambda match: known[match[0]], one) for one in line[1:]])
        for line in commands("redis-cli")
    )
    assert dict([oldest] if isinstance(oldest[0], str) else oldest) == {
        id_of("goes-on"): float(EVENTS[0].open_since_ms)
    }
    assert about[:3] == ["hanging", EVENTS[0].transactional_id, "21"]
    assert json.loads(about[3]) == [GROUP]
    sink.close()
    client.close()
