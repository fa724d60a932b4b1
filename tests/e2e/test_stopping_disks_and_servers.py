"""SIGTERM ends `txnwatch run` within three seconds while a disk is full or slow, or a server does not answer.

`make stop-times` writes docs/stop-times.json.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.bad_servers import bad_server, stays_silent
from support.connections import is_connected, until_spark_reaches
from support.forwarder import Forwarder
from support.hdfs import EmbeddedHdfs
from support.kafka_faults import late_write_after_abort
from support.metrics import Scrape
from support.secured_kafka import flags_of, start_secured
from support.servers import Clusters
from support.shim import Shim, compiler
from support.small_disks import full, on_disks, refusal
from support.stop_times import StopTimes
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch
from support.ways import Broker, Way
from txnwatch.streaming.client.cluster import Cluster
from txnwatch_demo.embedded.real_servers import EmbeddedKafka

pytestmark = pytest.mark.long

FULL = {"checkpoint": "the disk of the checkpoint is full", "scratch": "the disk of Spark's local directories is full"}
SLOW_MS = 100
TOKEN_LIFE_S = 15.0
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


@pytest.fixture
def secured(clusters: Clusters, tmp_path: Path) -> Iterator[EmbeddedKafka]:
    """A broker that takes tokens."""
    listener = "listener.name.tokens"
    properties = {
        f"{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}.oauthbearer.sasl.jaas.config": f'{OAUTH} unsecuredLoginStringClaim_sub="broker";',
    }
    yield clusters.start(
        "tokens", lambda: EmbeddedKafka(tmp_path, listeners={"TOKENS": "SASL_PLAINTEXT"}, properties=properties)
    )
    clusters.end("tokens")


def a_watch(bootstrap: str, directory: Path, *flags: str) -> RunningWatch:
    return RunningWatch(bootstrap, directory / "checkpoint", "--events-topic", unique("stopping.events"), *flags)


@pytest.mark.parametrize("disk", FULL)
def test_while_a_disk_is_full(
    stop_times: StopTimes, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: str
) -> None:
    disks = {name: tmp_path / name for name in FULL}
    why = refusal(tmp_path / "probe")
    if why is not None:
        pytest.skip(why)
    for place in disks.values():
        place.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(disks["scratch"]))
    watch = a_watch(kafka.bootstrap_servers, disks["checkpoint"])
    watch.command = on_disks(disks["checkpoint"], disks["scratch"], watch.command)
    with watch as running:
        running.until_ready()
        with full(running.pid, disks[disk]):
            running.until("No space left on device", times=2)
            stop_times.stop(running, FULL[disk])


def test_while_the_disks_are_slow(
    stop_times: StopTimes, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiler() is None:
        pytest.skip("there is no C compiler for the library that slows down disks")
    temporary = tmp_path / "temporary files"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    slow = Shim(tmp_path / "shim", tmp_path)
    with slow.preloaded(), a_watch(kafka.bootstrap_servers, tmp_path, "--http-port", "0") as running:
        running.until_ready()
        slow.set(delay_ms=SLOW_MS)
        before = slow_batches(running)
        eventually(lambda: slow_batches(running) > before, 60.0, "a slow micro-batch")
        stop_times.stop(running, f"each change of a file takes {SLOW_MS} ms")


def slow_batches(running: RunningWatch) -> float:
    """How many micro-batches have taken longer than a second."""
    found = Scrape.at(running.metrics_url)
    return (found.value("batch_duration_seconds_count") or 0.0) - (
        found.value("batch_duration_seconds_bucket", le="1.0") or 0.0
    )


def test_before_a_broker_has_answered(stop_times: StopTimes, tmp_path: Path) -> None:
    with bad_server(stays_silent) as silent, a_watch(str(silent), tmp_path) as running:
        eventually(lambda: is_connected(running.pid, silent.port), 60.0, "the first connection")
        time.sleep(1.0)
        stop_times.stop(running, "start of txnwatch, and the broker accepts connections and does not answer")


def test_before_a_token_endpoint_has_answered(stop_times: StopTimes, secured: EmbeddedKafka, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    with bad_server(stays_silent) as silent:
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url=http://{silent}/token\n"
            f'sasl.jaas.config={OAUTH} clientId="txnwatch" clientSecret="secret";\n'
        )
        with a_watch(secured.listener("TOKENS"), tmp_path, "--command-config", str(properties)) as running:
            eventually(lambda: is_connected(running.pid, silent.port), 60.0, "the first request for a token")
            time.sleep(1.0)
            stop_times.stop(running, "start of txnwatch, and the token endpoint does not answer")


def test_while_tokens_expire_and_their_endpoint_does_not_answer(
    stop_times: StopTimes, clusters: Clusters, tmp_path: Path
) -> None:
    broker = Broker(tmp_path)
    broker.tokens.life_s = TOKEN_LIFE_S
    endpoint = urlsplit(broker.tokens.url)
    with broker.tokens, Forwarder((str(endpoint.hostname), endpoint.port or 0)) as forwarder:
        forwarder.start()
        kafka = start_secured(clusters, broker, "expiring")
        url = f"https://{forwarder.address}{endpoint.path}"
        own = {"sasl.oauthbearer.token.endpoint.url": url}
        way = Way("TOKEN", {**broker.client_credentials(), **broker.trust(), **own}, ())
        bootstrap, *login = flags_of(kafka, way, tmp_path)[1:]
        with a_watch(bootstrap, tmp_path, *login) as running:
            running.until_ready()
            assert broker.tokens.answers
            with forwarder.cut():
                line = running.until("no broker of", timeout_s=60.0)
                assert "a new connection fails" in line
                assert f"token endpoint {url}: " in line
                stop_times.stop(running, "tokens have expired, and their endpoint stops answering")
        clusters.end("expiring")


def test_before_the_master_of_a_spark_cluster_has_answered(
    stop_times: StopTimes, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNWATCH_SPARK_CONF", "spark.authenticate.secret=of-the-cluster")
    with (
        bad_server(stays_silent) as silent,
        a_watch(
            kafka.bootstrap_servers, tmp_path, "--master", f"spark://{silent}", "--checkpoint-is-shared", "true"
        ) as running,
    ):
        until_spark_reaches(running, silent.port)
        stop_times.stop(running, "start of Spark, and the master of its cluster does not answer")


def test_while_the_file_system_of_the_checkpoint_stops_answering(
    stop_times: StopTimes, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    with EmbeddedHdfs(tmp_path / "hdfs") as hdfs:
        place = urlsplit(hdfs.uri(""))
        with Forwarder((str(place.hostname), place.port or 0)) as forwarder:
            forwarder.start()
            flags = ("--events-topic", unique("stopping.events"), "--http-port", "0")
            checkpoint = f"hdfs://{forwarder.address}/stopping"
            with RunningWatch(kafka.bootstrap_servers, checkpoint, *flags, directory=tmp_path) as running:
                running.until_ready()
                with forwarder.cut():
                    time.sleep(5.0)  # ten triggers: a micro-batch waits for the file system
                    stop_times.stop(running, "the file system of the checkpoint stops answering while it is in use")


def test_while_the_schema_registry_does_not_answer(
    stop_times: StopTimes, kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    (partition,) = create_topic(cluster, unique("stopping"))
    with (
        bad_server(stays_silent) as silent,
        a_watch(kafka.bootstrap_servers, tmp_path, "--schema-registry-url", f"http://{silent}") as running,
    ):
        running.until_ready()
        late_write_after_abort(cluster, unique("zombie"), partition)
        running.until("are kept and delivered later")
        stop_times.stop(running, "the Schema Registry accepts connections and does not answer")
