"""Values that are kept in the environment or in a file, and what an operator reads if one is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bad_inputs import BadInputs
from txnwatch.cli.main import parser
from txnwatch.cli.one_shot import take_settings
from txnwatch.config import RunSettings, is_redis_url
from txnwatch.librdkafka import events_keys
from txnwatch.setting_sources import client_properties, expanded, hidden_from_children, load_settings
from txnwatch.state.model.errors import ConfigError
from txnwatch.streaming.client.security import PasswordLogin, security_of
from txnwatch.streaming.client.tls import Store

SECRET = "kanarien/vogel@1"
QUOTED = "kanarien%2Fvogel%401"


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    path = tmp_path / "whole"
    path.write_text(f"\n {SECRET}\n")
    return path


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.properties"
    path.write_text(f"password={SECRET}\nother: x\n")
    return path


def settings(environ: dict[str, str], **flags: str) -> RunSettings:
    return load_settings({"bootstrap_server": "k:9092", **flags}, None, environ)


def test_a_value_from_each_place(whole: Path, properties: Path) -> None:
    environ = {"NAME": SECRET}
    assert expanded("${env:NAME}", "key", environ) == SECRET
    assert expanded(f"${{file:{whole}}}", "key", environ) == SECRET
    assert expanded(f"${{file:{properties}:password}}", "key", environ) == SECRET
    assert expanded(f"a ${{env:NAME}} b ${{file:{properties}:other}}", "key", environ) == f"a {SECRET} b x"


@pytest.mark.parametrize("text", ["", "a$", "${", "${NAME}", "a{2}$", "${vault:path:key}", "${env:a"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert expanded(text, "key", {}) == text


def test_a_value_that_was_read_is_not_searched_for_references() -> None:
    assert expanded("${env:A}", "key", {"A": "${env:B}", "B": SECRET}) == "${env:B}"


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("redis://:${env:S}@${env:H}/0", f"redis://:{QUOTED}@redis:6379/0"),
        ("redis://${env:S}:${env:S}@redis", f"redis://{QUOTED}:{QUOTED}@redis"),
        ("redis://${env:H}/0?client_name=a@b", "redis://redis:6379/0?client_name=a@b"),
        ("${env:URL}", f"redis://:{QUOTED}@redis"),
        (
            "redis+sentinel://s:1/main?db=1&sentinel_password=${env:S}",
            f"redis+sentinel://s:1/main?db=1&sentinel_password={QUOTED}",
        ),
        ("redis://redis?password=${env:S}&db=1", f"redis://redis?password={QUOTED}&db=1"),
    ],
)
def test_a_password_in_a_url_is_encoded(form: str, value: str) -> None:
    environ = {"S": SECRET, "H": "redis:6379", "URL": f"redis://:{QUOTED}@redis"}
    assert expanded(form, "key", environ) == value
    assert is_redis_url(value)


def test_a_password_after_a_url_is_not_encoded() -> None:
    form = "-Dtokens=https://idp/token?realm=a -Dpassword=%s"
    assert expanded(form % "${env:S}", "spark.driver.extraJavaOptions", {"S": SECRET}) == form % SECRET


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("${env:NONE}", "the environment variable NONE, found none"),
        ("${env:EMPTY}", "a value, found an empty one"),
        ("${file:/no/such/file}", "a file that can be read, found: No such file or directory"),
        ("${file:/no/such/file:key}", "a file that can be read, found: No such file or directory"),
        ("${file:DIRECTORY}", "a file that can be read, found: Is a directory"),
        ("${file:PROPERTIES:none}", "the key none in PROPERTIES, found none"),
        ("${file:BINARY}", "a file in UTF-8, found another encoding"),
        ("${file:ESCAPE:password}", "a Java properties file, found an invalid escape"),
    ],
    ids=[
        "no such variable",
        "an empty variable",
        "no such file",
        "no such properties file",
        "a directory",
        "a file without the key",
        "a file in another encoding",
        "an invalid escape",
    ],
)
def test_a_missing_reference_is_an_error_that_shows_no_value(
    tmp_path: Path, properties: Path, reference: str, expected: str, bad_inputs: BadInputs
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff" + SECRET.encode())
    (tmp_path / "escape").write_text(f"password=\\u{SECRET}")
    for name, path in {
        "DIRECTORY": tmp_path,
        "PROPERTIES": properties,
        "BINARY": tmp_path / "binary",
        "ESCAPE": tmp_path / "escape",
    }.items():
        reference, expected = reference.replace(name, str(path)), expected.replace(name, str(path))
    with pytest.raises(ConfigError) as raised:
        expanded(f"redis://:{SECRET}${{env:REAL}}{reference}", "redis_url", {"EMPTY": "", "REAL": SECRET})
    assert str(raised.value) == f"redis_url: {reference}: expected {expected}"
    bad_inputs.keep("References in settings", raised.value)


def test_every_source_of_settings_takes_references(tmp_path: Path, whole: Path) -> None:
    file = tmp_path / "txnwatch.toml"
    file.write_text(f'schema_registry_url = "http://me:${{file:{whole}}}@registry:8081"')
    loaded = load_settings(
        {"bootstrap_server": "${env:KAFKA}:9092"},
        file,
        {"TXNWATCH_REDIS_URL": "redis://:${env:S}@redis:6379/0", "S": SECRET, "KAFKA": "kafka"},
    )
    assert loaded.bootstrap_server == "kafka:9092"
    assert loaded.schema_registry_url == f"http://me:{QUOTED}@registry:8081"
    assert loaded.redis_url == f"redis://:{QUOTED}@redis:6379/0"


@pytest.mark.parametrize("key", ["redis_url", "http_port", "events_format", "topics", "events_topic"])
def test_an_error_shows_the_reference_and_not_its_value(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings({"S": f"({SECRET}", f"TXNWATCH_{key.upper()}": "${env:S}"})
    assert "found '${env:S}' from environment" in str(raised.value)
    assert "kanarien" not in str(raised.value)
    assert raised.value.__cause__ is None, "the cause has the value"


def test_a_properties_file_takes_references(
    tmp_path: Path, whole: Path, properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SASL_USER", "watch")
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        'sasl.jaas.config=PlainLoginModule required username="${env:SASL_USER}" '
        f'password="${{file:{properties}:password}}";\n'
        f"ssl.keystore.location=/me.jks\nssl.key.password=${{file:{whole}}}\n"
    )
    security = security_of(client_properties(path))
    assert security.login == PasswordLogin("PLAIN", "watch", SECRET)
    assert security.tls.keys == Store("ssl.keystore", "JKS", "/me.jks", key_password=SECRET)
    path.write_text("sasl.password=${env:NO_SUCH}")
    with pytest.raises(ConfigError, match=r"client\.properties: sasl\.password: .* variable NO_SUCH, found none"):
        client_properties(path)


def test_flags_of_other_commands_take_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S", SECRET)
    command = ["status", "--redis-url", "redis://:${env:S}@redis/0"]
    parsed = parser(["status"]).parse_args([*command, "--schema-registry-url", "http://me:${env:S}@registry"])
    take_settings(parsed)
    assert parsed.redis_url == f"redis://:{QUOTED}@redis/0"
    assert parsed.schema_registry_url == f"http://me:{QUOTED}@registry"


def test_a_key_file_takes_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNING_KEY", "a" * 64)
    path = tmp_path / "keys"
    path.write_text("# the key\n${env:SIGNING_KEY}\n")
    path.chmod(0o600)
    plain = tmp_path / "plain"
    plain.write_text("a" * 64)
    plain.chmod(0o600)
    warnings: list[str] = []
    assert events_keys(path, warnings.append) == events_keys(plain, warnings.append)
    assert warnings == []


def test_children_do_not_inherit_variables_with_secrets() -> None:
    environ = {"TXNWATCH_REDIS_URL": SECRET, "PROVIDED": SECRET, "HOSTED": "host", "PATH": "/bin"}
    expanded("${env:PROVIDED}", "redis_url", environ)
    expanded("${env:HOSTED}", "bootstrap_server", environ, is_secret=False)
    before = dict(environ)
    with hidden_from_children("TXNWATCH_", environ):
        assert environ == {"HOSTED": "host", "PATH": "/bin"}
    assert environ == before
