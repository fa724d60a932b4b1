"""What `txnwatch run` prints: text for people, one JSON object per line for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger_world import LedgerWorld
from support.log_lines import log_restored
from txnwatch.cli.main import main
from txnwatch.cli.output import JSON, LOG, TEXT, log_incident, log_step, log_to_stderr, log_to_stdout, print_error
from txnwatch.state.model.errors import BrokerError


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    with log_restored():
        yield


def test_text_has_the_time_and_marks_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stdout(TEXT)
    LOG.info("ready")
    logging.getLogger("txnwatch.abort").warning("100 % sure\x1b[31m")
    ready, warning = [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert ready == "ready"
    assert warning == "warning: 100 % sure\\x1b[31m"


def test_the_steps_of_a_start_are_lines_of_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    for log_format in (TEXT, JSON):
        log_to_stdout(log_format)
        log_step("Spark starts")
        log_step("the query starts")
        output = capsys.readouterr().out
        assert [line.count("starts") for line in output.splitlines()] == [1, 1]
        assert "\x1b" not in output


def test_on_a_terminal_each_step_replaces_the_one_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log_to_stdout(TEXT)
    log_step("Spark starts")
    log_step("the query starts")
    LOG.info("ready")
    LOG.info("stopped")
    shown, last = capsys.readouterr().out.removesuffix("\n").split("\n")
    assert [part.rpartition("  ")[2] for part in shown.split("\r\x1b[K")] == [
        "Spark starts",
        "the query starts",
        "ready",
    ]
    assert last.endswith("  stopped")


def test_json_on_a_terminal_has_whole_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    log_to_stdout(JSON)
    log_step("Spark starts")
    assert json.loads(capsys.readouterr().out)["message"] == "Spark starts"


def test_a_command_writes_its_warnings_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    LOG.info("ready")
    LOG.warning("redis://:hunter2@host:1 \x1b[31m")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == "txnwatch: warning: redis://***@host:1 \\x1b[31m\n"


def test_json_is_one_object_per_line_with_a_level(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stdout(JSON)
    LOG.info("ready")
    logging.getLogger("txnwatch.abort").warning("one\ntwo")
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["level"], one["logger"], one["message"]) for one in found] == [
        ("info", "txnwatch", "ready"),
        ("warning", "txnwatch.abort", "one\ntwo"),
    ]
    assert all(one["time"].endswith("Z") for one in found)


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_an_incident_is_one_line_and_in_json_has_its_fields(
    log_format: str, capsys: pytest.CaptureFixture[str]
) -> None:
    world = LedgerWorld()
    world.batch(world.hang("checkout-1"))
    (event,) = world.topic.published
    log_to_stdout(log_format)
    log_incident(event)
    (line,) = capsys.readouterr().out.splitlines()
    assert "checkout-1" in line
    if log_format == JSON:
        assert json.loads(line)["incident"]["incident_id"] == event.incident_id


def test_the_json_line_of_the_docs_is_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "output.md").read_text()
    shown = json.loads(page.partition("```json\n")[2].partition("```")[0])
    log_to_stdout(JSON)
    LOG.warning(shown["message"])
    written = json.loads(capsys.readouterr().out)
    assert list(written) == list(shown)
    assert {**written, "time": ""} == {**shown, "time": ""}


def test_an_error_that_ends_a_run_has_the_form_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    error = BrokerError("expected a broker, redis://me:sesame@cache:1 found\nnone")
    log_to_stdout(TEXT)
    print_error(error)
    assert capsys.readouterr().err == "txnwatch: expected a broker, redis://***@cache:1 found\\nnone\n"
    log_to_stdout(JSON)
    print_error(error)
    (line,) = capsys.readouterr().err.splitlines()
    written = json.loads(line)
    assert list(written) == ["time", "level", "logger", "message"]
    assert (written["level"], written["logger"]) == ("error", "txnwatch")
    assert written["message"] == "expected a broker, redis://***@cache:1 found\nnone"


@pytest.mark.parametrize(
    ("flags", "variable", "is_json"),
    [
        ((), None, False),
        (("--log-format", "json"), None, True),
        ((), "json", True),
        (("--log-format", "text"), "json", False),
    ],
)
def test_an_error_in_the_settings_has_the_form_that_a_flag_or_the_environment_gives(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: tuple[str, ...],
    variable: str | None,
    *,
    is_json: bool,
) -> None:
    if variable is not None:
        monkeypatch.setenv("TXNWATCH_LOG_FORMAT", variable)
    assert main(["run", "--trigger-ms", "-4", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "trigger_ms" in line
    assert line.startswith("{") is is_json
