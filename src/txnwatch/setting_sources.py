"""Reads the settings of `txnwatch run` from their sources. Precedence: flag, environment, file, default.

Every error names the key, the value, its source and what is expected.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from pydantic import ValidationError

from txnwatch.config import RunSettings
from txnwatch.config_providers import check_paths, expanded, has_reference
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text.redaction import redacted, shown_url
from txnwatch.streaming.job.spark_conf import conf_of

ENVIRONMENT_PREFIX = "TXNWATCH_"
# Variables that are not settings: the cache and the repository of downloads, the servers and seeds of the tests.
RESERVED_ENVIRONMENT = {
    "TXNWATCH_CACHE",
    "TXNWATCH_MAVEN_REPOSITORY",
    "TXNWATCH_TEST_SERVERS",
    "TXNWATCH_TEST_KAFKA_IMAGE",
    "TXNWATCH_TEST_REDIS_IMAGE",
    "TXNWATCH_TEST_IMAGE_BASE",
    "TXNWATCH_TEST_NO_SKIP",
    "TXNWATCH_SEEDS",
    "TXNWATCH_FIRST_SEED",
}
_TABLE = "spark_conf"
_CHECKPOINT = "checkpoint"
_PATHS = frozenset(
    name for name, spec in RunSettings.model_fields.items() if Path in (spec.annotation, *get_args(spec.annotation))
)
_MAY_HOLD_A_SECRET = frozenset({"redis_url", "schema_registry_url"})
# The kubelet's variables for the Services of a namespace: hosts and ports, and URLs such as tcp://10.0.0.7:9464.
_SERVICE_VALUE = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))")
_SERVICE_URL = re.compile(r"(\w+_)?PORT(_\d+_(TCP|UDP|SCTP))?")


def load_settings(
    flags: Mapping[str, Any],
    config_file: Path | None,
    environ: Mapping[str, str] = os.environ,
    *,
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> RunSettings:
    """Merges flags, environment and file into the settings of one run; references in values are replaced.

    `defaults` has the values of keys that no source has, beside those of the model.

    Raises:
        ConfigError: a key is unknown, or a value is invalid or missing; the message has key, value, source and what is
            expected.
    """
    layers = [
        ("default", defaults),
        (f"file {config_file}", _from_file(config_file)),
        ("environment", _from_environment(environ)),
        ("flag", {key: value for key, value in flags.items() if value is not None}),
    ]
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for source, layer in layers:
        values.update({**layer, **_merged(layer, values, source)})
        sources.update(dict.fromkeys(layer, source))
    try:
        return RunSettings(**{key: _read(key, value, environ) for key, value in values.items()})
    except ValidationError as exc:
        raise ConfigError("; ".join(_problem(error, sources, values) for error in exc.errors())) from None


def _read(key: str, value: Any, environ: Mapping[str, str]) -> Any:  # noqa: ANN401 - any value of TOML
    if key == _TABLE:
        return {name: expanded(text, f"{key}: {name}", environ) for name, text in value.items()}
    if not isinstance(value, str):
        return value
    found = expanded(value, key, environ, is_secret=key in _MAY_HOLD_A_SECRET)
    if key in _PATHS:
        check_paths(value, [found], key)
    if key == _CHECKPOINT:
        check_paths(value, [found], key, may_be_new=True)
    return found


def _merged(layer: Mapping[str, Any], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The table of Spark's settings with those of the sources before: each of its keys has the precedence of a key."""
    if _TABLE not in layer:
        return {}
    try:
        return {_TABLE: {**values.get(_TABLE, {}), **conf_of(layer[_TABLE])}}
    except ValueError as exc:
        raise ConfigError(f"{_TABLE}: {exc}, from {source}") from None


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"--config {path}: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"--config {path}: expected TOML, found: {exc}") from exc


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environ.items()
        if name.startswith(ENVIRONMENT_PREFIX)
        and name not in RESERVED_ENVIRONMENT
        and not _is_service_link(name.removeprefix(ENVIRONMENT_PREFIX), value)
    }


def _is_service_link(name: str, value: str) -> bool:
    """Whether the kubelet has set it for a Service that is named txnwatch or txnwatch-*.

    Of a Service named txnwatch-metrics it sets TXNWATCH_METRICS_PORT, which is a setting: its value is an error. To
    ignore it would hide the value that the image or the user has given this variable.
    """
    if name.lower() in RunSettings.model_fields:
        return False
    return _is_service_url(name, value) or _SERVICE_VALUE.fullmatch(name) is not None


def _is_service_url(name: str, value: object) -> bool:
    return _SERVICE_URL.fullmatch(name) is not None and isinstance(value, str) and "://" in value


def _problem(error: Any, sources: Mapping[str, str], values: Mapping[str, Any]) -> str:  # noqa: ANN401 - pydantic's ErrorDetails
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        variable = ENVIRONMENT_PREFIX + key.upper()
        return f"{key}: expected a value, found none: give --{key.replace('_', '-')}, {variable} or a line in the file"
    if not key:  # a rule about several keys; its message names them
        return str(error["msg"]).removeprefix("Value error, ")
    source = sources.get(key.partition(".")[0], "default")
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key, from {source}; known keys: {', '.join(sorted(RunSettings.model_fields))}"
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = expected if expected.startswith("expected") else f"expected {expected}"
    found = error["input"]
    given = values.get(key)
    if isinstance(given, str) and has_reference(given):
        found = given  # not the value that was read
    elif isinstance(found, str):
        found = shown_url(found) if key.endswith("_url") else redacted(found)
    is_link = source == "environment" and _is_service_url(key.upper(), given)
    return f"{key}: {expected}, found {_shown(found)} from {source}{_instead_of_link(key) if is_link else ''}"


def _instead_of_link(key: str) -> str:
    service = (ENVIRONMENT_PREFIX.lower() + key).removesuffix("_port").replace("_", "-")
    return (
        f" (Kubernetes sets {ENVIRONMENT_PREFIX}{key.upper()} for a Service named {service}): set enableServiceLinks: "
        "false in the pod, or rename the Service"
    )


def _shown(found: object) -> str:
    """A value for an error. Of a table or a list only the kind: a secret in it may stand under any name."""
    if isinstance(found, dict):
        return "a table"
    return "a list" if isinstance(found, list) else repr(found)
