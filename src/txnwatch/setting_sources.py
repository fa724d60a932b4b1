"""Reads the settings of `txnwatch run` from their sources. Precedence: flag, environment, file, default.

Every error names the key, the value, its source and what is expected.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, get_args
from urllib.parse import quote

import javaproperties
from pydantic import ValidationError

from txnwatch.config import RunSettings
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.text import is_secret_name, redacted, shown_url
from txnwatch.streaming.client.notations import jaas_options
from txnwatch.streaming.client.property_names import check_names
from txnwatch.streaming.job.spark_conf import conf_of

# Values of settings that are kept elsewhere, in the form of Kafka's config providers.
#
# `${env:NAME}` is an environment variable, `${file:/path}` the content of a file without blanks at both ends,
# `${file:/path:key}` the value of a key in a Java properties file. Kafka's own providers have the first and the last
# form (EnvVarConfigProvider, FileConfigProvider). A reference to another provider is kept as text, as Kafka does.
#
# Law: no error shows a value that was read, and a value that was read is not searched for references. A reader of a
# file shows the path in its errors, so a path is checked here before: if nothing exists there, it may be a key.

_REFERENCE = re.compile(r"\$\{(env|file):([^{}]*)\}")
_PASSWORD_FOLLOWS = re.compile(r"[^/?#]*@")
_PARAMETER_BEFORE = re.compile(r"://[^\s?]*[?]([^\s?]*&)?[\w.-]+=$")
_secret_variables: set[str] = set()


def has_reference(text: str) -> bool:
    """Whether a part of the text is kept elsewhere."""
    return _REFERENCE.search(text) is not None


def expanded(text: str, where: str, environ: Mapping[str, str] = os.environ, *, is_secret: bool = True) -> str:
    """The text with the value of every reference; in a URL, a user, a password or a parameter is URL-encoded.

    Args:
        text: the value of a setting.
        where: the setting, for errors.
        environ: the variables of `${env:NAME}`.
        is_secret: whether child processes must not inherit the variables; see `hidden_from_children`.

    Raises:
        ConfigError: a variable, a file or a key is missing or empty.
    """

    def value(reference: re.Match[str]) -> str:
        read = _value(reference[1], reference[2], f"{where}: {reference[0]}", environ)
        if is_secret and reference[1] == "env":
            _secret_variables.add(reference[2])
        return quote(read, safe="") if _is_encoded(text, reference) else read

    return _REFERENCE.sub(value, text)


def _check_paths(text: str, paths: Iterable[str], where: str, *, may_be_new: bool = False) -> None:
    """Checks the paths in a value that was read; a path without a reference is the business of its reader.

    Args:
        text: the value of a setting, with its references.
        paths: the paths in the value that was read.
        where: the setting, for errors.
        may_be_new: whether the path may be that of a new directory in one that exists, or a URI.

    Raises:
        ConfigError: nothing exists at a path; the message has the references.
    """
    references = ", ".join(reference[0] for reference in _REFERENCE.finditer(text))
    if not references or all(_exists(path) or (may_be_new and _may_be_new(path)) for path in paths):
        return
    what = "a directory, whose parent exists, or a URI" if may_be_new else "a file that exists"
    hint = " (${file:...} is the content of a file, not its path)" if "${file:" in references else ""
    raise ConfigError(f"{where}: expected the path of {what}, found none at {references}{hint}")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):  # too long, or no path
        return False


def _may_be_new(path: str) -> bool:
    """A name in the current or in the root directory is no proof: a key may be one."""
    parent = Path(path).parent
    return "://" in path or (parent.is_absolute() and parent != Path(parent.anchor) and _exists(str(parent)))


@contextlib.contextmanager
def hidden_from_children(prefix: str, environ: MutableMapping[str, str] = os.environ) -> Iterator[None]:
    """Removes variables that may hold a secret from the environment that child processes of this block inherit.

    These are the variables with the prefix, and those that a secret was read from.
    """
    removed = {name: environ[name] for name in list(environ) if name.startswith(prefix) or name in _secret_variables}
    for name in removed:
        del environ[name]
    try:
        yield
    finally:
        environ.update(removed)


def _is_encoded(text: str, reference: re.Match[str]) -> bool:
    """Whether the reference is in the user or the password of a URL, or is the value of a parameter in its query."""
    before = text[: reference.start()]
    is_in_credentials = "://" in before and _PASSWORD_FOLLOWS.match(text, reference.end()) is not None
    return is_in_credentials or _PARAMETER_BEFORE.search(before) is not None


def _value(provider: str, name: str, where: str, environ: Mapping[str, str]) -> str:
    if provider == "env":
        value = _variable(name, where, environ)
    else:
        path, has_key, key = name.rpartition(":")
        value = _of_properties(Path(path), key, where) if has_key else _whole(Path(name), where)
    if not value:
        raise ConfigError(f"{where}: expected a value, found an empty one")
    return value


def _variable(name: str, where: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise ConfigError(f"{where}: expected the environment variable {name}, found none")
    return environ[name]


def _whole(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise ConfigError(f"{where}: expected a file that can be read, found: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: expected a file in UTF-8, found another encoding") from None


def read_properties(path: Path, where: str) -> dict[str, str]:
    """The values of a Java properties file, as they are written there.

    Raises:
        OSError: the file cannot be read.
        ConfigError: it has an invalid escape.
    """
    try:
        with path.open("rb") as file:
            return dict(javaproperties.load(file))
    except ValueError:  # its message has a part of the value
        raise ConfigError(f"{where}: expected a Java properties file, found an invalid escape") from None


def _of_properties(path: Path, key: str, where: str) -> str:
    try:
        properties = read_properties(path, where)
    except OSError as exc:
        raise ConfigError(f"{where}: expected a file that can be read, found: {exc.strerror}") from exc
    if key not in properties:
        raise ConfigError(f"{where}: expected the key {key} in {path}, found none")
    return properties[key]


# The settings of `txnwatch run`: each from the first source that has it.

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
    "TXNWATCH_TEST_ALERTMANAGER",
    "TXNWATCH_TEST_BROWSER",
    "TXNWATCH_SEEDS",
    "TXNWATCH_FIRST_SEED",
}
_TABLE = "spark_conf"
OWNER_ENTRIES = "owner"
_OWNERS_FILE = "owners_file"
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
    whole = expanded(value, key, environ, is_secret=key in _MAY_HOLD_A_SECRET)
    if key in _PATHS:
        _check_paths(value, [whole], key)
    if key == _CHECKPOINT:
        _check_paths(value, [whole], key, may_be_new=True)
    return whole


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
    return _with_owners(toml_of(path, f"--config {path}"), path)


def toml_of(path: Path, where: str, expected: str = "") -> dict[str, Any]:
    """The content of a TOML file; `expected` is what stands before the reason in the error of one that is not readable.

    Raises:
        ConfigError: it cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"{where}: {expected}{exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigError(f"{where}: expected TOML, found: {exc}") from exc


def _with_owners(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    """A settings file with `[[owner]]` entries is also the file of the table of owners."""
    if OWNER_ENTRIES not in settings:
        return settings
    if _OWNERS_FILE in settings:
        raise ConfigError(
            f"--config {path}: expected {_OWNERS_FILE} or [[{OWNER_ENTRIES}]] entries, found both: move the entries to "
            f"the file that {_OWNERS_FILE} names"
        )
    return {**{key: value for key, value in settings.items() if key != OWNER_ENTRIES}, _OWNERS_FILE: path}


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

    Of a Service named txnwatch-http it sets TXNWATCH_HTTP_PORT, which is a setting: its value is an error. To
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
    name = key.partition(".")[0]
    source = sources.get(name, "default")
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key, from {source}; known keys: {', '.join(sorted(RunSettings.model_fields))}"
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    expected = expected if expected.startswith("expected") else f"expected {expected}"
    given_value = error["input"]
    given = values.get(key)
    if isinstance(given, str) and has_reference(given):
        given_value = given  # not the value that was read
    elif isinstance(given_value, str):
        given_value = shown_url(given_value) if key.endswith("_url") else redacted(given_value)
    is_link = source == "environment" and _is_service_url(name.upper(), given)
    return f"{key}: {expected}, found {_shown(given_value)} from {source}{_instead_of_link(name) if is_link else ''}"


def _instead_of_link(key: str) -> str:
    service = (ENVIRONMENT_PREFIX.lower() + key).removesuffix("_port").replace("_", "-")
    return (
        f" (Kubernetes sets {ENVIRONMENT_PREFIX}{key.upper()} for a Service named {service}): set enableServiceLinks: "
        "false in the pod, or rename the Service"
    )


def _shown(value: object) -> str:
    """A value for an error. Of a table or a list only the kind: a secret in it may stand under any name."""
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else repr(value)


# The Java client properties of `--command-config`: those of the brokers, and those of the schema registry.

_REGISTRY_PREFIX = "schema.registry."
_ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_WEB: Final = ("https:", "http:")
_JAAS: Final = "sasl.jaas.config"


def client_properties(path: Path | None) -> dict[str, str]:
    """The Java client properties of `--command-config`, with the values of references; empty without a file.

    Raises:
        ConfigError: the file, or something that a value refers to, cannot be read; or a name is misspelt.
    """
    if path is None:
        return {}
    where = f"--command-config {path}"
    try:
        properties = read_properties(path, where)
    except OSError as exc:
        raise ConfigError(f"{where}: expected a Java properties file, found: {exc}") from exc
    check_names(properties, where)
    return {name: _value_of_line(name, value, f"{where}: {name}") for name, value in properties.items()}


def _value_of_line(name: str, text: str, where: str) -> str:
    value = expanded(text, where, is_secret=is_secret_name(name))
    _check_paths(text, _paths(name, value), where)
    return value


def _paths(name: str, value: str) -> list[str]:
    """The paths of files in the value of a property."""
    if name.endswith(".location"):
        return [value]
    if name == _ENDPOINT and not value.startswith(_WEB):
        return [value.removeprefix("file://")]
    if name == _JAAS:
        options = jaas_options({_JAAS: value}).items()
        return [path.removeprefix("FILE:") for key, path in options if key == "keyTab" or key.endswith(".location")]
    return []


def registry_config(url: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of confluent-kafka's registry client: the URL, and `schema.registry.*` of `--command-config`."""
    mine = {name.removeprefix(_REGISTRY_PREFIX): value for name, value in properties.items() if _is_registry(name)}
    return {**mine, "url": url}


def broker_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of `--command-config` for the brokers: all except `schema.registry.*`."""
    return {name: value for name, value in properties.items() if not _is_registry(name)}


def _is_registry(name: str) -> bool:
    return name.startswith(_REGISTRY_PREFIX)
