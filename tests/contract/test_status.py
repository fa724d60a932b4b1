"""`txnwatch status` says the same from Redis and from the events topic, and its exit code can be relied on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from support.incidents import OPEN_SINCE_MS, a_life, an_event
from support.redis_view import RedisView
from support.topics import unique
from txnwatch.cli.main import main
from txnwatch.embedded.kafka import EmbeddedKafka
from txnwatch.embedded.redis import EmbeddedRedis
from txnwatch.sinks.kafka import KafkaEventSink, ensure_topic
from txnwatch.sinks.redis import RedisEventSink
from txnwatch.state.incident import IncidentEvent

GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}


def the_events(cluster_id: str) -> list[IncidentEvent]:
    older = an_event(
        "older",
        cluster_id=cluster_id,
        open_since_ms=OPEN_SINCE_MS - 5_000,
        topic=None,
        partition=None,
        verdict="late",
        reason=None,
        consumer_groups=(),
        transaction_state="Ongoing",
    )
    newer = an_event("newer", cluster_id=cluster_id, consumer_groups=(GROUP,))
    dropped = replace(newer, consumer_groups=(), time_ms=newer.time_ms + 1)  # of the same sequence: the first counts
    return [newer, dropped, *a_life("over", cluster_id=cluster_id), older]


@pytest.fixture(params=["redis", "topic"])
def source(request: pytest.FixtureRequest, kafka: EmbeddedKafka, redis_server: EmbeddedRedis) -> Iterator[list[str]]:
    cluster_id = unique("status")
    if request.param == "topic":
        config, topic = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
        ensure_topic(config, topic)
        KafkaEventSink(config, topic).deliver(the_events(cluster_id))
        yield ["--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic]
        return
    view = RedisView(redis_server.url, "*")
    view.empty()
    with closing(RedisEventSink(redis_server.url, cluster_id)) as sink:
        sink.has_lost_everything()
        sink.deliver(the_events(cluster_id))
        yield ["--redis-url", redis_server.url]
    view.empty()
    view.close()


def test_the_open_incidents_as_json(source: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *source, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["command"], document["complete"]) == ("status", True)
    assert [(row["incident_id"], row["verdict"], row["stopped_groups"]) for row in document["rows"]] == [
        ("older", "late", []),
        ("newer", "hanging", ["billing"]),
    ]


def test_the_open_incidents_as_a_table(source: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *source]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["late", "hanging"]
    assert "billing" in lines[2]
    assert "suggested_command: kafka-transactions.sh --bootstrap-server 'b:9092' abort" in lines


def test_found_something_is_exit_code_3_where_it_is_asked_for(source: list[str]) -> None:
    assert main(["status", *source, "--fail-on-found"]) == 3


def test_nothing_wrong_is_said_and_clean(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    topic = unique("events")
    ensure_topic({"bootstrap.servers": kafka.bootstrap_servers}, topic)
    flags = ["--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic, "--fail-on-found"]
    assert main(["status", *flags]) == 0
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == "no open incident is told; whether `txnwatch run` watches now, its metrics tell"


def test_a_redis_that_has_lost_an_incident_is_no_all_clear(
    redis_server: EmbeddedRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_id, view = unique("status"), RedisView(redis_server.url, "*")
    view.empty()
    with closing(RedisEventSink(redis_server.url, cluster_id)) as sink, closing(view):
        sink.has_lost_everything()
        sink.deliver([an_event("evicted", cluster_id=cluster_id), an_event("odd", cluster_id=cluster_id)])
        view.evict(f"txnwatch:{cluster_id}:incident:evicted")
        view.set_field(f"txnwatch:{cluster_id}:incident:odd", "evidence", "null")
        assert main(["status", "--redis-url", redis_server.url, "--fail-on-found"]) == 1
        told = capsys.readouterr().out
        view.empty()
    assert "incident:evicted: an open incident, and its hash is gone" in told
    assert "incident:odd: expected the fields of an incident event" in told
    assert told.splitlines()[-1] == "no open incident was read, but not all could be read"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("127.0.0.1:6379", "127.0.0.1:6379"),
        ("redis://me:secret@h:x/0", "redis://***@h:x/0"),
        ("me:secret@h:1", "***@h:1"),
    ],
)
def test_a_redis_url_that_is_none_is_usage(url: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", "--redis-url", url])
    assert ended.value.code == 2
    assert capsys.readouterr().err.endswith(f"expected redis://[[user]:password@]host:port/db, found {shown!r}\n")


def test_an_empty_redis_is_no_all_clear(redis_server: EmbeddedRedis, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(RedisView(redis_server.url, "*")) as view:
        view.empty()
    assert main(["status", "--redis-url", redis_server.url]) == 1
    assert "holds nothing of txnwatch" in capsys.readouterr().err


def test_a_redis_that_is_away_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--redis-url", "redis://:secret@127.0.0.1:1/0"]) == 1
    told = capsys.readouterr().err
    assert "127.0.0.1:1" in told
    assert "secret" not in told


def test_neither_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    assert "expected --redis-url or --bootstrap-server" in capsys.readouterr().err
