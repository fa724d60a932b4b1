"""Every place that shows a connection string shows it without its secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.incidents import an_event
from support.log_lines import log_restored
from txnwatch.cli.main import main
from txnwatch.cli.output import JSON, LOG, TEXT, log_to_stdout
from txnwatch.config import RunSettings, events_flags
from txnwatch.setting_sources import client_properties, load_settings
from txnwatch.sinks.delivery.encoding import RegistryCodec
from txnwatch.sinks.delivery.redis_sink import RedisMirror
from txnwatch.sinks.delivery.redis_views import read_shown
from txnwatch.state.model.errors import ConfigError, SinkError
from txnwatch.state.telling.commands import Origin, with_command

SECRET = "kanarienvogel"
REDIS = [
    f"redis://:{SECRET}@127.0.0.1:1/0",
    f"redis://user:{SECRET}@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"redis://127.0.0.1:1/0?username=user&password={SECRET}",
]


@pytest.mark.parametrize("url", REDIS)
def test_the_name_of_the_redis_sink_is_a_place(url: str) -> None:
    assert RedisMirror(url, "cluster").name == "Redis 127.0.0.1:1/0"


@pytest.mark.parametrize("url", REDIS)
def test_a_redis_that_does_not_answer_is_named_without_its_password(url: str) -> None:
    with pytest.raises(SinkError) as raised:
        read_shown(url)
    assert SECRET not in str(raised.value)
    assert "127.0.0.1:1" in str(raised.value)


@pytest.mark.parametrize("url", REDIS)
def test_a_command_that_fails_shows_no_password(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--redis-url", url]) == 1
    with pytest.raises(SystemExit):
        main(["list", "--bootstrap-server", "127.0.0.1:1", "--redis-url", url])
    with pytest.raises(SystemExit):
        main(["status", "--redis-url", url.replace("redis://", "tcp://")])
    assert SECRET not in "".join(capsys.readouterr())


@pytest.mark.parametrize("form", [TEXT, JSON])
def test_a_log_line_has_no_secret_of_a_library(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with log_restored():
        log_to_stdout(form)
        LOG.warning(f'http://u:{SECRET}@registry:8081 refused {{"sasl.password": "{SECRET}"}}')
    line = capsys.readouterr().out
    assert SECRET not in line
    assert "registry:8081" in line


@pytest.mark.parametrize(
    "url", [f"http://me:{SECRET}@registry:8081", f"http://me:{SECRET}@a:1,http://me:{SECRET}@b:1/?token={SECRET}"]
)
def test_a_suggested_command_has_the_registry_without_its_password(url: str) -> None:
    settings = RunSettings(bootstrap_server="k:9092", schema_registry_url=url)
    events = events_flags(settings.events_topic, settings.schema_registry_url)
    command = str(with_command(Origin("cluster", "k:9092", events=events), an_event()).suggested_command)
    assert "--schema-registry-url" in command
    assert SECRET not in command


def test_a_registry_that_the_client_refuses_is_named_without_its_password() -> None:
    with pytest.raises(ConfigError) as raised:
        RegistryCodec({"url": f"ftp://me:{SECRET}@registry:1", "basic.auth.user.info": SECRET}, "topic")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("key", ["redis_url", "bootstrap_server", "http_port", "schema_registry_url"])
def test_an_error_of_the_settings_has_no_secret(key: str) -> None:
    bad = f"tcp://me:{SECRET}@host:port?password={SECRET}\ud800"
    with pytest.raises(ConfigError) as raised:
        load_settings({"bootstrap_server": "k:9092", key: bad}, None, {})
    assert key in str(raised.value)
    assert SECRET not in str(raised.value)


def test_the_settings_as_text_have_no_secret() -> None:
    settings = RunSettings(
        bootstrap_server="k:9092", redis_url=REDIS[0], schema_registry_url=f"http://me:{SECRET}@registry:1"
    )
    assert SECRET not in repr(settings)


def test_an_invalid_properties_file_is_refused_without_its_content(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.password=\\u{SECRET}")
    with pytest.raises(ConfigError) as raised:
        client_properties(path)
    assert SECRET[:4] not in str(raised.value)
    assert json.dumps(str(path))[1:-1] in str(raised.value)
