"""`explain` and `find-hanging` use the thresholds of the configuration, from the same sources as `run`."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.cli.asking import configured
from txnwatch.cli.main import main, parser
from txnwatch.state.model.policy import DetectionPolicy

COMMANDS = {"explain": ("explain", "orders-0"), "find-hanging": ("find-hanging",)}
FILE = """
bootstrap_server = "file:1"
late_buffer_ms = 1
stuck_prepare_ms = 1
long_running_min_ms = 1
redis_url = "redis://127.0.0.1:6379/0"
"""


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
