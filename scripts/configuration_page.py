"""docs/configuration.md: every setting of `txnwatch run`, with type, default, flag and environment variable."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from page_links import link_pages
from pydantic.fields import FieldInfo

from txnwatch.cli.settings_flags import choices
from txnwatch.config import RunSettings
from txnwatch.setting_sources import ENVIRONMENT_PREFIX, RESERVED_ENVIRONMENT

ABOUT = """\
This page lists every setting of `txnwatch run`. A setting has one name in three places: a flag on the command line
(`--trigger-ms`), an environment variable (`TXNWATCH_TRIGGER_MS`) and a key of the TOML file that `--config FILE` names
(`trigger_ms`). A flag overrides an environment variable, and both override the file. An unknown key, an unknown
variable with the prefix `TXNWATCH_`, and an invalid value are errors: txnwatch names the key, the value, where it comes
from and what is expected, and exits with 2.

Only `bootstrap_server` is required. A complete file, with every default, is
[`deploy/reference-config.toml`](../deploy/reference-config.toml). A short one:

```toml
bootstrap_server = "broker-1:9092,broker-2:9092"
command_config = "/etc/txnwatch/client.properties"
checkpoint = "/var/lib/txnwatch"
topics = 'orders|payments.*'
metrics_port = 9464
```

A regular expression must match the whole name of a topic. It has Python's syntax. In the file, write it in single
quotes: in double quotes, TOML treats a backslash as the beginning of an escape.

A value can refer to a secret that is kept elsewhere, with `${env:NAME}`, `${file:/path}` or `${file:/path:key}`: see
[secrets from files and variables](hardening.md#secrets-from-files-and-variables).

The other commands take the settings that they share with `run` (the connection, the events topic, Redis, the
thresholds of the verdicts) from the same file, variables and flags: [the flags of each](cli.md). A setting that a
command does not use is ignored there, but its value must be valid.
"""
OTHER_ABOUT = """\
## Environment variables that are not settings

| variable | meaning |
|---|---|
"""
OTHER = {
    "TXNWATCH_CACHE": "directory in which `txnwatch demo` and the tests keep downloaded files; "
    "default: `~/.cache/txnwatch`",
    "TXNWATCH_MAVEN_REPOSITORY": "URL of the Maven repository that has Kafka's jars, for `txnwatch demo` and the tests",
    "TXNWATCH_TEST_SERVERS": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_TEST_KAFKA_IMAGE": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_TEST_REDIS_IMAGE": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_TEST_IMAGE_BASE": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_TEST_NO_SKIP": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_SEEDS": "tests only, see [Contributing](../CONTRIBUTING.md)",
    "TXNWATCH_FIRST_SEED": "tests only: the first seed of the simulation",
}
GROUPS = {
    "The cluster and its topics": (
        "bootstrap_server",
        "command_config",
        "topics",
        "census_topics",
        "foreign_topics",
        "coordinator_view",
        "starting_offsets",
        "checkpoint",
        "checkpoint_is_shared",
    ),
    "Events": (
        "events_topic",
        "events_format",
        "schema_registry_url",
        "events_key_file",
        "events_retention_ms",
        "events_heartbeat_ms",
    ),
    "Redis, metrics and the log": (
        "redis_url",
        "metrics_port",
        "metrics_host",
        "metrics_web_config_file",
        "log_format",
    ),
    "Pace and limits of reading": (
        "trigger_ms",
        "census_interval_ms",
        "heal_interval_ms",
        "max_offsets_per_trigger",
        "max_bytes_per_trigger",
        "max_bytes_per_second",
        "max_read_ms_per_trigger",
    ),
    "Spark": ("master", "state_partitions", "input_partitions", "spark_conf"),
    "Thresholds of the verdicts": (
        "late_buffer_ms",
        "coordinator_scan_interval_ms",
        "stuck_prepare_ms",
        "long_running_fraction",
        "long_running_min_ms",
        "max_transaction_timeout_ms",
    ),
    "The automatic abort": (
        "auto_abort",
        "abort_after_ms",
        "abort_topics",
        "abort_deny_topics",
        "abort_transactional_id_prefixes",
        "abort_deny_transactional_id_prefixes",
        "abort_budget_per_hour",
        "abort_breaker_incidents",
        "abort_breaker_cooldown_ms",
    ),
}
_TYPES = {
    "Bootstrap": "list of host:port, comma-separated",
    "Path": "path of a file",
    "Prefixes": "list of strings",
    "RedisUrl": "URL",
    "RegistryUrl": "http:// or https:// URL, or several of them, comma-separated",
    "Regex": "regular expression",
    "SparkConf": "table of strings or numbers",
    "Text": "string",
    "NotEmpty": "text that is not empty",
    "TopicName": "name of a topic",
}
_LIMITS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "le": "maximum",
}  # behind a validator pydantic keeps its own names
_NOT_WORTH_NAMING = (1 << 31) - 1


def configuration_page(generated: str) -> str:
    """The page; every setting is in exactly one group.

    Raises:
        ValueError: a setting is in no group or in two, or a reserved variable has no description.
    """
    grouped = [name for names in GROUPS.values() for name in names]
    if sorted(grouped) != sorted(RunSettings.model_fields) or OTHER.keys() != RESERVED_ENVIRONMENT:
        raise ValueError("expected GROUPS with every setting once, and OTHER with every reserved variable")
    bounds = RunSettings.model_json_schema()["properties"]
    lines = ["# Configuration", "", generated, ABOUT]
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += [*_setting(name, RunSettings.model_fields[name], bounds[name]), ""]
    return "\n".join([*lines, OTHER_ABOUT + "\n".join(f"| `{name}` | {text} |" for name, text in OTHER.items()), ""])


def _setting(name: str, spec: FieldInfo, bounds: dict[str, Any]) -> Iterable[str]:
    yield f"### `{name}`"
    yield ""
    yield f"- Meaning: {link_pages(str(spec.description))}"
    yield f"- Type: {_type(name, spec, bounds)}"
    yield f"- Default: {_default(spec)}"
    yield f"- Flag: `--{name.replace('_', '-')}`"
    yield f"- Environment variable: `{ENVIRONMENT_PREFIX}{name.upper()}`"


def _type(name: str, spec: FieldInfo, bounds: dict[str, Any]) -> str:
    values = choices(spec)
    if values:
        return f"one of {', '.join(f'`{value}`' for value in values)}"
    alias = str(RunSettings.__annotations__[name]).removesuffix(" | None")
    if alias in _TYPES:
        return _TYPES[alias]
    number = next((kind for kind in bounds.get("anyOf", ()) if kind["type"] != "null"), bounds)
    limits = {_LIMITS.get(key, key): value for key, value in number.items()}
    if number["type"] == "integer":
        lowest = limits["minimum"] if "minimum" in limits else limits["exclusiveMinimum"] + 1
        highest = f", at most {limits['maximum']}" if limits["maximum"] < _NOT_WORTH_NAMING else ""
        return f"integer, at least {lowest}{highest}"
    return f"number, more than {limits['exclusiveMinimum']}, at most {limits['maximum']}"


def _default(spec: FieldInfo) -> str:
    if spec.is_required():
        return "none: a value is required"
    if spec.default is None:
        return "not set"
    return f"`{json.dumps(spec.default)}`"
