"""SASL GSSAPI with a real KDC: our own connection authenticates, and what needs the events topic is refused clearly."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.canaries import Canaries
from support.kafka_faults import late_write_after_abort
from support.kdc import REALM, Kdc, missing_program
from support.raw_producer import RawProducer
from support.servers import Clusters, connect, create_coordinators
from support.topics import create_topic, unique
from support.way_results import WayResults
from support.ways import WITH_KERBEROS
from txnwatch.cli.main import main
from txnwatch.state.model.errors import BrokerError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC
from txnwatch.streaming.client.cluster import Cluster
from txnwatch.streaming.source.options import SourceOptions, parse_options
from txnwatch_demo.embedded.real_servers import EmbeddedKafka
from txnwatch_demo.late_write import set_verification

pytest.importorskip("gssapi", reason="the extra txnwatch[kerberos] is not installed")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(missing_program() is not None, reason=f"no {missing_program()}: apt-get install krb5-kdc"),
]
NAME = "kerberos"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with Kdc(tmp_path_factory.mktemp("kdc")) as started, pytest.MonkeyPatch.context() as patched:
        patched.setenv("KRB5_CONFIG", str(started.config))
        yield started


@pytest.fixture(scope="module")
def secured(clusters: Clusters, kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    principal = "kafka/127.0.0.1"
    jaas = f'{MODULE} keyTab="{kdc.keytab(principal)}" principal="{principal}@{REALM}";'
    prefix = "listener.name.login"
    properties = {
        f"{prefix}.sasl.enabled.mechanisms": "GSSAPI",
        f"{prefix}.sasl.kerberos.service.name": "kafka",
        f"{prefix}.gssapi.sasl.jaas.config": jaas,
    }
    directory = tmp_path_factory.mktemp(NAME)
    started = clusters.start(
        NAME,
        lambda: EmbeddedKafka(
            directory,
            listeners={"LOGIN": "SASL_PLAINTEXT"},
            properties=properties,
            system_properties={"java.security.krb5.conf": str(kdc.config)},
        ),
    )
    set_verification(started.bootstrap_servers, [1], enabled=False)
    create_coordinators(started)
    yield started
    clusters.end(NAME)


def client_properties(keytab: Path, principal: str = f"alice@{REALM}") -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} keyTab="{keytab}" principal="{principal}";',
    }


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    return kdc.keytab("alice")


def options_for(secured: EmbeddedKafka, properties: dict[str, str]) -> SourceOptions:
    options = {f"kafka.{name}": value for name, value in properties.items()}
    return parse_options({**options, "kafka.bootstrap.servers": secured.listener("LOGIN"), "subscribePattern": ".*"})


def test_a_keytab_opens_our_own_connection(secured: EmbeddedKafka, keytab: Path) -> None:
    options = options_for(secured, client_properties(keytab))
    with contextlib.closing(Cluster(options.bootstrap, options.security)) as cluster:
        assert TRANSACTION_STATE_TOPIC in cluster.refresh().topics


def test_a_principal_that_is_not_in_the_keytab_is_a_clear_error(secured: EmbeddedKafka, keytab: Path) -> None:
    options = options_for(secured, client_properties(keytab, f"mallory@{REALM}"))
    with (
        contextlib.closing(Cluster(options.bootstrap, options.security)) as cluster,
        pytest.raises(BrokerError, match=r"Kerberos for kafka@127\.0\.0\.1: .*"),
    ):
        cluster.refresh()


@pytest.fixture
def flags(secured: EmbeddedKafka, keytab: Path, tmp_path: Path) -> list[str]:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in client_properties(keytab).items()))
    return ["--bootstrap-server", secured.listener("LOGIN"), "--command-config", str(path)]


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> WayResults:
    return WayResults(request.config.getoption("--ways-results"), WITH_KERBEROS)


def test_commands_without_the_events_topic_work(
    secured: EmbeddedKafka, flags: list[str], capsys: pytest.CaptureFixture[str], results: WayResults
) -> None:
    with contextlib.closing(connect(secured)) as cluster:
        (partition,) = create_topic(cluster, unique("kerberos"))
        producer = late_write_after_abort(cluster, "of-kerberos", partition)
    assert main(["doctor", *flags, "--format", "json"]) == 1
    rows = json.loads((shown := capsys.readouterr()).out)["rows"]
    missing = [row["subject"] for row in rows if row["status"] == "missing"]
    assert missing == ["confluent-kafka"], shown.out + shown.err
    results.keep("doctor", "works, names what `run` needs")
    main(["find-hanging", *flags])
    assert "of-kerberos" in capsys.readouterr().out
    results.keep("find-hanging")
    with contextlib.closing(connect(secured)) as cluster:
        RawProducer(cluster, "of-kerberos").init()  # the application starts again: its old epoch is fenced
    which = ["--topic", partition.topic, "--partition", "0", "--producer-id", str(producer.producer_id)]
    assert main(["abort", *flags, *which, "--yes"]) == 0, "".join(capsys.readouterr())
    results.keep("abort", "works without an events topic")


def test_the_events_topic_is_refused_with_the_reason_before_spark_starts(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], results: WayResults
) -> None:
    assert main(["run", *flags, "--checkpoint", str(tmp_path / "checkpoint")]) == 2
    assert "expected a confluent-kafka that is built with GSSAPI" in capsys.readouterr().err
    results.keep("run", "refused, with the reason")


def test_no_key_of_the_keytab_is_shown_or_left_behind(
    flags: list[str], keytab: Path, tmp_path: Path, results: WayResults
) -> None:
    left = tmp_path / "left"
    left.mkdir()
    environ = {**os.environ, "TMPDIR": str(left), "KRB5CCNAME": f"FILE:{left}/tickets"}
    canaries = Canaries(*Kdc.keys(keytab))
    assert canaries.in_files(keytab.parent).keys() >= {str(keytab)}, "the search finds a key where there is one"
    for command in (["doctor"], ["find-hanging"], ["run", "--checkpoint", str(left / "checkpoint")]):
        line = [sys.executable, "-P", "-m", "txnwatch", *command, *flags]
        done = subprocess.run(line, env=environ, capture_output=True, check=False)
        assert canaries.in_text((done.stdout + done.stderr).decode("latin-1")) == []
    assert canaries.in_files(left) == {}
    assert not (left / "tickets").exists(), "tickets stay in memory"
    results.keep("secrets", "none found")
