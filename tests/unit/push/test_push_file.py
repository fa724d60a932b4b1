"""The file of the targets: what is accepted, what each error names, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from txnwatch.push.push_file import NO_TARGETS, WebhookTarget, read_push_file
from txnwatch.state.model.errors import ConfigError, SinkError

SECRET = "hunter2-hunter2-hunter2"
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def written(directory: Path, text: str) -> Path:
    path = directory / "push.toml"
    path.write_text(text)
    return path


def hook(**values: str) -> str:
    """A web hook with some keys as TOML; those that are not given are valid."""
    keys = {"name": '"pager"', "url": '"https://hooks.example/x"', **values}
    return "[[webhook]]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())


def test_no_file_is_no_target() -> None:
    assert read_push_file(None) is NO_TARGETS
    assert NO_TARGETS.targets == ()


def test_a_whole_file_is_read_with_its_secrets(tmp_path: Path) -> None:
    for name, text in {
        "token": f"{SECRET}\n",
        "key": f"# new\n{KEY}\n",
        "url": f"https://chat.example/{SECRET}",
    }.items():
        (tmp_path / name).write_text(text)
    text = f"""
[[webhook]]
name = "pager"
url = "${{file:{tmp_path}/url}}"
mode = "binary"
headers = {{ "X-Key" = "${{file:{tmp_path}/token}}" }}
token_file = "{tmp_path}/token"
signing_key_file = "{tmp_path}/key"
origin = "txnwatch.example"
validate = true

[[alertmanager]]
name = "main"
urls = ["https://am-0.example:9093", "https://am-1.example:9093"]
labels = {{ env = "prod" }}
external_url = "https://txnwatch.example"
"""
    found = read_push_file(written(tmp_path, text))
    (webhook,), (alertmanager,) = found.webhook, found.alertmanager
    assert dict(webhook.fixed_headers()) == {"X-Key": SECRET, "Authorization": f"Bearer {SECRET}"}
    assert [len(key) for key in webhook.signing_keys()] == [24]
    assert webhook.addresses[0].path == f"/{SECRET}"
    assert [address.shown for address in alertmanager.addresses] == ["am-0.example:9093", "am-1.example:9093"]
    assert (alertmanager.resend_ms, alertmanager.hold_ms) == (60_000, 3_600_000)
    assert SECRET not in repr(found)


def test_a_rotated_secret_needs_no_restart(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    (webhook,) = read_push_file(written(tmp_path, hook(token_file=f'"{tmp_path}/token"'))).webhook
    assert webhook.fixed_headers() == [("Authorization", "Bearer first")]
    (tmp_path / "token").write_text("second")
    assert webhook.fixed_headers() == [("Authorization", "Bearer second")]
    (tmp_path / "token").unlink()
    with pytest.raises(SinkError, match="token_file"):
        webhook.fixed_headers()


BAD = {
    "no TOML": ("[[webhook", "expected TOML"),
    "an unknown kind": ("[[slack]]\nname = 'x'", "slack: unknown key"),
    "an unknown key": (hook(retries="3"), "webhook.0.retries: unknown key"),
    "a missing key": ("[[webhook]]\nname = 'x'", "webhook.0.url: Field required"),
    "a table instead of a list": ("[webhook]\nname = 'x'", "webhook: Input should be a valid list"),
    "a bad name": (hook(name='"A b"'), "webhook.0.name: expected a-z, 0-9 and -"),
    "a bad URL": (hook(url=f'"ftp://{SECRET}"'), "webhook.0.url: expected https://"),
    "a user in a URL": (hook(url=f'"https://me:{SECRET}@host/"'), "webhook.0.url: expected https://"),
    "plain http": (hook(url=f'"http://host/{SECRET}"'), "expected https for host:80, found http"),
    "a bad mode": (hook(mode='"batched"'), "webhook.0.mode: Input should be 'structured', 'binary' or 'chat'"),
    "a header of ours": (hook(headers='{ "Webhook-Id" = "x" }'), "webhook.0.headers: expected names of headers"),
    "a header with a line end": (hook(headers=f'{{ "X" = "{SECRET}\\n" }}'), "webhook.0.headers: expected values"),
    "a missing token": (hook(token_file='"/does/not/exist"'), "pager: token_file /does/not/exist: No such file"),
    "a missing reference": (hook(url='"${file:/does/not/exist}"'), "url: ${file:/does/not/exist}: expected a file"),
    "consent without an origin": (hook(validate="true"), "expected origin as well"),
    "a bad origin": (hook(origin='"a b"'), "webhook.0.origin"),
    "one name twice": (hook() + hook(), "expected a name of its own for each target, found pager twice"),
    "no peer": ('[[alertmanager]]\nname = "a"\nurls = []', "alertmanager.0.urls: List should have at least 1 item"),
    "a peer twice": (
        '[[alertmanager]]\nname = "a"\nurls = ["https://a:1/x", "https://a:1/y"]',
        "urls: expected each peer once",
    ),
    "a label of ours": (
        '[[alertmanager]]\nname = "a"\nurls = ["https://a"]\nlabels = { owner = "me" }',
        "expected labels that txnwatch does not set itself, found owner",
    ),
    "a label of a group": (
        '[[alertmanager]]\nname = "a"\nurls = ["https://a"]\nlabels = { id_prefix = "me" }',
        "expected labels that txnwatch does not set itself, found id_prefix",
    ),
    "a severity for a program": (hook(least_severity='"info"'), 'least_severity: expected mode = "chat"'),
    "a digest for a program": (hook(messages_per_minute="5"), 'messages_per_minute: expected mode = "chat"'),
    "a severity that is none": (hook(mode='"chat"', least_severity='"low"'), "least_severity: Input should be"),
    "a bad label": (
        '[[alertmanager]]\nname = "a"\nurls = ["https://a"]\nlabels = { "a-b" = "c" }',
        "expected names of labels",
    ),
    "a short hold": (
        '[[alertmanager]]\nname = "a"\nurls = ["https://a"]\nhold_ms = 60000',
        "hold_ms: expected at least four times resend_ms",
    ),
}


@pytest.mark.parametrize(("text", "expected"), BAD.values(), ids=BAD)
def test_an_error_names_the_place_and_shows_no_value(tmp_path: Path, text: str, expected: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        read_push_file(path)
    assert str(error.value).startswith(f"--push-file {path}: ")
    assert expected in str(error.value)
    assert SECRET not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--push-file {tmp_path}/push.toml: No such file"):
        read_push_file(tmp_path / "push.toml")


@pytest.mark.parametrize("text", ["", "# none\n", f"{KEY}\nshort", "whsec_c2hvcnQ=", "whsec_***", "x" * 200])
def test_a_file_of_keys_needs_keys_of_the_right_length(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    path = written(tmp_path, hook(signing_key_file=f'"{tmp_path}/key"'))
    with pytest.raises(ConfigError, match="expected one key per line") as error:
        read_push_file(path)
    assert KEY not in str(error.value)


@pytest.mark.parametrize("text", ["", "two words", "line\nline", "\u00fcber", "x\x00y"])
def test_a_token_is_one_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match="expected one token"):
        read_push_file(written(tmp_path, hook(token_file=f'"{tmp_path}/token"')))


def test_plain_http_can_be_allowed() -> None:
    target = WebhookTarget(name="pager", url="http://host/", allow_plain=True)
    assert target.addresses[0].is_plain
