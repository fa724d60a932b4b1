"""A whole watch whose Kafka, schema registry and Redis ask for a login: nothing shows a secret that is in use.

Each of them also refuses the login for a while, so that there is something to report about it. A text that is no secret
is found by each search, so each search reads the place.
"""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode

import pytest

from support.canaries import Canaries
from support.guarded_registry import GuardedRegistry, basic
from support.logged_in_redis import LoggedInRedis
from support.registry import SchemaRegistry
from support.secured_kafka import flags_of, hang, start_secured
from support.servers import Clusters
from support.spark_pages import SparkPages
from support.tls_front import TlsFront
from support.token_server import CLIENT_SECRET, TOKEN_MARK
from support.waiting import eventually
from support.watch import RunningWatch
from support.ways import Broker, Way
from support.wire import WireTap
from txnwatch.cli.main import main
from txnwatch_demo.embedded.real_servers import EmbeddedKafka, free_ports

pytestmark = pytest.mark.long
NAME, EVENTS = "logins", "logins.events"
VERDICT_S, TOKEN_LIFE_S, FAILURES = 90.0, 15.0, 5
_MARK = "kanarienvogel"
USER, BEARER = "me", f"{_MARK}-bearer"
REDIS, REDIS_KEY = f"{_MARK}-redis:@/?", f"{_MARK}-redis-key"
REGISTRY, REGISTRY_KEY = f"{_MARK}-registry:@/?", f"{_MARK}-registry-key"
VARIABLES = {"REDIS": REDIS, "REDIS_KEY": REDIS_KEY, "STORE": f"{_MARK}-store"}
KNOWN = "known-to-spark"


class Stage(NamedTuple):
    """The servers, and what their clients need.

    Attributes:
        registry_tls: the properties of the registry's certificates.
        redis_query: the options of Redis' certificates in a URL, without the password of the key.
    """

    broker: Broker
    kafka: EmbeddedKafka
    registry: GuardedRegistry
    registry_place: str
    registry_tls: Mapping[str, str]
    redis: LoggedInRedis
    redis_place: str
    redis_query: str
    canaries: Canaries


class Wires(NamedTuple):
    """The packets of clients, and the same data without TLS."""

    encrypted: WireTap
    plain: WireTap


class Watched(NamedTuple):
    """A watch after an incident, and after each server has refused it for a while.

    Attributes:
        known: a search for the name of the topic of the incident.
        pages: the address of Spark's web server.
        wires: what was sent to each server, with TLS and behind its TLS; empty if this user may not read packets.
    """

    watch: RunningWatch
    temporary: Path
    known: Canaries
    pages: str
    wires: Mapping[str, Wires]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(NAME)


@pytest.fixture(scope="module")
def stage(clusters: Clusters, registry: SchemaRegistry, directory: Path) -> Iterator[Stage]:
    broker = Broker(directory)
    authority = broker.authority
    broker.tokens.life_s = TOKEN_LIFE_S
    for name in ("of-redis", "of-registry"):
        authority.issue(name, f"DNS:{name}")
    redis_key = authority.encrypt("of-redis", REDIS_KEY)
    registry_key = authority.encrypt("of-registry", REGISTRY_KEY)
    with contextlib.ExitStack() as started:
        started.enter_context(broker.tokens)
        kafka = start_secured(clusters, broker, NAME)
        started.callback(clusters.end, NAME)
        guarded = started.enter_context(GuardedRegistry(registry))
        registry_front = started.enter_context(TlsFront(guarded.port, authority))
        redis = started.enter_context(LoggedInRedis(directory, USER, REDIS))
        redis_front = started.enter_context(TlsFront(redis.port, authority))
        of_redis = {"ssl_ca_certs": authority.certificate, "ssl_certfile": redis_key.with_name("of-redis.crt")}
        keys = [path.read_text() for path in directory.glob("of-*.key") if "encrypted" not in path.name]
        yield Stage(
            broker,
            kafka,
            guarded,
            f"127.0.0.1:{registry_front.port}/apis/ccompat/v7",
            {
                "schema.registry.ssl.ca.location": str(authority.certificate),
                "schema.registry.ssl.certificate.location": str(registry_key.with_name("of-registry.crt")),
                "schema.registry.ssl.key.location": str(registry_key),
                "schema.registry.ssl.key.password": REGISTRY_KEY,
            },
            redis,
            f"127.0.0.1:{redis_front.port}/0",
            urlencode({**of_redis, "ssl_keyfile": redis_key}),
            Canaries(_MARK, TOKEN_MARK, CLIENT_SECRET, *keys),
        )


def connection_of(stage: Stage, directory: Path, more: Mapping[str, str]) -> list[str]:
    """The flags of a login with a token, with these other properties."""
    properties = {**stage.broker.client_credentials(), **stage.broker.trust(), **stage.registry_tls, **more}
    return flags_of(stage.kafka, Way("TOKEN", properties, ()), directory)


@contextlib.contextmanager
def wires_of(stage: Stage) -> Iterator[Mapping[str, Wires]]:
    """Reads what is sent to Redis and to the registry."""
    fronts = {"Redis": (stage.redis_place, stage.redis.port), "registry": (stage.registry_place, stage.registry.port)}
    with contextlib.ExitStack() as reading:
        try:
            taps = {
                name: Wires(*(WireTap("127.0.0.1", stage.canaries.texts, at) for at in (port_of(place), plain)))
                for name, (place, plain) in fronts.items()
            }
        except (OSError, AttributeError):  # this user may not read packets
            taps = {}
        for tap in (tap for wires in taps.values() for tap in wires):
            reading.enter_context(tap)
        yield taps


def port_of(place: str) -> int:
    return int(place.partition(":")[2].partition("/")[0])


@pytest.fixture(scope="module")
def watched(stage: Stage, directory: Path) -> Iterator[Watched]:
    temporary = directory / "temporary files"
    temporary.mkdir()
    (directory / "registry").write_text(f"{REGISTRY}\n")
    (pages,) = free_ports(1)
    config = directory / "txnwatch.toml"
    config.write_text(
        f'schema_registry_url = "https://{stage.registry_place}"\n'
        f'redis_url = "rediss://{USER}:${{env:REDIS}}@{stage.redis_place}?{stage.redis_query}'
        '&ssl_password=${env:REDIS_KEY}"\n[spark_conf]\n'
        f'"spark.ui.enabled" = "true"\n"spark.ui.port" = "{pages}"\n"spark.a.setting" = "{KNOWN}"\n'
        f'"spark.hadoop.fs.azure.account.key.events.dfs.core.windows.net" = "{_MARK}-account"\n'
        '"spark.hadoop.fs.store.whatever" = "${env:STORE}"\n'
        f'"spark.authenticate.secret" = "{_MARK}-spark-{"x" * 40}"\n'
    )
    user_info = {"schema.registry.basic.auth.user.info": f"{USER}:${{file:{directory / 'registry'}}}"}
    bootstrap, *login = connection_of(stage, directory, user_info)[1:]
    flags = [*login, "--config", str(config), "--events-topic", EVENTS, "--http-port", "0"]
    with contextlib.ExitStack() as ending:
        wires = ending.enter_context(wires_of(stage))
        with pytest.MonkeyPatch.context() as patched:
            for name, value in {**VARIABLES, "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"}.items():
                patched.setenv(name, value)
            watch = ending.enter_context(RunningWatch(bootstrap, directory / "checkpoint", *flags))
        watch.until_ready()
        partition, *_ = hang(stage.kafka)
        watch.until(f"schema registry https://{stage.registry_place}: cannot register the schema: refused: Basic ***")
        stage.registry.accepted.add(basic(USER, REGISTRY))
        eventually(lambda: partition.topic in repr(stage.redis.values()), VERDICT_S, lambda: f"Redis: {watch.lines}")

        stage.redis.refuse()
        hang(stage.kafka)
        watch.until(f"Redis {stage.redis_place}: ", timeout_s=VERDICT_S)
        stage.redis.accept()
        watch.until("works again: all kept events are delivered", timeout_s=VERDICT_S)

        tokens = stage.broker.tokens
        given, tokens.fails = tokens.answers, True
        eventually(lambda: tokens.failures > FAILURES, VERDICT_S, "requests for a token that fail")
        tokens.fails = False
        later, *_ = hang(stage.kafka)
        eventually(lambda: later.topic in repr(stage.redis.values()), VERDICT_S, "an incident with new tokens")
        assert tokens.answers > given
        yield Watched(watch, temporary, Canaries(partition.topic), f"http://127.0.0.1:{pages}", wires)


def test_no_line_has_a_secret(stage: Stage, watched: Watched) -> None:
    lines = "\n".join(watched.watch.lines)
    assert watched.known.in_text(lines)
    assert stage.canaries.in_text(lines) == []


def test_no_metric_has_a_secret(stage: Stage, watched: Watched) -> None:
    with urllib.request.urlopen(watched.watch.metrics_url, timeout=10.0) as answer:
        body = answer.read().decode()
    assert f'sink="Redis {stage.redis_place}"' in body
    assert watched.known.in_text(body)
    assert stage.canaries.in_text(body) == []


def test_no_file_of_the_checkpoint_or_of_temporary_files_has_a_secret(stage: Stage, watched: Watched) -> None:
    checkpoint = Path(watched.watch.checkpoint)
    assert (checkpoint / "spark.log").stat().st_size
    for place in (checkpoint, watched.temporary):
        assert watched.known.in_files(place), f"{place} is read"
        assert stage.canaries.in_files(place) == {}


def test_no_record_of_the_events_topic_and_no_value_in_redis_has_a_secret(stage: Stage, watched: Watched) -> None:
    segments = stage.kafka.log_directory(1) / f"{EVENTS}-0"
    assert watched.known.in_files(segments)
    assert stage.canaries.in_files(segments) == {}
    values = repr(stage.redis.values())
    assert watched.known.in_text(values)
    assert stage.canaries.in_text(values) == []


def test_no_process_has_a_secret_in_its_arguments_or_its_environment(stage: Stage, watched: Watched) -> None:
    assert Canaries(str(watched.temporary)).in_processes(watched.watch.pid)
    assert stage.canaries.in_processes(watched.watch.pid) == {}


def test_no_page_of_spark_has_a_secret(stage: Stage, watched: Watched) -> None:
    pages = SparkPages(watched.pages)
    pages.read_rest(watched.pages)
    assert KNOWN in pages.settings
    assert "(redacted)" in pages.settings
    assert any(path.startswith("/StreamingQuery/") for path in pages.texts)
    assert stage.canaries.in_text(pages.text) == []


@pytest.mark.parametrize("server", ["Redis", "registry"])
def test_no_packet_to_a_server_with_tls_has_a_secret(watched: Watched, server: str) -> None:
    if not watched.wires:
        pytest.skip("this user may not read packets")
    encrypted, plain = watched.wires[server]
    assert plain.found, "the search finds the login behind TLS"
    assert encrypted.packets
    assert encrypted.found == set()


# The login at the registry in the URL, and in the properties.
REGISTRY_LOGINS = {
    "user and password in the URL": (f"{USER}:{quote(REGISTRY, safe='')}@", {}),
    "a wrong password in the URL": (f"{USER}:{_MARK}-wrong@", {}),
    "user info": ("", {"basic.auth.user.info": f"{USER}:{REGISTRY}"}),
    "wrong user info": ("", {"basic.auth.user.info": f"{USER}:{_MARK}-wrong"}),
    "a token": ("", {"bearer.auth.token": BEARER}),
    "a wrong token": ("", {"bearer.auth.token": f"{_MARK}-wrong"}),
}
OF_A_TOKEN = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.logical.cluster": "lsrc-1",
    "bearer.auth.identity.pool.id": "pool-1",
}


@pytest.mark.parametrize("name", REGISTRY_LOGINS)
def test_no_answer_shows_a_login_at_the_registry(
    stage: Stage, watched: Watched, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user, own = REGISTRY_LOGINS[name]
    stage.registry.accepted.add(f"Bearer {BEARER}")
    more = {**own, **(OF_A_TOKEN if "bearer.auth.token" in own else {})}
    there = connection_of(stage, tmp_path, {f"schema.registry.{key}": value for key, value in more.items()})
    url = ("--schema-registry-url", f"https://{user}{stage.registry_place}", "--events-topic", EVENTS)
    is_wrong, refused = "wrong" in name, stage.registry.refused
    for command in ("events", "status"):
        for form in ("text", "json"):
            main([command, *there, *url, "--format", form])
            shown = "".join(capsys.readouterr())
            assert bool(watched.known.in_text(shown)) is not is_wrong, shown
            assert stage.canaries.in_text(shown) == []
    assert (stage.registry.refused > refused) is is_wrong


REDIS_LOGINS = {
    "user and password in the URL": (f"{USER}:{quote(REDIS, safe='')}@", {"ssl_password": REDIS_KEY}),
    "user and password in the query": ("", {"username": USER, "password": REDIS, "ssl_password": REDIS_KEY}),
    "a wrong password": (f"{USER}:{_MARK}-wrong@", {"ssl_password": REDIS_KEY}),
    "a wrong password of the key": (f"{USER}:{quote(REDIS, safe='')}@", {"ssl_password": f"{_MARK}-wrong"}),
}


@pytest.mark.parametrize("name", REDIS_LOGINS)
def test_no_answer_shows_a_login_at_redis(
    stage: Stage, watched: Watched, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user, own = REDIS_LOGINS[name]
    url = f"rediss://{user}{stage.redis_place}?{stage.redis_query}&{urlencode(own)}"
    there = connection_of(stage, tmp_path, {})
    for form in ("text", "json"):
        assert main(["doctor", *there, "--redis-url", url, "--format", form]) in (0, 1)
        shown = "".join(capsys.readouterr())
        assert f"rediss://{'***@' if user else ''}{stage.redis_place}?***" in shown
        assert ("commands work" in shown) is ("wrong" not in name), shown
        assert stage.canaries.in_text(shown) == []
    assert watched.watch.is_running


def test_a_refused_token_is_not_shown(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, claims, signature = stage.broker.tokens.token().split(".")
    (tmp_path / "token").write_text(f"{head}.{claims}.{signature[:-8]}AAAAAAAA")
    endpoint = {"sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()}
    there = connection_of(stage, tmp_path, endpoint)
    for command in ("doctor", "find-hanging"):
        assert main([command, *there, "--format", "json"]) == 1
        shown = "".join(capsys.readouterr())
        assert "invalid_token" in shown
        assert stage.canaries.in_text(shown) == []
        assert signature[:40] not in json.dumps(shown)


def test_a_watch_with_a_token_at_the_registry_shows_no_secret(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, token = "token.events", f"{_MARK}-bearer-of-a-watch"
    temporary, segments = tmp_path / "temporary files", stage.kafka.log_directory(1) / f"{events}-0"
    temporary.mkdir()
    (tmp_path / "bearer").write_text(f"{token}\n")
    monkeypatch.setenv("TMPDIR", str(temporary))
    own = {**OF_A_TOKEN, "bearer.auth.token": f"${{file:{tmp_path / 'bearer'}}}"}
    bootstrap, *login = connection_of(stage, tmp_path, {f"schema.registry.{key}": own[key] for key in own})[1:]
    url = ("--schema-registry-url", f"https://{stage.registry_place}", "--events-topic", events)
    with RunningWatch(bootstrap, tmp_path / "checkpoint", *login, *url, "--http-port", "0") as watch:
        watch.until_ready()
        known = Canaries(hang(stage.kafka)[0].topic)
        watch.until("cannot register the schema: refused: Bearer ***")
        stage.registry.accepted.add(f"Bearer {token}")
        eventually(lambda: known.in_files(segments), VERDICT_S, lambda: f"the incident: {watch.lines[-5:]}")
        assert stage.registry.answered[f"Bearer {token}"]
        with urllib.request.urlopen(watch.metrics_url, timeout=10.0) as answer:
            shown = answer.read().decode() + "\n".join(watch.lines)
        assert known.in_text(shown)
        assert stage.canaries.in_text(shown) == []
        assert list(temporary.glob("txnwatch-spark-*")), "Spark uses it"
        assert stage.canaries.in_files(tmp_path / "checkpoint", temporary, segments) == {}
        assert stage.canaries.in_processes(watch.pid) == {}
