"""The file that names the targets: TOML with [[webhook]] and [[alertmanager]]. All of it is checked at the start.

Secrets are in other files. Those of `token_file` and `signing_key_file` are read again for each request, so a rotated
secret needs no restart; references (`${file:...}`, `${env:...}`) in `url`, `urls` and `headers` are read once.

Law: no error and no `repr` shows a URL's path, a header's value or a secret.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from txnwatch.http_client import Address, HttpClient, parse_address
from txnwatch.setting_sources import expanded, toml_of
from txnwatch.state.model.errors import ConfigError, SinkError
from txnwatch.state.model.incident import IncidentEvent
from txnwatch.state.model.values import DurationMs
from txnwatch.state.model.verdicts import Severity
from txnwatch.state.text import GIVEN_NAME

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_KEY_PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)  # of the Standard Webhooks specification
_OURS: Final = frozenset({"host", "content-length", "content-type", "connection", "transfer-encoding"})
_OUR_LABELS: Final = frozenset(
    {"alertname", "severity", "cluster", "reason", "topic", "partition", "id_prefix", "incident", "owner"}
)
_SEVERITIES: Final = tuple(Severity)  # the most urgent first
_EXPANDED: Final = ("url", "urls", "headers")


def _name(value: str) -> str:
    if not GIVEN_NAME.fullmatch(value):
        raise ValueError("expected a-z, 0-9 and -, at most 63 characters")
    return value


def _url(value: str) -> str:
    parse_address(value)
    return value


def _is_field(value: str) -> bool:
    return value.isprintable() and value.isascii() and value == value.strip()


def _headers(values: dict[str, str]) -> dict[str, str]:
    for name, value in values.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS or name.lower().startswith(("ce-", "webhook-")):
            raise ValueError("expected names of headers that txnwatch does not set itself")
        if not _is_field(value):
            raise ValueError("expected values of printable ASCII, without blanks at both ends")
    return values


def _labels(values: dict[str, str]) -> dict[str, str]:
    if not all(_LABEL.fullmatch(name) and value for name, value in values.items()):
        raise ValueError("expected names of labels, with values that are not empty")
    if own := _OUR_LABELS & values.keys():
        raise ValueError(f"expected labels that txnwatch does not set itself, found {', '.join(sorted(own))}")
    return values


Name = Annotated[str, AfterValidator(_name)]
Url = Annotated[str, AfterValidator(_url)]
Headers = Annotated[dict[str, str], AfterValidator(_headers)]
Labels = Annotated[dict[str, str], AfterValidator(_labels)]


LEAST_SEVERITY: Final = Severity.WARNING  # `info` is for nobody, unless it is asked for
MESSAGES_PER_MINUTE: Final = 10


def is_as_severe(event: IncidentEvent, least: Severity) -> bool:
    """Whether an incident is at least as urgent."""
    return _SEVERITIES.index(event.severity) <= _SEVERITIES.index(least)


class HttpTarget(BaseModel):
    """What all targets have.

    Attributes:
        token_file: its content is the bearer token in the header Authorization.
        allow_plain: whether http is allowed to another address than that of this machine.
        ca_file: authorities to trust instead of those of the system.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Name
    headers: Headers = Field({}, repr=False)
    token_file: Path | None = None
    allow_plain: bool = False
    ca_file: Path | None = None

    @property
    def addresses(self) -> Sequence[Address]:
        """Where its requests go."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _is_encrypted(self) -> HttpTarget:
        plain = [address.shown for address in self.addresses if address.is_plain]
        if plain and not self.allow_plain:
            raise ValueError(f"expected https for {plain[0]}, found http: `allow_plain = true` allows it")
        return self

    def fixed_headers(self) -> list[tuple[str, str]]:
        """The headers of every request, with the token as it is now.

        Raises:
            SinkError: the token cannot be read.
        """
        given = list(self.headers.items())
        return given if self.token_file is None else [*given, ("Authorization", f"Bearer {self._token()}")]

    def _token(self) -> str:
        assert self.token_file is not None
        token = _content("token_file", self.token_file)
        if not token or not _is_field(token) or " " in token:
            raise SinkError(f"token_file {self.token_file}: expected one token of printable ASCII")
        return token

    def check(self) -> None:
        """Reads every file.

        Raises:
            ConfigError, SinkError: one cannot be used.
        """
        self.fixed_headers()
        for address in self.addresses:
            HttpClient(address, self.ca_file).check()


class WebhookTarget(HttpTarget):
    """A receiver of CloudEvents over HTTP, or a chat.

    Attributes:
        mode: structured (all in the body), binary (attributes in headers), or chat (a text for people).
        signing_key_file: keys of the Standard Webhooks signature, one per line (`whsec_` and base64); each one signs.
        validate_first: whether to ask the receiver for its consent, as `origin`.
        messages_per_minute: above so many, a chat gets a digest.
        external_url: the page of txnwatch, for the links of a message.
        least_severity: a chat gets no incident that is less urgent.
    """

    url: Url = Field(repr=False)
    mode: Literal["structured", "binary", "chat"] = "structured"
    signing_key_file: Path | None = None
    origin: str | None = Field(None, pattern=r"^[A-Za-z0-9.-]{1,253}$")
    validate_first: bool = Field(default=False, alias="validate")
    messages_per_minute: int | None = Field(None, ge=1, le=600)
    external_url: Url | None = None
    least_severity: Severity | None = None

    @property
    def addresses(self) -> Sequence[Address]:
        """See HttpTarget."""
        return (parse_address(self.url),)

    @property
    def is_chat(self) -> bool:
        """Whether people read it."""
        return self.mode == "chat"

    @model_validator(mode="after")
    def _has_keys_of_its_mode(self) -> WebhookTarget:
        keys = {"messages_per_minute": self.messages_per_minute, "least_severity": self.least_severity}
        given = [key for key, value in keys.items() if value is not None]
        if given and not self.is_chat:
            raise ValueError(f'{given[0]}: expected mode = "chat": a program gets every event')
        return self

    def wants(self, event: IncidentEvent) -> bool:
        """Whether the incident is severe enough."""
        return not self.is_chat or is_as_severe(event, self.least_severity or LEAST_SEVERITY)

    @model_validator(mode="after")
    def _has_an_origin(self) -> WebhookTarget:
        if self.validate_first and self.origin is None:
            raise ValueError("validate: expected origin as well, the DNS name of this sender")
        return self

    def signing_keys(self) -> list[bytes]:
        """The keys as they are now; none if nothing is signed.

        Raises:
            SinkError: the file cannot be read, or a line is not a key.
        """
        if self.signing_key_file is None:
            return []
        lines = _content("signing_key_file", self.signing_key_file).splitlines()
        keys = [_key(line.strip()) for line in lines if line.strip() and not line.strip().startswith("#")]
        if not keys or None in keys:
            raise SinkError(
                f"signing_key_file {self.signing_key_file}: expected one key per line, {_KEY_PREFIX} and base64 of "
                f"{_KEY_BYTES.start} to {_KEY_BYTES.stop - 1} bytes"
            )
        return [key for key in keys if key is not None]

    def check(self) -> None:
        """See HttpTarget."""
        super().check()
        self.signing_keys()


class AlertmanagerTarget(HttpTarget):
    """All peers of one Alertmanager.

    Attributes:
        urls: the peers; each gets every alert.
        resend_ms: pause between two renewals of a firing alert.
        hold_ms: for how long a `hanging` or `stuck_prepare` alert fires without a renewal.
        labels: further labels of every alert.
        external_url: the page of txnwatch, for the link of an alert.
        least_severity: no incident that is less urgent becomes an alert.
    """

    urls: list[Url] = Field(repr=False, min_length=1)
    resend_ms: DurationMs = Field(DurationMs(60_000), ge=1_000, le=3_600_000)
    hold_ms: DurationMs = Field(DurationMs(3_600_000), ge=60_000, le=7 * 86_400_000)
    labels: Labels = {}
    external_url: Url | None = None
    least_severity: Severity = LEAST_SEVERITY

    def wants(self, event: IncidentEvent) -> bool:
        """Whether the incident is severe enough."""
        return is_as_severe(event, self.least_severity)

    @property
    def addresses(self) -> Sequence[Address]:
        """See HttpTarget."""
        return tuple(parse_address(url) for url in self.urls)

    @model_validator(mode="after")
    def _has_each_peer_once(self) -> AlertmanagerTarget:
        shown = [address.shown for address in self.addresses]
        if len(set(shown)) < len(shown):
            raise ValueError("urls: expected each peer once")
        if self.hold_ms < 4 * self.resend_ms:
            raise ValueError("hold_ms: expected at least four times resend_ms")
        return self


class PushFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    webhook: list[WebhookTarget] = []
    alertmanager: list[AlertmanagerTarget] = []

    @property
    def targets(self) -> Sequence[HttpTarget]:
        """All targets, in the order of the file."""
        return (*self.webhook, *self.alertmanager)


NO_TARGETS: Final = PushFile()


def read_push_file(path: Path | None) -> PushFile:
    """The targets, checked; none without a file.

    Raises:
        ConfigError: the file, or something that it refers to, is not valid. The message names the target and the key.
    """
    if path is None:
        return NO_TARGETS
    where = f"--push-file {path}"
    raw = toml_of(path, where)
    try:
        file = PushFile(**{kind: _expanded(targets, f"{where}: {kind}") for kind, targets in raw.items()})
    except ValidationError as exc:
        raise ConfigError(f"{where}: {'; '.join(_problems(exc))}") from None
    names = [target.name for target in file.targets]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{where}: expected a name of its own for each target, found {double} twice")
    for target in file.targets:
        try:
            target.check()
        except (SinkError, ConfigError) as exc:
            raise ConfigError(f"{where}: {target.name}: {exc}") from exc
    return file


def _expanded(targets: Any, where: str) -> Any:  # noqa: ANN401 - any value of TOML
    """The targets with the values of their references; anything else than tables is left to the model."""
    if not isinstance(targets, list) or not all(isinstance(target, dict) for target in targets):
        return targets
    return [
        {key: _value(value, f"{where}: {key}") if key in _EXPANDED else value for key, value in target.items()}
        for target in targets
    ]


def _value(value: Any, where: str) -> Any:  # noqa: ANN401 - any value of TOML
    if isinstance(value, str):
        return expanded(value, where)
    if isinstance(value, list):
        return [_value(item, where) for item in value]
    return {name: _value(item, where) for name, item in value.items()} if isinstance(value, Mapping) else value


def _problems(error: ValidationError) -> Iterator[str]:
    """One text for each problem, with the place and without the value, which may be a secret."""
    for problem in error.errors(include_input=False, include_url=False):
        place = ".".join(str(part) for part in problem["loc"])
        text = problem["msg"].removeprefix("Value error, ")
        yield f"{place}: {'unknown key' if problem['type'] == 'extra_forbidden' else text}"


def _content(key: str, path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise SinkError(f"{key} {path}: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise SinkError(f"{key} {path}: expected UTF-8") from None


def _key(line: str) -> bytes | None:
    try:
        key = base64.b64decode(line.removeprefix(_KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) in _KEY_BYTES else None
