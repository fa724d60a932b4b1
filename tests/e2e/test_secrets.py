"""A whole watch with a secret in every place that takes one: nothing shows it, and nothing listens beyond loopback."""

from __future__ import annotations

import ipaddress
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import bcrypt
import psutil
import pytest

from support.canaries import Canaries, family, files_below
from support.certificates import Authority
from support.kafka_faults import late_write_after_abort
from support.redis_servers import WithSentinel
from support.servers import connect
from support.topics import create_topic, unique
from support.waiting import eventually
from support.watch import RunningWatch, events_about
from txnwatch.cli.main import main
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, EmbeddedRedis

VERDICT_S = 30.0
EVENTS = "secrets.events"
_MARK = "kanarienvogel"
VARIABLES = {
    "SASL": f"{_MARK}-sasl",
    "REDIS": f"{_MARK}-redis",
    "SENTINEL": f"{_MARK}-sentinel",
    "STORE": f"{_MARK}-store",
}
SIGNING_KEY = f"{_MARK}-signing-{'x' * 40}"
SCRAPER = f"{_MARK}-scraper"
# Some are read from a variable or a file, the others are in the properties file itself.
PROPERTIES = (
    "security.protocol=PLAINTEXT\n"
    'sasl.jaas.config=PlainLoginModule required username="watch" password="${env:SASL}";\n'
    f"sasl.password={_MARK}-password\nssl.key.password={_MARK}-key\n"
    f"ssl.truststore.password={_MARK}-truststore\nssl.keystore.password={_MARK}-keystore\n"
    f"ssl.keystore.key=-----BEGIN ENCRYPTED PRIVATE KEY----- {_MARK}-pem -----END ENCRYPTED PRIVATE KEY-----\n"
    f"sasl.oauthbearer.client.credentials.client.secret={_MARK}-client\n"
)


class Watched(NamedTuple):
    """A watch after its first incidents.

    Attributes:
        redis_place: the sentinels and their service, as names and labels show them.
        redis_values: what it wrote to Redis, by key.
        temporary: its directory for temporary files.
        trust: the TLS context that trusts its certificate.
        canaries: the search for its secrets.
    """

    watch: RunningWatch
    redis_place: str
    redis_values: dict[str, str]
    temporary: Path
    trust: ssl.SSLContext
    canaries: Canaries


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "of-metrics").create()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Path:
    found = tmp_path_factory.mktemp("secrets")
    (found / "client.properties").write_text(PROPERTIES)
    (found / "registry").write_text(f"{_MARK}-registry\n")
    (found / "keys").write_text(f"{SIGNING_KEY}\n")
    (found / "keys").chmod(0o600)
    hashed = bcrypt.hashpw(SCRAPER.encode(), bcrypt.gensalt(4)).decode()
    keys = authority.issue("metrics", "IP:127.0.0.1")
    for end in ("key", "crt"):
        (found / f"metrics.{end}").write_text(keys.with_suffix(f".{end}").read_text())
    (found / "web.yml").write_text(
        f"tls_server_config: {{cert_file: {found}/metrics.crt, key_file: {found}/metrics.key}}\n"
        f"basic_auth_users: {{prometheus: '{hashed}'}}\n"
    )
    (found / "txnwatch.toml").write_text(
        f'schema_registry_url = "http://me:${{file:{found / "registry"}}}@127.0.0.1:1"\nevents_format = "json"\n'
        "[spark_conf]\n"
        f'"spark.hadoop.fs.azure.account.key.events.dfs.core.windows.net" = "{_MARK}-account"\n'
        '"spark.hadoop.fs.store.whatever" = "${env:STORE}"\n'
        f'"spark.authenticate.secret" = "{_MARK}-spark-{"x" * 40}"\n'
    )
    return found


@pytest.fixture(scope="module")
def redis_with_passwords(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithSentinel]:
    secrets = {"password": VARIABLES["REDIS"], "sentinel_password": VARIABLES["SENTINEL"]}
    servers = WithSentinel(tmp_path_factory.mktemp("redis"), **secrets)
    yield servers
    servers.stop()


@pytest.fixture(scope="module")
def watched(
    kafka: EmbeddedKafka, directory: Path, authority: Authority, redis_with_passwords: WithSentinel
) -> Iterator[Watched]:
    """A watch after an incident that was delivered to Redis, and one that could not be."""
    temporary = directory / "temporary files"
    temporary.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in VARIABLES.items():
            patched.setenv(name, value)
        url = (
            f"redis+sentinel://{redis_with_passwords.place}?password=${{env:REDIS}}&sentinel_password=${{env:SENTINEL}}"
        )
        patched.setenv("TXNWATCH_REDIS_URL", url)
        patched.setenv("TMPDIR", str(temporary))
        running = RunningWatch(kafka.bootstrap_servers, directory / "checkpoint", *flags_of(directory))
        running.start()
    try:
        running.until_ready()
        hang(kafka)
        eventually(lambda: any("incident:" in key for key in redis_with_passwords.values()), VERDICT_S, "Redis")
        values = redis_with_passwords.values()
        redis_with_passwords.stop()
        hang(kafka)
        running.until("events are kept and delivered later", timeout_s=VERDICT_S)
        trust = ssl.create_default_context(cafile=authority.certificate)
        canaries = Canaries(_MARK, (directory / "metrics.key").read_text())
        yield Watched(running, redis_with_passwords.place, values, temporary, trust, canaries)
    finally:
        running.stop()


@pytest.fixture
def watch(watched: Watched) -> RunningWatch:
    return watched.watch


def flags_of(directory: Path) -> Iterator[str]:
    flags = {
        "config": directory / "txnwatch.toml",
        "command-config": directory / "client.properties",
        "events-topic": EVENTS,
        "events-key-file": directory / "keys",
        "http-port": 0,
        "http-web-config-file": directory / "web.yml",
    }
    for name, value in flags.items():
        yield from (f"--{name}", str(value))


def hang(kafka: EmbeddedKafka) -> None:
    """A hang whose incident is on the events topic."""
    with closing(connect(kafka)) as cluster:
        (partition,) = create_topic(cluster, unique("secrets"))
        late_write_after_abort(cluster, unique("zombie"), partition)
    eventually(lambda: events_about(kafka.bootstrap_servers, partition, EVENTS), VERDICT_S, "an incident")


def listening(process: psutil.Process) -> Iterator[str]:
    """The addresses on which a process takes connections or datagrams from anybody; none if it has ended."""
    try:
        connections = process.net_connections(kind="inet")
    except psutil.NoSuchProcess:
        connections = []
    for found in connections:
        if found.status == psutil.CONN_LISTEN or (found.status == psutil.CONN_NONE and not found.raddr):
            yield found.laddr.ip


def is_loopback(address: str) -> bool:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def test_no_process_of_a_watch_listens_beyond_loopback(watch: RunningWatch) -> None:
    found = {(process.name(), address) for process in family(watch.pid) for address in listening(process)}
    assert len(found) >= 2, "the JVM and the metrics server listen"
    assert {(name, address) for name, address in found if not is_loopback(address)} == set()


def scrape(watched: Watched, password: str) -> str:
    encoded = b64encode(f"prometheus:{password}".encode()).decode()
    url = watched.watch.metrics_url.replace("http:", "https:")
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {encoded}"})
    with urllib.request.urlopen(request, timeout=10.0, context=watched.trust) as answer:
        body: str = answer.read().decode()
    return body


def test_the_metrics_have_no_secret_and_ask_for_a_password(watched: Watched) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        scrape(watched, "wrong")
    body = scrape(watched, SCRAPER)
    assert f'sink="Redis {watched.redis_place}"' in body
    assert watched.canaries.in_text(body) == []


def test_no_line_has_a_secret(watched: Watched) -> None:
    assert watched.canaries.in_text("\n".join(watched.watch.lines)) == []


def test_no_file_of_the_checkpoint_or_of_temporary_files_has_a_secret(watched: Watched) -> None:
    checkpoint = Path(watched.watch.checkpoint)
    assert "spark.log" in {path.name for path in files_below(checkpoint)}
    temporary = {path.relative_to(watched.temporary).parts[0] for path in files_below(watched.temporary)}
    assert any(name.startswith("txnwatch-spark-") for name in temporary)
    assert watched.canaries.in_files(checkpoint, watched.temporary) == {}


def test_no_value_in_redis_has_a_secret(watched: Watched) -> None:
    written = {key.rpartition(":")[2] for key in watched.redis_values}
    assert {"incidents", "events"} <= written, "the incident was delivered"
    assert any(":heartbeat:" in key for key in watched.redis_values)
    assert watched.canaries.in_text(repr(watched.redis_values)) == []


def test_no_child_process_has_a_secret_in_its_arguments_or_its_environment(watched: Watched) -> None:
    assert watched.canaries.in_processes(watched.watch.pid) == {}


@pytest.mark.usefixtures("watched")
def test_no_answer_and_no_event_has_a_secret(
    kafka: EmbeddedKafka,
    redis_server: EmbeddedRedis,
    directory: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    there = ("--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(directory / "client.properties"))
    registry = ("--schema-registry-url", f"http://me:{_MARK}@127.0.0.1:1", "--events-key-file", str(directory / "keys"))
    url = f"{redis_server.url}?password={_MARK}"
    for command in (
        ("status", *there, *registry, "--events-topic", EVENTS, "--format", "json"),
        ("status", *there, *registry, "--events-topic", EVENTS),
        ("status", *there, "--redis-url", url),
        ("events", *there, *registry, "--events-topic", EVENTS, "--format", "json"),
        ("doctor", *there, "--redis-url", url),
        ("doctor", *there, "--redis-url", url, "--format", "json"),
    ):
        main(command)
        out, err = capsys.readouterr()
        assert out or err
        assert _MARK not in out + err, command
