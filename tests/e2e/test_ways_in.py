"""Every way in, with the commands that users run: `doctor`, `find-hanging`, `run` and `abort`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka_faults import late_write_after_abort
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from support.way_results import WayResults
from support.ways import WAYS, Broker, Way
from txnwatch.cli.main import main
from txnwatch.state.model.ids import TopicPartition
from txnwatch.state.model.incident import IncidentEvent
from txnwatch_demo.embedded.kafka import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

pytestmark = pytest.mark.long
NAME = "ways-in-of-users"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp(NAME))
    with made.tokens:
        yield made


@pytest.fixture(scope="module")
def secured(clusters: Clusters, broker: Broker) -> Iterator[EmbeddedKafka]:
    started = clusters.start(NAME, broker.kafka)
    broker.add_users(started)
    set_verification(started.bootstrap_servers, [1], enabled=False)
    create_coordinators(started)
    yield started
    clusters.end(NAME)


def hang(secured: EmbeddedKafka) -> tuple[TopicPartition, RawProducer, str]:
    transactional_id = unique("way")
    with contextlib.closing(connect(secured)) as cluster:
        (partition,) = create_topic(cluster, unique("ways"))
        return partition, late_write_after_abort(cluster, transactional_id, partition), transactional_id


def flags_of(secured: EmbeddedKafka, way: Way, directory: Path) -> list[str]:
    path = directory / "client.properties"
    values = {name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in way.properties.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return ["--bootstrap-server", secured.listener(way.listener), "--command-config", str(path)]


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in_works_with_every_command(
    broker: Broker,
    secured: EmbeddedKafka,
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    results = WayResults(request.config.getoption("--ways-results"), name)
    way = broker.ways()[name]
    flags = flags_of(secured, way, tmp_path)
    partition, producer, transactional_id = hang(secured)
    events = ["--events-topic", f"{partition.topic}-events"]

    main(["doctor", *flags, *events])
    shown = capsys.readouterr()
    assert "\n0 missing" in shown.out, shown.out + shown.err
    results.keep("doctor")

    main(["find-hanging", *flags])
    shown = capsys.readouterr()
    assert transactional_id in shown.out, shown.out + shown.err
    results.keep("find-hanging")

    def about() -> list[IncidentEvent]:
        return events_about(secured.bootstrap_servers, partition, events[1])

    rest = [*flags[2:], *events, "--topics", partition.topic]
    with RunningWatch(flags[1], tmp_path / "checkpoint", *rest) as watch:
        eventually(about, 120.0, lambda: f"an event; log: {watch.lines[-10:]}")
    assert about()[0].transactional_id == transactional_id
    results.keep("run")

    with contextlib.closing(connect(secured)) as cluster:
        RawProducer(cluster, transactional_id).init()  # the application starts again: its old epoch is fenced
    which = ["--topic", partition.topic, "--partition", "0", "--producer-id", str(producer.producer_id)]
    assert main(["abort", *flags, *events, *which, "--yes"]) == 0, "".join(capsys.readouterr())
    assert any(event.action is not None for event in about())
    results.keep("abort")


def test_renewed_certificates_are_used_by_all_connections_without_a_restart(
    broker: Broker, secured: EmbeddedKafka, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.pem"
    keys.write_text(broker.client_keys.read_text())
    name = "TLS, PEM truststore and keystore"
    properties = {**broker.ways()[name].properties, "ssl.keystore.location": str(keys)}
    flags = flags_of(secured, Way("MUTUAL", properties), tmp_path)
    topic = unique("renewed")
    events = ["--events-topic", f"{topic}-events", "--topics", topic]
    with RunningWatch(flags[1], tmp_path / "checkpoint", *flags[2:], *events) as watch:
        watch.until("ready: ")
        keys.write_text(broker.authority.issue("renewed", "DNS:client").read_text())
        watch.until("the certificate files have changed, and the query starts again")
        watch.until("ready: ", times=2)
        assert watch.stop() == 0
