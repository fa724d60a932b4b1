"""The clusters of `txnwatch page`: the file that names their watchers, and the same from flags.

The file is TOML with `[[cluster]]` entries, and is checked at the start. References (`${file:...}`, `${env:...}`) in
values are replaced. The password of a login is in a file of its own, which is read again for each request, so a rotated
password needs no restart.

Apart: the schema of the chart is made from the class of an entry, without the command.

Law:
    * No error shows a value that may be a secret.
    * A login goes to no address over plain http, unless the entry allows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from txnwatch.config import EVENTS_TOPIC, Bootstrap, ClusterName, RegistryUrl, RunSettings, TopicName
from txnwatch.http_client import Address, CertificateOfClient, HttpClient, parse_address
from txnwatch.setting_sources import expanded, toml_of
from txnwatch.state.model.errors import ConfigError

ENTRIES: Final = "cluster"
MOST_CLUSTERS: Final = 100
MOST_WATCHERS: Final = 4
FACTS_PATH: Final = "/api/v1/facts"
_USER: Final = re.compile(r"[^\x00-\x1f\x7f:]{1,255}")


def _watcher(value: str) -> str:
    if "?" in parse_address(value).path:
        raise ValueError("expected https://host:port/path, without a query")
    return value


def _user(value: str) -> str:
    if not _USER.fullmatch(value):
        raise ValueError("expected a name without a colon and control characters")
    return value


class ClusterEntry(BaseModel):
    """One `[[cluster]]`.

    Attributes:
        name: how the page calls the cluster; a watcher that has a name for it (`cluster_name`) must have the same.
        watchers: the addresses of its watchers; several have the same settings, and each of them sees the whole.
        cluster_id: the id that its watchers must have; None for any.
        user, password_file: the login of the web configuration file of the watchers.
        ca_file: authorities to trust instead of those of the system.
        cert_file, key_file: the certificate of this client, if the watchers ask for one.
        allow_plain: whether the login may go to another machine over http.
        bootstrap_server: where the commands that are shown connect to; without it, no command is shown.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: ClusterName
    watchers: list[Annotated[str, AfterValidator(_watcher)]] = Field(min_length=1, max_length=MOST_WATCHERS)
    cluster_id: Annotated[str, Field(pattern=r"^[!-~]{1,255}$")] | None = None
    user: Annotated[str, AfterValidator(_user)] | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    allow_plain: bool = False
    bootstrap_server: Bootstrap | None = None
    command_config: Path | None = None
    events_topic: TopicName = EVENTS_TOPIC
    schema_registry_url: RegistryUrl | None = Field(None, repr=False)
    events_key_file: Path | None = None

    @model_validator(mode="after")
    def _fits(self) -> ClusterEntry:
        if (self.user is None) is not (self.password_file is None):
            raise ValueError("expected user and password_file, or neither")
        if (self.cert_file is None) is not (self.key_file is None):
            raise ValueError("expected cert_file and key_file, or neither")
        if len(set(self.watchers)) < len(self.watchers):
            raise ValueError("watchers: expected each address once")
        plain = next((address.shown for address in self.addresses if address.is_plain), None)
        if plain is not None and self.user is not None and not self.allow_plain:
            raise ValueError(f"expected https for the login at {plain}, found http: `allow_plain = true` allows it")
        return self

    @property
    def addresses(self) -> Sequence[Address]:
        """The addresses of the watchers, in order."""
        return tuple(map(parse_address, self.watchers))

    def clients(self) -> Sequence[HttpClient]:
        """What asks each watcher for its facts.

        Raises:
            ConfigError: a certificate cannot be used.
        """
        own = None
        if self.cert_file is not None and self.key_file is not None:
            own = CertificateOfClient(self.cert_file, self.key_file)
        clients = [HttpClient(address.below(FACTS_PATH), self.ca_file, own) for address in self.addresses]
        for client in clients:
            client.check()
        return clients


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
    clusters = [_entry(entry, f"{where}: entry {number}") for number, entry in enumerate(entries, 1)]
    names = [cluster.name for cluster in clusters]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where}: expected a name of its own for each cluster, found {double} twice")
    return clusters


def clusters_of(flags: Iterable[str], shared: Mapping[str, Any]) -> Sequence[ClusterEntry]:
    """The clusters of the flags `--watcher NAME=URL`; `shared` has the settings of the only cluster.

    Raises:
        ConfigError: one is not valid.
    """
    watchers: dict[str, list[str]] = {}
    for flag in flags:
        name, sign, url = flag.partition("=")
        if not sign:
            raise ConfigError(f"--watcher: expected NAME=URL, found no '=' in entry {len(watchers) + 1}")
        watchers.setdefault(name, []).append(url)
    more = shared if len(watchers) == 1 else {}
    return [_entry({"name": name, "watchers": urls, **more}, "--watcher") for name, urls in watchers.items()]


def _entry(raw: Any, place: str) -> ClusterEntry:  # noqa: ANN401 - any value of TOML
    if not isinstance(raw, dict):
        raise ConfigError(f"{place}: expected a table with keys, found another value")
    values: dict[str, Any] = {
        key: expanded(value, f"{place}: {key}") if isinstance(value, str) else value for key, value in raw.items()
    }
    try:
        return ClusterEntry(**values)
    except ValidationError as exc:
        raise ConfigError("; ".join(f"{place}: {text}" for text in _problems(exc))) from None


def _problems(error: ValidationError) -> Iterator[str]:
    for detail in error.errors(include_input=False, include_url=False):
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == "extra_forbidden":
            yield f"unknown key {key!r}; known keys: {', '.join(ClusterEntry.model_fields)}"
        elif detail["type"] == "missing":
            yield f"{key}: expected a value, found none"
        else:
            text = detail["msg"].removeprefix("Value error, ")
            what = text if text.startswith(("expected", "watchers")) else f"expected another value: {text}"
            yield f"{key}: {what}" if key else what
