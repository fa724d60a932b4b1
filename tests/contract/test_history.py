"""`txnwatch history` reads a real topic: each incident once, also if its events come again, and bad records counted."""

from __future__ import annotations

import csv
import io
import json
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Producer

from support.incidents import a_life, an_event, id_of
from support.topics import unique
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import TimestampMs
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def life(name: str, ago_ms: int) -> list[IncidentEvent]:
    found = a_life(name)
    shift = wall_clock_ms() - ago_ms - found[0].time_ms
    return [replace(one, time_ms=TimestampMs(one.time_ms + shift)) for one in found]


@pytest.fixture
def flags(kafka: EmbeddedKafka) -> list[str]:
    """Three incidents of a week, one of a month ago, everything twice, and one record that is no event."""
    config, topic = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
    ensure_topic(config, topic)
    opened = life("before", 7 * DAY_MS + HOUR_MS)[0]
    still = an_event("open", time_ms=wall_clock_ms() - HOUR_MS, age_ms=5, transactional_id="checkout-7")
    events = [opened, still, *life("a", 2 * DAY_MS), *life("month", 30 * DAY_MS)]
    with closing(KafkaEventsTopic(config, topic)) as published:
        published.publish(events)
        published.publish(list(reversed(events)))
    producer = Producer(config)
    producer.produce(topic, key=id_of("bad"), value=b"{}")
    assert producer.flush(10) == 0
    return ["history", "-b", kafka.bootstrap_servers, "--events-topic", topic]


def test_a_week_of_a_real_topic(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "-o", "json"]) == 1, "a record was no event"
    found = json.loads(capsys.readouterr().out)
    assert [one["incident_id"] for one in found["incidents"]] == [id_of("open"), id_of("a"), id_of("before")]
    assert [one["opened_before"] for one in found["incidents"]] == [False, False, True]
    (verdict,) = [one for one in found["rows"] if one["by"] == "verdict"]
    assert (verdict["incidents"], verdict["still_open"], verdict["ends"]) == (3, 2, [["still_open", 2], ["aborted", 1]])
    assert [one["what"].split()[0] for one in found["not_checked"]] == ["1"]


def test_the_other_forms(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*flags, "-o", "csv"]) == 1
    written = capsys.readouterr()
    assert [row["state"] for row in csv.DictReader(io.StringIO(written.out))] == ["still_open", "ended", "still_open"]
    assert "not checked: 1 records" in written.err
    assert main([*flags, "-o", "markdown", "--by", "transactional_id"]) == 1
    text = capsys.readouterr().out
    assert "3 incidents since" in text
    assert "| `checkout-7` | 1 | 1 | 0 |" in text
    assert "| owner | incidents |" not in text
    assert main([*flags, "--since", "60d", "--by", "day"]) == 1
    assert "4 incidents since" in capsys.readouterr().out
