"""SIGHUP applies what can change without a restart, names the rest, and never ends the process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import bcrypt
import pytest
from prometheus_client import CollectorRegistry

from support.log_lines import log_restored
from txnwatch.cli import output, watching
from txnwatch.cli.watch_process import AT_ONCE, OF_THE_QUERY, Reload, StopRequest
from txnwatch.config import RunSettings
from txnwatch.owners.owner_table import OwnerTable, read_owners
from txnwatch.setting_sources import load_settings
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ownership import FoundBy
from txnwatch.web.server import WebServer

FIRST = 'bootstrap_server = "b:1"\nlate_buffer_ms = 1000\n'
Lines = Callable[[], list[str]]


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    with log_restored():
        output.log_to_stdout("text")
        yield lambda: [line.partition("  ")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "txnwatch.toml"
    file.write_text(FIRST)
    return file


def begun(file: Path) -> tuple[Reload, Any]:
    """A reload of the file, and a watch with its settings."""
    reload = Reload(lambda: load_settings({}, file, {}))
    settings = load_settings({}, file, {})
    return reload, SimpleNamespace(settings=settings, owners=read_owners(settings.owners_file), batches=0)


def requested(reload: Reload, watch: Any) -> bool:
    reload.request()
    return reload.apply(watch)


def test_without_a_request_nothing_is_read() -> None:
    assert not Reload(pytest.fail).apply(None)  # type: ignore[arg-type]


def test_thresholds_limits_and_the_rules_of_aborts_are_of_the_query() -> None:
    for name in ("auto_abort", "abort_topics", "abort_budget_per_hour", "stuck_prepare_ms", "max_bytes_per_second"):
        assert name in OF_THE_QUERY
    for name in ("checkpoint", "bootstrap_server", "topics", "master", "state_partitions", "events_topic"):
        assert name not in OF_THE_QUERY
    assert RunSettings.model_fields.keys() >= OF_THE_QUERY | AT_ONCE


def test_a_threshold_starts_the_query_again_and_another_setting_is_named(file: Path, lines: Lines) -> None:
    reload, watch = begun(file)
    file.write_text('bootstrap_server = "b:2"\nlate_buffer_ms = 2000\nauto_abort = "dry-run"\n')
    assert requested(reload, watch)
    assert reload.is_due
    assert (watch.settings.late_buffer_ms, watch.settings.auto_abort) == (2000, "dry-run")
    assert watch.settings.bootstrap_server == "b:1"
    assert lines() == [
        "SIGHUP: reloaded late_buffer_ms, auto_abort, and the query starts again; txnwatch has to be restarted for "
        "bootstrap_server"
    ]


def test_an_unchanged_configuration_starts_nothing_again(file: Path, lines: Lines) -> None:
    reload, watch = begun(file)
    assert not requested(reload, watch)
    assert lines() == ["SIGHUP: no setting that can be reloaded has changed"]


def test_the_format_of_the_log_changes_at_once(file: Path, capsys: pytest.CaptureFixture[str], lines: Lines) -> None:
    del lines
    reload, watch = begun(file)
    file.write_text(FIRST + 'log_format = "json"\n')
    assert not requested(reload, watch)
    assert '"message": "SIGHUP: reloaded log_format"' in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["late_buffer_ms = 2000", FIRST + "late_buffer = 1", FIRST + "stuck_prepare_ms = -1", "["]
)
def test_an_invalid_configuration_changes_nothing(file: Path, lines: Lines, text: str) -> None:
    reload, watch = begun(file)
    before = watch.settings
    file.write_text(text)
    assert not requested(reload, watch)
    file.unlink()
    assert not requested(reload, watch)
    assert watch.settings is before
    assert [line.partition(": nothing is reloaded: ")[0] for line in lines()] == ["warning: SIGHUP"] * 2


def test_the_web_configuration_is_read_again(file: Path, lines: Lines) -> None:
    web = file.with_name("web.yml")
    web.write_text("")
    file.write_text(f'{FIRST}http_web_config_file = "{web}"\n')
    reload, watch = begun(file)
    with closing(WebServer(CollectorRegistry(), "127.0.0.1", 0, lambda: True)) as server:
        reload.server = server
        assert urlopen(f"{server.url}/-/healthy").status == 200
        web.write_text(f"basic_auth_users: {{ops: '{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}'}}")
        requested(reload, watch)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{server.url}/-/healthy")
        web.write_text("basic_auth_users: {ops: no hash}")
        requested(reload, watch)
        with pytest.raises(HTTPError, match="401"):
            urlopen(f"{server.url}/-/healthy")
    assert "nothing is reloaded" in lines()[-1]


OWNER = '[[owner]]\nteam = "checkout"\ntopics = ["orders"]\n'


def test_the_table_of_owners_is_read_again(file: Path, lines: Lines) -> None:
    owners = file.with_name("owners.toml")
    owners.write_text(OWNER)
    file.write_text(f'{FIRST}owners_file = "{owners}"\n')
    reload, watch = begun(file)
    assert watch.owners.find(FoundBy.TOPIC, "orders") is not None
    assert not requested(reload, watch)
    owners.write_text(OWNER.replace("orders", "payments"))
    assert requested(reload, watch)
    assert watch.owners.find(FoundBy.TOPIC, "payments") is not None
    reload.is_due = False
    owners.write_text(OWNER.replace('"checkout"', '"Checkout"'))
    before = watch.owners
    assert not requested(reload, watch)
    assert watch.owners is before
    assert lines() == [
        "SIGHUP: no setting that can be reloaded has changed",
        "SIGHUP: reloaded owners_file, and the query starts again",
        f"warning: SIGHUP: nothing is reloaded: owners_file {owners}: entry 1 ('Checkout'): team: expected small "
        "letters, digits and hyphens, at most 63, the first no hyphen, found 'Checkout'",
    ]


def test_the_settings_file_may_have_the_table(file: Path, lines: Lines) -> None:
    reload, watch = begun(file)
    file.write_text(f"{FIRST}{OWNER}")
    assert requested(reload, watch)
    assert watch.owners.find(FoundBy.TOPIC, "orders") is not None
    assert lines() == ["SIGHUP: reloaded owners_file, and the query starts again"]


def test_the_signal_requests_it_and_ends_nothing() -> None:
    reload = Reload(lambda: (_ for _ in ()).throw(ConfigError("read")))
    watch: Any = SimpleNamespace(settings=RunSettings(bootstrap_server="b:1"), owners=OwnerTable())
    with reload.on_signal():
        os.kill(os.getpid(), signal.SIGHUP)
        assert reload.requested
    assert not reload.apply(watch)
    assert not reload.requested


def test_the_query_starts_again_between_two_batches(file: Path, monkeypatch: pytest.MonkeyPatch, lines: Lines) -> None:
    reload, watch = begun(file)
    stop, stopped = StopRequest(), []

    def query(_: object) -> SimpleNamespace:
        if stopped:
            stop.set()
        else:
            file.write_text(FIRST + "max_read_ms_per_trigger = 7\n")
            reload.request()
        status = {"isTriggerActive": False}
        return SimpleNamespace(isActive=True, status=status, stop=lambda: stopped.append(reload.is_due))

    monkeypatch.setattr(watching, "POLL_S", 0.001)
    watch.open_ledger, watch.start_query = (lambda: SimpleNamespace(open_incidents=[])), query
    watching.supervise(watch, None, stop, reload)  # type: ignore[arg-type]
    assert stopped == [True, False], "no micro-batch begins while it is due"
    assert watch.settings.max_read_ms_per_trigger == 7
    step = "3 of 3: the first micro-batches read the logs"
    assert lines() == [step, "SIGHUP: reloaded max_read_ms_per_trigger, and the query starts again", step]
