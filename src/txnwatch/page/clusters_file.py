"""The file that names the clusters of `txnwatch page`: TOML with `[[cluster]]` entries. It is checked at the start.

Apart: the schema of the chart is made from its class, without the command.

The keys of an entry are settings of `run`, with the same names and rules. References (`${file:...}`, `${env:...}`) in
values are replaced.

Law: no error shows a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from txnwatch.config import EVENTS_TOPIC, Bootstrap, RedisUrl, RegistryUrl, RunSettings, TopicName
from txnwatch.setting_sources import expanded, toml_of
from txnwatch.state.model.errors import ConfigError

ENTRIES: Final = "cluster"
MOST_CLUSTERS: Final = 100
NAME_RULE: Final = "a-z, A-Z, 0-9, '.', '_' and '-', at most 63 characters, the first a letter or a digit"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WEB: Final = re.compile(r"https?://[!-~]{1,1000}")


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(f"expected {NAME_RULE}")
    return value


def _web(value: str) -> str:
    if not _WEB.fullmatch(value):
        raise ValueError("expected an address that begins with https:// or http://")
    return value


class ClusterEntry(BaseModel):
    """One `[[cluster]]`.

    Attributes:
        name: how the page calls the cluster.
        watcher_url: the page of its watcher, for what the topic does not have.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_name)]
    bootstrap_server: Bootstrap
    command_config: Path | None = None
    events_topic: TopicName = EVENTS_TOPIC
    schema_registry_url: RegistryUrl | None = Field(None, repr=False)
    events_key_file: Path | None = None
    redis_url: RedisUrl | None = Field(None, repr=False)
    watcher_url: Annotated[str, AfterValidator(_web)] | None = None


# The settings of `run` that an entry can have, and that the command has as flags for one cluster.
SHARED: Final = tuple(name for name in ClusterEntry.model_fields if name in RunSettings.model_fields)


def read_clusters(path: Path) -> Sequence[ClusterEntry]:
    """The clusters in a file.

    Raises:
        ConfigError: the file cannot be read, or an entry is not valid. The message names the entry and the key.
    """
    where = f"--clusters-file {path}"
    raw = toml_of(path, where, "expected a file that can be read, found: ")
    entries = raw.get(ENTRIES)
    unknown = sorted(raw.keys() - {ENTRIES})
    if unknown:
        raise ConfigError(f"{where}: expected [[{ENTRIES}]] entries, found the key {unknown[0]!r}")
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f"{where}: expected [[{ENTRIES}]] entries, found none")
    if len(entries) > MOST_CLUSTERS:
        raise ConfigError(f"{where}: expected at most {MOST_CLUSTERS} entries, found {len(entries)}")
    found = [_entry(entry, number, where) for number, entry in enumerate(entries, 1)]
    names = [one.name for one in found]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where}: expected a name of its own for each cluster, found {double} twice")
    return found


def _entry(raw: Any, number: int, where: str) -> ClusterEntry:  # noqa: ANN401 - any value of TOML
    if not isinstance(raw, dict):
        raise ConfigError(f"{where}: entry {number}: expected a table with keys, found another value")
    place = f"{where}: entry {number}"
    values: dict[str, Any] = {
        key: expanded(value, f"{place}: {key}") if isinstance(value, str) else value for key, value in raw.items()
    }
    try:
        return ClusterEntry(**values)
    except ValidationError as exc:
        raise ConfigError("; ".join(f"{place}: {text}" for text in _problems(exc))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for found in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden":
            yield f"unknown key {key!r}; known keys: {', '.join(ClusterEntry.model_fields)}"
        elif found["type"] == "missing":
            yield f"{key}: expected a value, found none"
        else:
            text = found["msg"].removeprefix("Value error, ")
            yield f"{key}: {text if text.startswith('expected') else f'expected another value: {text}'}"
