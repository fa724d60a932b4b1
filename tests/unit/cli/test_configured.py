"""Every command takes the settings that it shares with `run` from the same sources: flag, variable, file."""

from __future__ import annotations

import argparse
from pathlib import Path
from unittest import mock

import pytest

from txnwatch.cli import status
from txnwatch.cli.main import main, parser
from txnwatch.cli.one_shot import take_settings
from txnwatch.state.model.verdicts import DetectionPolicy

COMMANDS = {"explain": ("explain", "orders-0"), "find-hanging": ("find-hanging",)}
FILE = """
bootstrap_server = "file:1"
late_buffer_ms = 1
stuck_prepare_ms = 1
long_running_min_ms = 1
redis_url = "redis://127.0.0.1:6379/0"
"""


def configured(parsed: argparse.Namespace) -> DetectionPolicy:
    """The thresholds of a command."""
    take_settings(parsed)
    policy: DetectionPolicy = parsed.policy
    return policy


@pytest.fixture(params=COMMANDS.values(), ids=COMMANDS.keys())
def command(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "txnwatch.toml"
    path.write_text(FILE)
    return path


def test_without_a_setting_the_defaults_count(command: tuple[str, ...]) -> None:
    parsed = parser(command[:1]).parse_args([*command, "--bootstrap-server", "flag:1"])
    assert configured(parsed) == DetectionPolicy()


def test_a_flag_is_before_a_variable_and_a_variable_before_the_file(
    command: tuple[str, ...], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNWATCH_STUCK_PREPARE_MS", "2")
    monkeypatch.setenv("TXNWATCH_LONG_RUNNING_MIN_MS", "2")
    parsed = parser(command[:1]).parse_args([*command, "--config", str(file), "--long-running-min-ms", "3"])
    expected = DetectionPolicy(late_buffer_ms=1, stuck_prepare_ms=2, long_running_min_ms=3)
    assert configured(parsed) == expected
    assert parsed.bootstrap_server == "file:1", "the file also has the connection"


def test_a_wrong_threshold_is_usage_and_named_with_its_source(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNWATCH_LATE_BUFFER_MS", "soon")
    assert main([*command, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert "late_buffer_ms: expected a valid integer" in capsys.readouterr().err


def test_without_a_server_it_is_usage(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(command)) == 2
    assert "give --bootstrap-server, TXNWATCH_BOOTSTRAP_SERVER or a line in the file" in capsys.readouterr().err


AT = ("--topic", "t", "--partition", "0")
SHARED = {
    "events": ("events",),
    "history": ("history",),
    "status": ("status",),
    "doctor": ("doctor",),
    "abort": ("abort", *AT, "--start-offset", "0"),
    "list": ("list",),
    "describe": ("describe", "--transactional-id", "a"),
    "describe-producers": ("describe-producers", *AT),
    "decode": ("decode", *AT),
    "explain": ("explain", "orders-0"),
    "find-hanging": ("find-hanging",),
}
VALUES = {
    "bootstrap_server": "there:1",
    "command_config": "/there.properties",
    "events_topic": "there.events",
    "events_format": "avro",
    "schema_registry_url": "http://there:1",
    "events_key_file": "/there.keys",
    "redis_url": "redis://there:1/0",
    "topics": "there.*",
    "census_topics": "there-census.*",
    "foreign_topics": "there-foreign.*",
    "coordinator_view": "api",
    "census_interval_ms": "8",
    "heal_interval_ms": "9",
    "late_buffer_ms": "7",
}


def values_of(parsed: argparse.Namespace) -> dict[str, str]:
    take_settings(parsed)
    return {name: str(getattr(parsed, name)) for name in VALUES if hasattr(parsed, name)}


def flags_of(arguments: tuple[str, ...]) -> argparse.Namespace:
    return parser(arguments[:1]).parse_args(list(arguments))


@pytest.mark.parametrize("command", ["find-hanging", "explain", "abort", "doctor"])
def test_a_command_that_judges_topics_knows_the_copies_of_others(command: str) -> None:
    assert hasattr(flags_of(SHARED[command]), "foreign_topics")


@pytest.mark.parametrize("arguments", SHARED.values(), ids=SHARED.keys())
def test_every_setting_of_a_command_is_read_from_a_variable_and_from_the_file(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has = [name for name in VALUES if hasattr(flags_of(arguments), name)]
    assert {"bootstrap_server", "command_config"} <= set(has)
    (tmp_path / "txnwatch.toml").write_text("".join(f"{name} = '{value}'\n" for name, value in VALUES.items()))
    of_the_file = values_of(flags_of((*arguments, "--config", str(tmp_path / "txnwatch.toml"))))
    assert of_the_file == {name: VALUES[name] for name in has}
    for name, value in VALUES.items():
        monkeypatch.setenv(f"TXNWATCH_{name.upper()}", value.replace("there", "variable"))
    found = values_of(flags_of((*arguments, "--config", str(tmp_path / "txnwatch.toml"))))
    assert found == {name: VALUES[name].replace("there", "variable") for name in has}
    flag = flags_of((*arguments, "--bootstrap-server", "flag:1"))
    assert values_of(flag)["bootstrap_server"] == "flag:1"


def test_a_command_without_settings_has_the_defaults_of_run() -> None:
    parsed = flags_of(("doctor", "--bootstrap-server", "flag:1"))
    take_settings(parsed)
    assert (parsed.events_topic, parsed.topics, parsed.redis_url) == ("txnwatch.events", ".*", None)


def test_a_reference_in_a_flag_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_PASSWORD", "${env:ANOTHER}")
    parsed = flags_of(("status", "--redis-url", "redis://:${env:A_PASSWORD}@there:1/0"))
    take_settings(parsed)
    assert parsed.redis_url == "redis://:%24%7Benv%3AANOTHER%7D@there:1/0"


@pytest.mark.parametrize("arguments", [("status",), ("decode", "--value", "00")], ids=["status", "decode"])
def test_a_command_that_needs_no_server_has_none(arguments: tuple[str, ...]) -> None:
    parsed = flags_of(arguments)
    take_settings(parsed)
    assert parsed.bootstrap_server is None


@pytest.mark.parametrize(
    ("flags", "is_redis"),
    [
        ((), True),
        (("--events-topic", "other"), False),
        (("--bootstrap-server", "flag:1"), False),
        (("--bootstrap-server", "flag:1", "--redis-url", "redis://flag:1/0"), True),
    ],
)
def test_status_reads_the_topic_if_only_a_flag_of_the_topic_is_given(
    flags: tuple[str, ...], *, is_redis: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TXNWATCH_REDIS_URL", "redis://variable:1/0")
    monkeypatch.setenv("TXNWATCH_BOOTSTRAP_SERVER", "variable:1")
    asked: list[str] = []
    shown = mock.Mock(unread={}, clusters=(), incidents=[], heartbeats=[])
    monkeypatch.setattr(status, "read_shown", lambda url, _: asked.append(url) or shown)
    monkeypatch.setattr(status, "read_events_topic", lambda _: iter(()))
    main(["status", *flags])
    assert bool(asked) is is_redis
