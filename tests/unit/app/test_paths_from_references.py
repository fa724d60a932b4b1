"""A path that a variable or a file gives: an error never shows what was read, because it may be a key."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from txnwatch.cli.main import main
from txnwatch.config import RunSettings
from txnwatch.setting_sources import client_properties, load_settings
from txnwatch.state.model.errors import ConfigError

SECRETS = {"hex": "5ec4e7" * 11, "base64": "/5ec4e7+5ec4e7/5ec4e7+5ec4e7=", "long": "5ec4e7" * 1_000}
PATHS = sorted(
    name for name, spec in RunSettings.model_fields.items() if Path in (spec.annotation, *get_args(spec.annotation))
)
FORMS = ["${env:A_KEY}", "${file:WHOLE}", "${file:PROPERTIES:key}", "DIRECTORY/${env:A_KEY}"]


@pytest.fixture(params=SECRETS.values(), ids=SECRETS.keys())
def secret(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found: str = request.param
    (tmp_path / "whole").write_text(f"{found}\n")
    (tmp_path / "secrets.properties").write_text(f"key={found}\n")
    monkeypatch.setenv("A_KEY", found)
    monkeypatch.chdir(tmp_path)
    return found


def form_of(form: str, directory: Path) -> str:
    places = {"WHOLE": directory / "whole", "PROPERTIES": directory / "secrets.properties", "DIRECTORY": directory}
    for name, path in places.items():
        form = form.replace(name, str(path))
    return form


def test_the_paths_are_found() -> None:
    assert PATHS == ["command_config", "events_key_file", "http_web_config_file", "owners_file", "push_file"]


@pytest.mark.parametrize("source", ["flag", "variable", "file"])
@pytest.mark.parametrize(
    ("name", "form"),
    # The last form is a new directory in one that exists: a good checkpoint.
    [*((name, form) for name in PATHS for form in FORMS), *(("checkpoint", form) for form in FORMS[:-1])],
)
def test_no_error_of_run_shows_the_value(
    name: str,
    source: str,
    form: str,
    secret: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = form_of(form, tmp_path)
    arguments = ["run", "--bootstrap-server", "127.0.0.1:1"]
    if source == "flag":
        arguments += [f"--{name.replace('_', '-')}", given]
    elif source == "variable":
        monkeypatch.setenv(f"TXNWATCH_{name.upper()}", given)
    else:
        (tmp_path / "txnwatch.toml").write_text(f"{name} = '{given}'\n")
        arguments += ["--config", str(tmp_path / "txnwatch.toml")]
    assert main(arguments) == 2
    shown = "".join(capsys.readouterr())
    assert f"{name}: expected the path of a" in shown
    assert given[given.index("${") :] in shown
    assert secret[:12] not in shown


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["command_config", "events_key_file"])
def test_no_error_of_another_command_shows_the_value(
    name: str, form: str, secret: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flag = f"--{name.replace('_', '-')}"
    assert main(["events", "--bootstrap-server", "127.0.0.1:1", flag, form_of(form, tmp_path)]) == 2
    shown = "".join(capsys.readouterr())
    assert f"{name}: expected the path of a" in shown
    assert secret[:12] not in shown


PROPERTIES = [
    *(f"{name}.location=FORM" for name in ("ssl.truststore", "ssl.keystore")),
    *(f"schema.registry.ssl.{name}.location=FORM" for name in ("ca", "certificate", "key")),
    "sasl.oauthbearer.token.endpoint.url=FORM",
    "sasl.oauthbearer.token.endpoint.url=file://FORM",
    'sasl.jaas.config=Krb5LoginModule required password="5ec4e75ec4e75ec4e7" keyTab="FORM" principal="a";',
    "sasl.jaas.config=Krb5LoginModule required keyTab='FORM' principal='a';",
    "sasl.jaas.config=Krb5LoginModule required keyTab=FORM principal=a;",
    'sasl.jaas.config=Krb5LoginModule required useKeyTab=true keyTab="FILE:FORM" principal="a";',
    'sasl.jaas.config=OAuthBearerLoginModule required ssl.truststore.location="FORM";',
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("line", PROPERTIES)
def test_no_error_of_the_client_properties_shows_the_value(line: str, form: str, secret: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(line.replace("FORM", form_of(form, tmp_path)))
    with pytest.raises(ConfigError) as raised:
        client_properties(path)
    name = line.partition("=")[0]
    assert f"client.properties: {name}: expected the path of a file that exists, found none at ${{" in str(raised.value)
    assert secret[:12] not in str(raised.value)
    assert raised.value.__cause__ is None, "the cause has the value"


def test_a_path_may_be_given_by_a_reference(tmp_path: Path) -> None:
    (tmp_path / "client.properties").write_text("ssl.truststore.location=${env:CONFIGURED}/trust.jks\n")
    (tmp_path / "trust.jks").write_text("")
    environ = {"CONFIGURED": str(tmp_path)}
    found = load_settings(
        {
            "bootstrap_server": "k:9092",
            "command_config": "${env:CONFIGURED}/client.properties",
            "checkpoint": "${env:CONFIGURED}/new",
        },
        None,
        environ,
    )
    assert found.command_config == tmp_path / "client.properties"
    assert found.checkpoint == str(tmp_path / "new")


def test_other_client_properties_are_no_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "login")
    path = tmp_path / "client.properties"
    path.write_text(
        "sasl.oauthbearer.token.endpoint.url=https://${env:HOST}/token\n"
        'sasl.jaas.config=OAuthBearerLoginModule required clientId="${env:HOST}" clientSecret="b";\n'
    )
    found = client_properties(path)
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://login/token"
    assert 'clientId="login"' in found["sasl.jaas.config"]


@pytest.mark.parametrize("checkpoint", ["s3a://${env:BUCKET}/txnwatch", "${env:URI}", "${env:EXISTING}"])
def test_a_checkpoint_may_be_given_by_a_reference(checkpoint: str, tmp_path: Path) -> None:
    environ = {"BUCKET": "b", "URI": "hdfs://name:8020/txnwatch", "EXISTING": str(tmp_path)}
    given = load_settings({"bootstrap_server": "k:9092", "checkpoint": checkpoint}, None, environ).checkpoint
    assert "${" not in given


def test_a_path_without_a_reference_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--bootstrap-server", "127.0.0.1:1", "--events-key-file"]
    assert main([*arguments, "/no/such/file"]) == 2
    assert "--events-key-file /no/such/file: No such file or directory" in capsys.readouterr().err
