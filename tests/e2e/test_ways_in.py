"""Every way in, with the commands that users run: `doctor`, `find-hanging`, `run` and `abort`. None shows a secret."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.canaries import Canaries
from support.certificates import Authority
from support.raw_producer import RawProducer
from support.secured_kafka import flags_of, hang, start_secured
from support.servers import Clusters, connect
from support.topics import unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from support.way_results import WayResults
from support.ways import WAYS, Broker, Way
from support.wire import WireTap
from txnwatch.cli.main import main
from txnwatch.state.model.incident import IncidentEvent
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long
NAME = "ways-in-of-users"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    made = Broker(tmp_path_factory.mktemp(NAME))
    with made.tokens:
        yield made


@pytest.fixture(scope="module")
def secured(clusters: Clusters, broker: Broker) -> Iterator[EmbeddedKafka]:
    yield start_secured(clusters, broker, NAME)
    clusters.end(NAME)


@pytest.mark.parametrize("name", WAYS)
def test_a_way_in_works_with_every_command_and_shows_no_secret(
    broker: Broker,
    secured: EmbeddedKafka,
    name: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    results = WayResults(request.config.getoption("--ways-results"), name)
    way = broker.ways()[name]
    canaries = Canaries(*way.secrets)
    flags = flags_of(secured, way, tmp_path)
    partition, producer, transactional_id = hang(secured)
    events = ["--events-topic", f"{partition.topic}-events"]

    def shown() -> str:
        text = "".join(capfd.readouterr())
        assert canaries.in_text(text) == []
        return text

    main(["doctor", *flags, *events])
    assert "\n0 missing" in (text := shown()), text
    results.keep("doctor")

    main(["find-hanging", *flags])
    assert transactional_id in (text := shown()), text
    results.keep("find-hanging")

    def about() -> list[IncidentEvent]:
        return events_about(secured.bootstrap_servers, partition, events[1])

    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    rest = [*flags[2:], *events, "--topics", partition.topic, "--http-port", "0"]
    with wire_of(flags[1], canaries) as is_read, RunningWatch(flags[1], tmp_path / "checkpoint", *rest) as watch:
        eventually(about, 120.0, lambda: f"an event; log: {watch.lines[-10:]}")
        assert canaries.in_processes(watch.pid) == {}
        with urllib.request.urlopen(watch.metrics_url, timeout=10.0) as answer:
            assert canaries.in_text(answer.read().decode()) == []
        assert list(temporary.glob("txnwatch-spark-*/blockmgr-*")), "Spark uses it"
        assert canaries.in_files(tmp_path / "checkpoint", temporary) == {}
    assert canaries.in_text("\n".join(watch.lines)) == []
    assert about()[0].transactional_id == transactional_id
    assert canaries.in_text(repr(about())) == []
    results.keep("run")

    with contextlib.closing(connect(secured)) as cluster:
        RawProducer(cluster, transactional_id).init()  # the application starts again: its old epoch is fenced
    which = ["--topic", partition.topic, "--partition", "0", "--producer-id", str(producer.producer_id)]
    assert main(["abort", *flags, *events, *which, "--yes"]) == 0, shown()
    shown()
    assert any(event.action is not None for event in about())
    results.keep("abort")
    results.keep("secrets", "none found" if is_read else "none found; packets not read")


@contextlib.contextmanager
def wire_of(address: str, canaries: Canaries) -> Iterator[bool]:
    """Packets to and from a broker have no secret; whether this user may read them."""
    host, _, port = address.rpartition(":")
    try:
        tap = WireTap(host, canaries.texts, int(port))
    except (OSError, AttributeError):  # this user may not read packets
        yield False
        return
    with tap:
        yield True
    assert tap.packets > 100, "the packets were read"
    assert tap.found == set()


def test_a_refused_login_of_aws_shows_no_secret(
    broker: Broker,
    secured: EmbeddedKafka,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is no broker of MSK here: this one refuses the signed token."""
    secrets = {
        "AWS_SECRET_ACCESS_KEY": "kanarienvogel-of-aws",
        "AWS_SESSION_TOKEN": "kanarienvogel-of-a-session",
    }
    for variable, value in {**secrets, "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_REGION": "us-west-2"}.items():
        monkeypatch.setenv(variable, value)
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    }
    canaries = Canaries(*secrets.values())
    flags = flags_of(secured, Way("TOKEN", login | broker.trust(), tuple(secrets.values())), tmp_path)
    for command in (["doctor"], ["find-hanging"], ["run", "--checkpoint", str(tmp_path / "checkpoint")]):
        assert main([*command[:1], *flags, *command[1:]]) != 0
        text = "".join(capfd.readouterr())
        assert "AWS credentials" in text
        assert canaries.in_text(text) == []
    assert canaries.in_files(tmp_path) == {}


def test_renewed_certificates_are_used_by_all_connections_without_a_restart(
    broker: Broker, secured: EmbeddedKafka, tmp_path: Path
) -> None:
    """At the end the broker refuses the old certificate, and an event goes through: both kinds of connections work."""
    successor, keys = Authority(tmp_path, "successor").create(), tmp_path / "keys.pem"
    keys.write_text(broker.client_keys.read_text())
    name = "TLS, PEM truststore and keystore"
    properties = {**broker.ways()[name].properties, "ssl.keystore.location": str(keys)}
    flags = flags_of(secured, Way("MUTUAL", properties, ()), tmp_path)
    topic = unique("renewed")
    events = ["--events-topic", f"{topic}-events", "--topics", topic]
    restart(secured, broker, broker.authority, successor)
    try:
        with RunningWatch(flags[1], tmp_path / "checkpoint", *flags[2:], *events) as watch:
            watch.until("ready: ")
            keys.write_text(successor.issue("renewed", "DNS:client").read_text())
            watch.until("the certificate files have changed, and the query starts again")
            watch.until("ready: ", times=2)
            restart(secured, broker, successor)
            partition, *_ = hang(secured, topic)
            eventually(lambda: events_about(secured.bootstrap_servers, partition, events[1]), 120.0, "an event")
            assert watch.stop() == 0
    finally:
        restart(secured, broker, broker.authority)


def restart(secured: EmbeddedKafka, broker: Broker, *trusted: Authority) -> None:
    """Starts the broker again; afterwards it takes only client certificates of these authorities."""
    broker.trust_clients_of(*trusted)
    secured.broker(1).stop()
    secured.start_broker(1)
