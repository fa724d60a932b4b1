"""Records of the events topic whose headers no reader may touch: names that are not UTF-8, before and after others."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from support.batches import a_batch, a_record
from support.incidents import an_event, id_of
from support.raw_append import append
from support.topics import is_led, unique
from support.waiting import eventually
from txnwatch.cli.main import main
from txnwatch.sinks.delivery.encoding import FORMATS, Keys, read_keys
from txnwatch.sinks.delivery.event_log import EventLog, read_events
from txnwatch.sinks.delivery.events_topic import KafkaEventsTopic, ensure_topic
from txnwatch.state.model.errors import BadEventError, SkipReason
from txnwatch.state.model.values import TopicPartition
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

BAD = (b"\xff\xfe", b"v")
HEADERS = {
    "one": [BAD],
    "before many": [BAD, *((f"h-{number}", b"v") for number in range(3_000))],
    "many": [BAD] * 200,
}
RECORDS = 50


@pytest.fixture
def config(kafka: EmbeddedKafka) -> dict[str, str]:
    return {"bootstrap.servers": kafka.bootstrap_servers}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text("a" * 64)
    path.chmod(0o600)
    return path


@pytest.fixture
def topic(config: dict[str, str], cluster: Cluster, key_file: Path, headers: str) -> str:
    """A topic with a signed event, then records with such headers, then a signed event."""
    name = unique("events")
    ensure_topic(config, name)
    partition = TopicPartition(name, 0)
    eventually(lambda: is_led(cluster, partition), 10.0, "a leader of the topic")
    info = cluster.known.info(partition)
    assert info is not None
    record = a_record(key=id_of("foreign").encode(), value=b"{}", headers=HEADERS[headers])
    batch = a_batch(
        records=[record],
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        transactional=False,
        base_timestamp=time.time_ns() // 1_000_000,
    )
    with closing(KafkaEventsTopic(config, name, keys=read_keys(key_file))) as sink:
        sink.publish([an_event("before")])
        for _ in range(RECORDS):
            append(cluster.node(info.leader), partition, batch)
        sink.publish([an_event("after")])
    return name


def whys(found: list[object]) -> list[SkipReason]:
    return [one.why for one in found if isinstance(one, BadEventError)]


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize("is_signed", [True, False], ids=["with keys", "without keys"])
def test_a_header_name_that_is_not_text_stops_no_reader(
    config: dict[str, str], topic: str, key_file: Path, *, is_signed: bool
) -> None:
    keys: Keys | None = read_keys(key_file) if is_signed else None
    why = SkipReason.UNSIGNED if is_signed else SkipReason.INVALID
    for _ in range(3):
        found: list[object] = list(read_events(config, topic, keys=keys))
        assert [one for one in found if not isinstance(one, BadEventError)] == [an_event("before"), an_event("after")]
        assert whys(found) == [why] * RECORDS


@pytest.mark.parametrize("headers", ["before many"])
def test_a_header_name_that_is_not_text_stops_no_tail(config: dict[str, str], topic: str, key_file: Path) -> None:
    keys = read_keys(key_file)
    with closing(EventLog(config, topic, keys=keys)) as log:
        assert whys(list(log.history())) == [SkipReason.UNSIGNED] * RECORDS
        with closing(KafkaEventsTopic(config, topic, keys=keys)) as sink:
            sink.publish([an_event("later")])
        found: list[object] = []
        until = time.monotonic() + 10.0
        while not found and time.monotonic() < until:
            found += log.new_records()
        assert found == [an_event("later")]


@pytest.mark.parametrize("headers", ["before many"])
def test_the_commands_count_such_records(
    config: dict[str, str], topic: str, key_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--bootstrap-server", config["bootstrap.servers"], "--events-topic", topic)
    main(["events", *flags, "--events-key-file", str(key_file)])
    output = capsys.readouterr()
    assert f"skipped {RECORDS} records of the events topic (unsigned)" in output.err
    assert len(output.out.splitlines()) == 2


@pytest.mark.parametrize("encoding", FORMATS)
def test_a_reader_without_a_key_reads_a_signed_event_in_every_encoding(
    config: dict[str, str], key_file: Path, encoding: str
) -> None:
    name = unique("events")
    ensure_topic(config, name)
    with closing(KafkaEventsTopic(config, name, FORMATS[encoding], keys=read_keys(key_file))) as sink:
        sink.publish([an_event(encoding)])
    for keys in (None, read_keys(key_file)):
        assert list(read_events(config, name, keys=keys)) == [an_event(encoding)]
