"""Settings from flags, environment, file and defaults; and the message about a bad one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from support.bad_inputs import BadInputs
from txnwatch.config import RunSettings, is_redis_url
from txnwatch.setting_sources import RESERVED_ENVIRONMENT, load_settings
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.verdicts import DetectionPolicy

BROKER = {"bootstrap_server": "kafka:9092"}
WriteFile = Callable[[str | bytes], Path]


@pytest.fixture
def config_file(tmp_path: Path) -> WriteFile:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "txnwatch.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def settings(
    flags: dict[str, Any] | None = None, file: Path | None = None, environ: dict[str, str] | None = None
) -> RunSettings:
    return load_settings(BROKER if flags is None else {**BROKER, **flags}, file, environ or {})


FLAG, VARIABLE, LINE = {"trigger_ms": "1"}, {"TXNWATCH_TRIGGER_MS": "2"}, "trigger_ms = 3"


@pytest.mark.parametrize(
    ("flags", "environ", "line", "wins"),
    [
        pytest.param(FLAG, VARIABLE, LINE, 1, id="flag over all"),
        pytest.param(FLAG, {}, LINE, 1, id="flag over file"),
        pytest.param({}, VARIABLE, LINE, 2, id="environment over file"),
        pytest.param({}, {}, LINE, 3, id="file over default"),
        pytest.param({}, {}, "", 500, id="default"),
        pytest.param({"trigger_ms": None}, VARIABLE, LINE, 2, id="a flag that was not given is none"),
    ],
)
def test_the_nearest_source_wins(
    config_file: WriteFile, flags: dict[str, Any], environ: dict[str, str], line: str, wins: int
) -> None:
    assert settings(flags, config_file(line), environ).trigger_ms == wins


def test_sources_are_merged_key_by_key(config_file: WriteFile) -> None:
    merged = load_settings(
        {"topics": "orders.*"},
        config_file('bootstrap_server = "kafka:9092"\ntopics = "payments"\nlong_running_fraction = 0.5'),
        {"TXNWATCH_EVENTS_FORMAT": "avro", "TXNWATCH_COMMAND_CONFIG": "/etc/client.properties", "PATH": "/bin"},
    )
    changed = {
        "topics": "orders.*",
        "long_running_fraction": 0.5,
        "events_format": "avro",
        "command_config": Path("/etc/client.properties"),
    }
    assert merged.model_dump() == {**settings().model_dump(), **changed}


def test_the_default_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # The default is bound when the module is loaded: it has to be the live mapping and no copy.
    monkeypatch.setenv("TXNWATCH_BOOTSTRAP_SERVER", "kafka:9093")
    assert load_settings({}, None).bootstrap_server == "kafka:9093"


def test_variables_that_are_read_elsewhere_are_no_settings() -> None:
    assert settings(environ=dict.fromkeys(RESERVED_ENVIRONMENT, "anything")) == settings()


FILE = "file .*txnwatch.toml"
BAD_VALUES: dict[str, tuple[dict[str, Any], str, dict[str, str], str]] = {
    "no number, from a flag": ({"trigger_ms": "soon"}, "", {}, "trigger_ms: expected .*integer.*'soon' from flag"),
    "no number, from the environment": (
        {},
        "",
        {"TXNWATCH_TRIGGER_MS": "soon"},
        "trigger_ms: expected .*integer.*'soon' from environment",
    ),
    "no number, from the file": ({}, 'trigger_ms = "soon"', {}, f"trigger_ms: expected .*integer.*'soon' from {FILE}"),
    "zero where it has to be positive": ({}, "trigger_ms = 0", {}, "trigger_ms: expected greater than 0, found 0 from"),
    "a fraction of a millisecond": ({}, "trigger_ms = 1.5", {}, "trigger_ms: expected .*integer.*found 1.5 from"),
    "negative where it may be zero": (
        {"late_buffer_ms": "-1"},
        "",
        {},
        "late_buffer_ms: expected greater than or equal to 0, found '-1' from flag",
    ),
    "a fraction above 1": (
        {"long_running_fraction": "1.1"},
        "",
        {},
        "long_running_fraction: expected less than or equal to 1, found '1.1' from flag",
    ),
    "a fraction that is no number": (
        {"long_running_fraction": "nan"},
        "",
        {},
        "long_running_fraction: expected .*'nan' from",
    ),
    "an unknown format of events": (
        {"events_format": "xml"},
        "",
        {},
        "events_format: expected 'json', 'avro' or 'confluent-avro', found 'xml' from flag",
    ),
    "a pattern that is no regular expression": (
        {"topics": "orders("},
        "",
        {},
        r"topics: expected a regular expression \(.*\), found 'orders\(' from flag",
    ),
    "a broker without a port": (
        {"bootstrap_server": "kafka"},
        "",
        {},
        "bootstrap_server: expected host:port.* found 'kafka' from flag",
    ),
    "a list of no brokers": (
        {"bootstrap_server": " , "},
        "",
        {},
        "bootstrap_server: expected host:port, several of them comma-separated, found ' , ' from flag",
    ),
    "a name of a topic with a space": (
        {"events_topic": "bad topic!"},
        "",
        {},
        "events_topic: expected a topic's name: .* found 'bad topic!' from flag",
    ),
    "a name of a topic that is two dots": (
        {},
        "",
        {"TXNWATCH_EVENTS_TOPIC": ".."},
        "events_topic: expected a topic's name: .*'..' from",
    ),
    "a name of a topic with 250 characters": (
        {"events_topic": "x" * 250},
        "",
        {},
        "events_topic: expected a topic's name: 1 to 249 of",
    ),
    "a URL of Redis that is no URL": (
        {"redis_url": "foo"},
        "",
        {},
        "redis_url: expected redis://.*, found 'foo' from flag",
    ),
    "a URL of Redis without a port": (
        {},
        'redis_url = "redis://h:notaport/0"',
        {},
        f"redis_url: expected redis://.*notaport/0' from {FILE}",
    ),
    "a URL of Redis without a number of a database": (
        {"redis_url": "redis://h:1/x"},
        "",
        {},
        "redis_url: expected redis://.*, found 'redis://h:1/x' from",
    ),
    "a URL with an unknown option": ({"redis_url": "redis://h/0?foo=1"}, "", {}, "redis_url: expected redis://"),
    "a URL with a password, which is not shown": (
        {"redis_url": "redis://me:se/cret@h:x/0"},
        "",
        {},
        r"redis_url: expected redis://.*, found 'redis://\*\*\*@h:x/0' from flag$",
    ),
    "text that is no UTF-8": ({"topics": "a\udcff"}, "", {}, r"topics: expected UTF-8, found 'a\\udcff' from flag"),
    "a number above an int64": (
        {"trigger_ms": str(1 << 63)},
        "",
        {},
        "trigger_ms: expected less than or equal to 92233720368",
    ),
    "a number above an int32": (
        {"state_partitions": str(1 << 31)},
        "",
        {},
        "state_partitions: expected less than or equal to",
    ),
    "a list with a number where text is expected": (
        {},
        "abort_transactional_id_prefixes = ['a', 5]",
        {},
        rf"abort_transactional_id_prefixes: expected prefixes, comma-separated or .*, found a list from {FILE}",
    ),
    "an empty prefix, which every id would have": (
        {},
        "abort_deny_transactional_id_prefixes = ['']",
        {},
        "abort_deny_transactional_id_prefixes: expected prefixes, .* that are not empty, found",
    ),
    "a table where text is expected, whose values are not shown": (
        {},
        "redis_url = {uri = 'sesame'}",
        {},
        f"redis_url: expected a valid string, found a table from {FILE}",
    ),
    "a host with an empty label": ({"bootstrap_server": "a..b:9092"}, "", {}, "bootstrap_server: expected host:port"),
    "a registry without a host": (
        {"schema_registry_url": "http://a..b/"},
        "",
        {},
        "schema_registry_url: expected http://",
    ),
    "a number where text is expected": (
        {},
        "checkpoint = 5",
        {},
        f"checkpoint: expected a valid string, found 5 from {FILE}",
    ),
    "a bad value in three sources: the nearest is named": (
        {"trigger_ms": "0"},
        "trigger_ms = 5",
        {"TXNWATCH_TRIGGER_MS": "x"},
        "trigger_ms: expected greater than 0, found '0' from flag",
    ),
}


@pytest.mark.parametrize(("flags", "line", "environ", "message"), BAD_VALUES.values(), ids=BAD_VALUES.keys())
def test_a_bad_value_names_key_expectation_value_and_source(
    config_file: WriteFile,
    flags: dict[str, Any],
    line: str,
    environ: dict[str, str],
    message: str,
    bad_inputs: BadInputs,
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}") as raised:
        settings(flags, config_file(line), environ)
    bad_inputs.keep("Settings", raised.value)


@pytest.mark.parametrize(
    ("line", "environ", "message"),
    [
        pytest.param("triger_ms = 5", {}, f"triger_ms: unknown key, from {FILE}; known keys: ", id="file"),
        pytest.param("", {"TXNWATCH_TRIGER_MS": "5"}, "triger_ms: unknown key, from environment; known", id="variable"),
        pytest.param("[run]\ntrigger_ms = 5", {}, f"run: unknown key, from {FILE}", id="section"),
    ],
)
def test_an_unknown_key_is_named_with_its_source_and_the_known_ones(
    config_file: WriteFile, line: str, environ: dict[str, str], message: str, bad_inputs: BadInputs
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings({}, config_file(line), environ)
    bad_inputs.keep("Settings", caught.value, before="an unknown key, in a ")
    assert ", ".join(sorted(RunSettings.model_fields)) in str(caught.value)


def test_every_problem_is_reported_at_once(config_file: WriteFile) -> None:
    with pytest.raises(ConfigError) as caught:
        settings({"trigger_ms": "0"}, config_file("nonsense = 1"), {"TXNWATCH_STATE_PARTITIONS": "-4"})
    for key in ("trigger_ms", "nonsense", "state_partitions"):
        assert f"{key}: " in str(caught.value)


def test_a_missing_value(bad_inputs: BadInputs) -> None:
    """The error names every way to give it."""
    with pytest.raises(ConfigError) as caught:
        load_settings({"bootstrap_server": None}, None, {})
    assert str(caught.value) == (
        "bootstrap_server: expected a value, found none: give --bootstrap-server, TXNWATCH_BOOTSTRAP_SERVER or a line "
        "in the file"
    )
    bad_inputs.keep("Settings", caught.value)


@pytest.mark.parametrize(
    "content",
    ["trigger_ms = ", 'topics = "a\ntopics', "{}", "trigger_ms = 1\ntrigger_ms = 2", b"topics = '\xff'"],
    ids=["half a line", "no closing quote", "JSON", "a key twice", "no UTF-8"],
)
def test_a_file_that_is_no_toml_is_named(config_file: WriteFile, content: str | bytes, bad_inputs: BadInputs) -> None:
    path = config_file(content)
    with pytest.raises(ConfigError, match=f"^--config {re.escape(str(path))}: expected TOML, found: ") as raised:
        settings({}, path)
    bad_inputs.keep("Settings", raised.value, before="a file with ")


def test_a_file_is_read_as_utf_8(config_file: WriteFile) -> None:
    assert settings({}, config_file('topics = "größe"')).topics == "größe"


@pytest.mark.parametrize(
    ("name", "reason"), [("absent.toml", "No such file"), (".", "Is a directory")], ids=["none", "a directory"]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, reason: str, bad_inputs: BadInputs) -> None:
    with pytest.raises(ConfigError, match=f"^--config {re.escape(str(tmp_path / name))}: {reason}") as raised:
        settings({}, tmp_path / name)
    bad_inputs.keep("Settings", raised.value, before="a file that cannot be read: ")


@pytest.mark.parametrize(
    "url",
    ["redis://h", "redis://:secret@h:6379/3", "rediss://h:1/", "redis://[::1]:1/0?db=2", "unix:///run/redis.sock"],
)
def test_any_url_that_redis_py_takes_is_taken(url: str) -> None:
    assert settings({"redis_url": url}).redis_url == url


@pytest.mark.parametrize(
    ("url", "is_valid"),
    [
        ("redis+sentinel://:pw@h1:26379,h2:26379/the-service/1?sentinel_password=x", True),
        ("rediss+sentinel://h1/the-service", True),
        ("redis+cluster://u:pw@h1:6379,h2", True),
        ("rediss+cluster://[::1]:1", True),
        ("redis+sentinel://h1:26379", False),
        ("redis+sentinel://h1:x/the-service", False),
        ("redis+sentinel://h1/the-service/x", False),
        ("redis+cluster://h1:6379/1", False),
        ("redis+cluster://h1:6379?foo=1", False),
        ("redis+ring://h1:6379", False),
        ("redis://a..b:6379", False),
        ("redis+cluster://h1:6379,a..b:6379", False),
        ("unix+cluster://h1:6379", False),
    ],
)
def test_urls_of_sentinel_and_of_a_redis_cluster(*, url: str, is_valid: bool) -> None:
    assert is_redis_url(url) is is_valid


@pytest.mark.parametrize(
    ("flags", "line", "prefixes"),
    [
        pytest.param({"abort_transactional_id_prefixes": " a, b ,"}, "", ("a", "b"), id="a flag"),
        pytest.param({}, "abort_transactional_id_prefixes = 'a,b'", ("a", "b"), id="text in the file"),
        pytest.param({}, "abort_transactional_id_prefixes = ['a', 'b,c']", ("a", "b,c"), id="a list in the file"),
        pytest.param({}, "abort_transactional_id_prefixes = ''", (), id="none"),
    ],
)
def test_prefixes_are_a_list_however_they_are_written(
    config_file: WriteFile, flags: dict[str, Any], line: str, prefixes: tuple[str, ...]
) -> None:
    assert settings(flags, config_file(line)).abort_policy.id_prefixes == prefixes


@pytest.mark.parametrize("name", ["", "<a>", "-a", "a b", "a" * 64, "\u00e9"])
def test_what_is_no_name_of_a_cluster_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cluster_name: expected a-z, A-Z, 0-9"):
        load_settings({"bootstrap_server": "a:1", "cluster_name": name}, None, environ={})
    assert load_settings({"bootstrap_server": "a:1", "cluster_name": "eu-1.B_2"}, None, environ={}).cluster_name


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        settings().trigger_ms = 5


def test_the_policy_has_the_thresholds_that_were_set() -> None:
    changed = {
        "late_buffer_ms": 1,
        "coordinator_scan_interval_ms": 2,
        "stuck_prepare_ms": 3,
        "long_running_fraction": 0.25,
        "long_running_min_ms": 4,
    }
    assert asdict(settings(changed).policy) == {**asdict(DetectionPolicy()), **changed}
    assert settings().policy == DetectionPolicy()


def test_every_setting_explains_itself() -> None:
    assert [name for name, spec in RunSettings.model_fields.items() if not spec.description] == []
