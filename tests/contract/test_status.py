"""`txnwatch status` has the same output from Redis and from the events topic, and its exit code can be relied on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from support.heartbeats import a_heartbeat
from support.incidents import OPEN_SINCE_MS, a_life, an_event, id_of
from support.redis_view import RedisView
from support.topics import unique
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import read_keys
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.state.incidents.heartbeat import Heartbeat
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.streaming.client.clock import wall_clock_ms
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

WHOLE: dict[str, Any] = {"unproven_partitions": 0, "unproven_names": ()}
GROUP = {"group_id": "billing", "state": "stopped", "committed_offset": 99, "hidden_lag": 21}
WAITING = {"group_id": "stream", "partitions": ("orders-0",)}


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
    newer = an_event("newer", cluster_id=cluster_id, consumer_groups=(GROUP,), waiting_groups=(WAITING,))
    dropped = replace(newer, consumer_groups=(), time_ms=newer.time_ms + 1)  # of the same sequence: the first counts
    return [newer, dropped, *a_life("over", cluster_id=cluster_id), older]


@dataclass(frozen=True)
class Source:
    """Where a watch publishes its events, and the flags with which a command finds them."""

    cluster_id: str
    flags: list[str]
    deliver: Callable[[list[IncidentEvent]], None]
    beat: Callable[[Heartbeat], None]


@pytest.fixture(params=["redis", "topic"])
def place(request: pytest.FixtureRequest, kafka: EmbeddedKafka, redis_server: EmbeddedRedis) -> Iterator[Source]:
    cluster_id = unique("status")
    if request.param == "topic":
        config, topic = {"bootstrap.servers": kafka.bootstrap_servers}, unique("events")
        ensure_topic(config, topic)
        with closing(KafkaEventsTopic(config, topic)) as published:
            flags = ["--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic]
            yield Source(cluster_id, flags, published.publish, lambda beat: beat_and_wait(published, beat))
        return
    with closing(RedisView(redis_server.url, "*")) as view:
        view.empty()
        with closing(RedisMirror(redis_server.url, cluster_id)) as sink:
            sink.has_lost_everything()
            yield Source(cluster_id, ["--redis-url", redis_server.url], sink.deliver, sink.beat)
        view.empty()


def beat_and_wait(sink: KafkaEventsTopic, beat: Heartbeat) -> None:
    sink.beat(beat)
    sink.publish([])  # a heartbeat is not waited for, a test does


def a_beat(place: Source, **changes: Any) -> Heartbeat:
    """Of now, and of a watcher that reaches everything."""
    now_ms = wall_clock_ms()
    of_now = {"cluster_id": place.cluster_id, "time_ms": now_ms, "evaluated_ms": now_ms}
    return a_heartbeat(**{**of_now, **WHOLE, **changes})


@pytest.fixture
def source(place: Source) -> list[str]:
    """Two open incidents, one that is over, and a watcher."""
    place.deliver(the_events(place.cluster_id))
    place.beat(a_beat(place))
    return place.flags


def asked(flags: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["status", *flags, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_open_incidents_as_json(source: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, document = asked(source, capsys)
    assert code == 0
    assert (document["command"], document["complete"]) == ("status", True)
    assert [row["waiting_groups"] for row in document["rows"]] == [[], ["stream"]]
    assert [(row["incident_id"], row["verdict"], row["stopped_groups"]) for row in document["rows"]] == [
        (id_of("older"), "late", []),
        (id_of("newer"), "hanging", ["billing"]),
    ]


def test_the_open_incidents_as_a_table(source: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *source]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["late", "hanging"]
    assert "billing" in lines[2]
    commands = [line for line in lines if line.startswith("next: ")]
    assert not [line for line in commands if "b:9092" in line], "the published command is not the command that is shown"
    is_reachable = "--bootstrap-server" in source
    made_here = "next: txnwatch explain --topic orders --partition 3"
    assert any(line.startswith(made_here) for line in commands) is is_reachable


def test_found_something_is_exit_code_3_where_it_is_asked_for(source: list[str]) -> None:
    assert main(["status", *source, "--fail-on-found"]) == 3


def test_no_incident_and_an_active_watcher(place: Source, capsys: pytest.CaptureFixture[str]) -> None:
    place.beat(a_beat(place))
    assert main(["status", *place.flags, "--fail-on-found"]) == 0
    *_, watcher, summary = capsys.readouterr().out.splitlines()
    assert watcher.startswith(f"watcher host:/checkpoint (0.9) of cluster {place.cluster_id}: evaluated barrier 812 ")
    reach = "120 partitions scanned, 30 by census, 0 unproven, at most 12 offsets behind, coordinator view log"
    assert watcher.endswith(reach)
    assert summary == "no open incident; a watcher is active"


def test_an_active_watcher_that_reads_a_part_of_the_coordinators_log(
    place: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("__transaction_state-7", "orders-1", "orders-2")
    partly = a_beat(place, unproven_partitions=4, unproven_names=names, unread_log_partitions=1)
    place.beat(partly)
    assert main(["status", *place.flags, "--fail-on-found"]) == 1
    *_, log, data, watcher, summary = capsys.readouterr().out.splitlines()
    who = f"watcher host:/checkpoint of cluster {place.cluster_id}"
    assert log == (
        f"not checked: __transaction_state-7: {who} cannot read this part of the coordinators' log, "
        "so nothing is proven about its ids"
    )
    assert data == f"not checked: orders-1, orders-2, 1 more partition: {who} proves nothing there"
    assert "4 unproven (__transaction_state-7, orders-1, orders-2 and 1 more), 1 of them of the coord" in watcher
    assert (
        summary == "no open incident; a watcher is active, but it proves nothing on the partitions that are not checked"
    )
    place.beat(replace(partly, time_ms=partly.time_ms + 1, is_coordinator_read=False))
    code, document = asked(place.flags, capsys)
    assert (code, document["complete"]) == (1, False)
    assert [missing["what"] for missing in document["not_checked"]] == [f"cluster {place.cluster_id}"]


def test_a_silent_watcher_of_other_topics_leaves_its_partitions_unchecked(
    place: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    silent_ms = wall_clock_ms() - 120_000
    silent = {"instance": "gone:/checkpoint", "time_ms": silent_ms, "evaluated_ms": silent_ms}
    place.beat(a_beat(place, topics_digest="orders", scanned_partitions=900, census_partitions=0, **silent))
    place.beat(a_beat(place, topics_digest="payments"))
    assert main(["status", *place.flags, "--fail-on-found"]) == 1
    assert capsys.readouterr().out.splitlines()[1] == (
        f"not checked: 900 partitions: watcher gone:/checkpoint of cluster {place.cluster_id} is silent, and no active "
        "watcher has the same settings of topics"
    )
    place.beat(a_beat(place, instance="b:/checkpoint", topics_digest="orders"))
    assert main(["status", *place.flags, "--fail-on-found"]) == 0


def test_it_is_said_if_no_watcher_of_some_topics_publishes(place: Source, capsys: pytest.CaptureFixture[str]) -> None:
    place.beat(a_beat(place, topics_digest="orders", speaks=False))
    place.beat(a_beat(place, topics_digest="payments", instance="other:/checkpoint", speaks=True))
    assert main(["status", *place.flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.endswith(", publishes the events")] == ["other:/checkpoint"]
    nobody = f"no watcher of cluster {place.cluster_id} publishes events: one takes over within 10 s, unless another"
    assert nobody in lines[-1]
    place.beat(a_beat(place, topics_digest="orders", instance="b:/checkpoint", speaks=True))
    assert main(["status", *place.flags]) == 0
    assert nobody not in capsys.readouterr().out


def test_no_incident_and_no_active_watcher(place: Source, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *place.flags, "--fail-on-found"]) == 4
    output = capsys.readouterr().out.splitlines()[-1]
    assert output == "no open incident; no watcher is active: no heartbeat was found here"


def test_the_last_watcher_and_its_time_are_shown_when_none_is_active(
    place: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    place.beat(a_beat(place, evaluated_ms=wall_clock_ms() - 2 * 3_600_000, time_ms=wall_clock_ms() - 2 * 3_600_000))
    assert main(["status", *place.flags]) == 4
    *_, watcher, summary = capsys.readouterr().out.splitlines()
    assert "watcher host:/checkpoint (0.9)" in watcher
    assert "evaluated barrier 812 2h00m ago" in watcher
    assert f"no watcher of cluster {place.cluster_id} is active" in summary


def test_an_open_incident_without_an_active_watcher_is_found(place: Source) -> None:
    place.deliver(the_events(place.cluster_id))
    assert main(["status", *place.flags, "--fail-on-found"]) == 3
    assert main(["status", *place.flags]) == 4


def test_all_watchers_are_listed_and_a_heartbeat_from_the_future_is_ignored(
    place: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    place.beat(a_beat(place, instance="odd\x1b[2J", time_ms=wall_clock_ms() + 3_600_000))
    assert asked(place.flags, capsys)[0] == 4
    place.beat(a_beat(place, instance="one"))
    place.beat(a_beat(place, instance="two", is_coordinator_read=False))
    code, document = asked(place.flags, capsys)
    assert code == 0
    assert {one["instance"]: one["is_active"] for one in document["watchers"]} == {
        "odd\x1b[2J": False,
        "one": True,
        "two": True,
    }
    assert main(["status", *place.flags]) == 0
    assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_heartbeats_have_to_be_signed_where_there_is_a_key(
    kafka: EmbeddedKafka, redis_server: EmbeddedRedis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_id, topic, now_ms = unique("status"), unique("events"), wall_clock_ms()
    path = tmp_path / "keys"
    path.write_text("k" * 64)
    path.chmod(0o600)
    beat = a_heartbeat(cluster_id=cluster_id, time_ms=now_ms, evaluated_ms=now_ms, **WHOLE)
    config = {"bootstrap.servers": kafka.bootstrap_servers}
    ensure_topic(config, topic)
    with closing(RedisView(redis_server.url, "*")) as view:
        view.empty()
    for keys, code in ((None, 4), (read_keys(path), 0)):
        with closing(KafkaEventsTopic(config, topic, keys=keys)) as sink:
            beat_and_wait(sink, beat)
        with closing(RedisMirror(redis_server.url, cluster_id, keys)) as shown:
            shown.has_lost_everything()
            shown.beat(beat)
        for flags in (
            ["--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic],
            ["--redis-url", redis_server.url],
        ):
            answered = main(["status", *flags, "--events-key-file", str(path)])
            output = capsys.readouterr().out
            assert ("unsigned" in output) is (code == 4 or "--events-topic" in flags), output
            assert answered == (code or ("unsigned" in output)), output


def test_many_bad_records_are_one_line(kafka: EmbeddedKafka, capsys: pytest.CaptureFixture[str]) -> None:
    topic, config = unique("events"), {"bootstrap.servers": kafka.bootstrap_servers}
    ensure_topic(config, topic)
    producer = Producer(config)
    for number in range(2_000):
        producer.produce(topic, key=f"k{number}", value=b"[" * 100_000 if number % 100 == 0 else b"{}\x1b[2J")
    producer.flush(30.0)
    flags = ["--bootstrap-server", kafka.bootstrap_servers, "--events-topic", topic]
    assert main(["status", *flags]) == 4
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if "records of" in line]) == 1
    assert "2000 records of" in " ".join(lines)
    assert main(["events", *flags]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert line.startswith("txnwatch: warning: skipped 2000 records of the events topic (undecodable), the last: ")
    assert line.isprintable()


def test_a_redis_that_has_lost_an_incident_is_no_all_clear(
    redis_server: EmbeddedRedis, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_id, view = unique("status"), RedisView(redis_server.url, "*")
    view.empty()
    names = ("evicted", "odd", "deep", "typed", "another")
    evicted, odd, deep, typed, another = (f"txnwatch:{{{cluster_id}}}:incident:{id_of(name)}" for name in names)
    with closing(RedisMirror(redis_server.url, cluster_id)) as sink, closing(view):
        sink.has_lost_everything()
        sink.deliver([an_event(name, cluster_id=cluster_id) for name in names])
        view.evict(evicted)
        view.set_field(odd, "evidence", "null")
        view.set_field(deep, "evidence", "[" * 100_000)
        view.set_field(another, "incident_id", id_of("one"))
        view.evict(typed)
        view.set_text(typed, "no hash")
        now_ms = wall_clock_ms()
        sink.beat(a_heartbeat(cluster_id=cluster_id, time_ms=now_ms, evaluated_ms=now_ms, **WHOLE))
        view.set_field(f"txnwatch:{{{cluster_id}}}:heartbeat:{'0' * 32}", "heartbeat", "[" * 100_000)
        assert main(["status", "--redis-url", redis_server.url, "--fail-on-found"]) == 1
        output = capsys.readouterr().out
        view.empty()
    assert f"{evicted}: an open incident without its hash" in output
    assert f"{odd}: expected an incident event: evidence has an invalid value" in output
    assert f"{deep}: expected an incident event: evidence is not valid JSON" in output
    assert f"{another}: expected the incident of its own key, found another" in output
    assert f"{typed}: WRONGTYPE" in output
    assert "heartbeat:000" in output
    assert output.splitlines()[-1] == "no open incident was read, but not everything could be read; a watcher is active"


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
    assert "has no keys of txnwatch" in capsys.readouterr().err


def test_a_redis_that_is_away_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--redis-url", "redis://:secret@127.0.0.1:1/0"]) == 1
    output = capsys.readouterr().err
    assert "127.0.0.1:1" in output
    assert "secret" not in output


def test_neither_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    assert "expected --redis-url or --bootstrap-server" in capsys.readouterr().err
