"""The typed settings of `txnwatch run`.

The model `RunSettings` is the only list of the settings: the flags, the keys of `txnwatch.toml`, the TXNWATCH_*
variables and deploy/reference-config.toml are derived from it.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from txnwatch.state.abort.abort_policy import AbortPolicy
from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.incident import KEPT_MS, RETENTION_MS, EventsFlags
from txnwatch.state.model.values import INT32, INT64, INTERNAL_TOPICS, TOPIC_NAME_RULE, DurationMs, is_topic_name
from txnwatch.state.model.verdicts import CENSUS_READ_MS, DEFAULT_SCAN_INTERVAL_MS, DetectionPolicy
from txnwatch.state.text import (
    CLUSTER_NAME,
    CLUSTER_NAME_RULE,
    REDIS_URL_RULE,
    REGISTRY_URL_RULE,
    is_host_name,
    without_credentials,
)
from txnwatch.streaming.client.notations import parse_bootstrap
from txnwatch.streaming.job.spark_conf import DEFAULT_MASTER, conf_of

# Validated types of settings, for pydantic; the flags of the other commands use the same rules.
#
# Law: a value that would fail later (a URL that redis-py rejects, an invalid topic name, a number that does not fit the
# field of Kafka or Spark) is rejected here, with an error that has what is expected.

MOST_STATE_PARTITIONS = 1_000


def _bootstrap(value: str) -> str:
    try:
        parse_bootstrap(value, "bootstrap_server")
    except ConfigError as exc:
        raise ValueError("expected host:port, several of them comma-separated") from exc
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004 - pydantic wants a ValueError
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as exc:
        raise ValueError(f"expected a regular expression ({exc})") from exc
    return value


def _prefixes(value: object) -> object:
    """Flags and variables are comma-separated text; a file may have a list, whose prefixes may contain commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) and part for part in value):
        raise ValueError("expected prefixes, comma-separated or as a list of texts that are not empty")
    return tuple(value)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise ValueError("expected UTF-8") from exc
    return value


def _not_empty(value: str) -> str:
    if not value.strip():
        raise ValueError("expected a text that is not empty")
    return value


def _topic(value: str) -> str:
    if not is_topic_name(value):
        raise ValueError(f"expected {TOPIC_NAME_RULE}")
    if value in INTERNAL_TOPICS:
        raise ValueError("expected a topic of its own, not one that Kafka uses itself")
    return value


def _redis(value: str) -> str:
    if not is_redis_url(value):
        raise ValueError(f"expected {REDIS_URL_RULE}")
    return value


def _cluster_name(value: str) -> str:
    if not CLUSTER_NAME.fullmatch(value):
        raise ValueError(f"expected {CLUSTER_NAME_RULE}")
    return value


def _registry(value: str) -> str:
    if not is_registry_url(value):
        raise ValueError(f"expected {REGISTRY_URL_RULE}")
    return value


def is_registry_url(urls: str) -> bool:
    """Whether a client of a schema registry can be made of the URL, or of several comma-separated ones."""
    try:
        return all(_is_http(urlsplit(url)) for url in re.split(r",(?=https?://)", urls))
    except ValueError:
        return False


def _is_http(url: SplitResult) -> bool:
    return url.scheme in {"http", "https"} and is_host_name(url.hostname or "") and url.port != 0


def is_redis_url(url: str) -> bool:
    """Whether a client of Redis can be made of the URL; makes no connection."""
    from txnwatch.sinks.delivery.redis_client import is_url  # noqa: PLC0415 - the import takes 0.25 s

    return is_url(url)


Positive = Annotated[int, BeforeValidator(_number), Field(gt=0, le=INT64)]
NotNegative = Annotated[int, BeforeValidator(_number), Field(ge=0, le=INT64)]
PositiveMs = Annotated[DurationMs, BeforeValidator(_number), Field(gt=0, le=INT64)]
NotNegativeMs = Annotated[DurationMs, BeforeValidator(_number), Field(ge=0, le=INT64)]
Port = Annotated[int, BeforeValidator(_number), Field(ge=0, le=65535)]
Text = Annotated[str, AfterValidator(_text)]
NotEmpty = Annotated[Text, AfterValidator(_not_empty)]
Regex = Annotated[Text, AfterValidator(_regex)]
Prefixes = Annotated[tuple[str, ...], BeforeValidator(_prefixes)]
Bootstrap = Annotated[Text, AfterValidator(_bootstrap)]
TopicName = Annotated[str, AfterValidator(_topic)]
RedisUrl = Annotated[str, AfterValidator(_redis)]
ClusterName = Annotated[str, AfterValidator(_cluster_name)]
RegistryUrl = Annotated[Text, AfterValidator(_registry)]
SparkConf = Annotated[dict[str, str], BeforeValidator(conf_of)]


# The settings.

EVENTS_TOPIC = "txnwatch.events"
CONFLUENT_AVRO = "confluent-avro"
_DEFAULTS = DetectionPolicy()
_ABORT = AbortPolicy()


class RunSettings(BaseModel):
    """Settings of `txnwatch run`; the description of a field is the help text of its flag."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bootstrap_server: Bootstrap = Field(description="host:port of some brokers, comma-separated")
    command_config: Path | None = Field(None, description="Java client properties file with security settings")
    cluster_name: ClusterName | None = Field(
        None,
        description="name of the cluster for people and alerts: on the page, in its title, in events, in alerts and in "
        "the metric txnwatch_build_info; not set: the cluster id",
    )
    topics: Regex = Field(".*", description="regular expression; topics whose whole name matches are scanned")
    census_topics: Regex = Field(
        ".*", description="regular expression; topics that match and are not scanned are watched by census only"
    )
    foreign_topics: Regex | None = Field(
        None,
        description="regular expression; topics that match are not watched, because another cluster's topics are "
        "copied into them byte for byte",
    )
    coordinator_view: Literal["auto", "log", "api", "none"] = Field(
        "auto",
        description="how the state of the transactions is known: log (read __transaction_state), api (ask the "
        "coordinators), none (only the partitions are read), or auto (the first of these that the rights allow)",
    )
    checkpoint: NotEmpty = Field("txnwatch-checkpoint", description="directory (or URI) that keeps position and state")
    checkpoint_is_shared: bool = Field(
        default=False,
        description="whether every host of the Spark cluster mounts the checkpoint directory (NFS); not needed for a "
        "URI or a local master",
    )
    events_topic: TopicName = Field(
        EVENTS_TOPIC, description="topic for incident events; if it does not exist, it is created as a compacted topic"
    )
    events_format: Literal["json", "avro", "confluent-avro"] | None = Field(
        None,
        description="encoding of events: json, avro (single-object encoding) or confluent-avro; if not set, "
        "confluent-avro with a schema registry, else json",
    )
    schema_registry_url: RegistryUrl | None = Field(
        None, description=f"{REGISTRY_URL_RULE} of a Confluent-compatible schema registry", repr=False
    )
    events_key_file: Path | None = Field(
        None, description="file with one key per line: the first key signs events, every key verifies events"
    )
    events_retention_ms: Annotated[PositiveMs, Field(ge=KEPT_MS)] = Field(
        RETENTION_MS, description="how long a resolved incident stays on the events topic; at least a day (86400000)"
    )
    events_heartbeat_ms: NotNegativeMs = Field(
        DurationMs(15_000),
        description="pause between two heartbeats on the events topic; 0: no heartbeats there, so two watchers do not "
        "hear each other and may both publish",
    )
    owners_file: Path | None = Field(
        None,
        description="file with the table of owners: whom to call for a transactional id, an application, a topic or a "
        "group; see docs/owners.md",
    )
    redis_url: RedisUrl | None = Field(
        None, description="redis://host:port/db that gets the current incidents", repr=False
    )
    push_file: Path | None = Field(
        None, description="TOML file with the web hooks and the Alertmanagers that get the incidents; see docs/push.md"
    )
    http_port: Port | None = Field(
        None,
        description="port for the page, its JSON, Prometheus (/metrics) and the probes (/-/healthy, /-/ready); 0: any "
        "free port; not set: none of them",
    )
    http_host: Text = Field(
        "127.0.0.1", description="address on which the HTTP port listens; 0.0.0.0: every address of this machine"
    )
    http_names: Prefixes = Field(
        (),
        description="comma-separated (or a list in the file); host names under which a browser reaches the page, "
        "beside IP addresses, localhost and the name of this machine",
    )
    http_web_config_file: Path | None = Field(
        None,
        description="file with TLS and users of the HTTP port, in the format of Prometheus's web configuration; see "
        "docs/hardening.md",
    )
    trigger_ms: PositiveMs = Field(
        DurationMs(500), description="minimum time from the start of one micro-batch to the start of the next one"
    )
    starting_offsets: Literal["latest", "earliest"] = Field(
        "latest", description="latest (the start of the oldest open transaction) or earliest; for the first start only"
    )
    census_interval_ms: PositiveMs = Field(
        DurationMs(60_000),
        description="pause between two rounds of the census of topics that are not scanned; between the rounds, a "
        "partition is described where its last stable offset stands",
    )
    heal_interval_ms: PositiveMs = Field(
        DurationMs(60_000),
        description="pause between two censuses of the scanned partitions, which check what the scan has found",
    )
    max_offsets_per_trigger: Positive = Field(
        20_000_000, description="maximum number of offsets that one micro-batch reads, all data partitions together"
    )
    max_bytes_per_second: NotNegative = Field(
        10_000_000,
        description="maximum number of bytes of data fetched per second, beside the coordinators' log; partitions that "
        "write more are not scanned, and looked at where their last stable offsets stand. 0: no limit",
    )
    first_topics: Regex | None = Field(
        None,
        description="regular expression; topics that match are scanned before all others, if the bytes per second "
        "do not suffice for all",
    )
    max_read_ms_per_trigger: PositiveMs = Field(
        DurationMs(1_000),
        description="approximate time for which one micro-batch reads data; the next one reads the rest",
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="form of the log on standard output: text, or json (one object per line)"
    )
    master: Text | None = Field(
        None,
        description=f"Spark master. If it is not set, the master of spark-submit is used, or {DEFAULT_MASTER} without "
        "spark-submit. If it is empty, the master of spark-defaults.conf is used",
    )
    state_partitions: Annotated[Positive, Field(le=MOST_STATE_PARTITIONS)] = Field(
        1,
        description="number of Spark partitions of the state, each evaluated by one task; if it changes, the state is "
        "rebuilt from the logs",
    )
    input_partitions: Annotated[Positive, Field(le=INT32)] | None = Field(
        None,
        description="number of Spark tasks that read a large micro-batch; one task reads a small one; if not set, the "
        "number of Spark's cores",
    )
    spark_conf: SparkConf = Field(
        {},
        description="Spark's own settings, KEY=VALUE; the flag can be repeated, and in the file it is a table; see "
        "docs/spark-cluster.md",
        repr=False,
    )
    late_buffer_ms: NotNegativeMs = Field(
        _DEFAULTS.late_buffer_ms,
        description="a transaction is late if it is older than the sum of its timeout, the coordinator's scan "
        "interval and this value",
    )
    coordinator_scan_interval_ms: NotNegativeMs | None = Field(
        _DEFAULTS.coordinator_scan_interval_ms,
        description="transaction.abort.timed.out.transaction.cleanup.interval.ms of the brokers; if not set, it is "
        f"read from them ({DEFAULT_SCAN_INTERVAL_MS} if they do not return it)",
    )
    stuck_prepare_ms: NotNegativeMs = Field(
        _DEFAULTS.stuck_prepare_ms, description="a transaction is stuck if it has been in Prepare* for longer than this"
    )
    long_running_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        _DEFAULTS.long_running_fraction,
        description="a transaction is long running if it is older than this fraction of its own timeout",
    )
    long_running_min_ms: NotNegativeMs = Field(
        _DEFAULTS.long_running_min_ms, description="minimum age of a long running transaction"
    )
    max_transaction_timeout_ms: NotNegativeMs | None = Field(
        None,
        description="transaction.max.timeout.ms of the brokers, only for coordinator_view none: data is late if it has "
        "been open for longer than the sum of this value, the coordinator's scan interval, late_buffer_ms and "
        f"{CENSUS_READ_MS} ms; if not set, it is read from them",
    )

    auto_abort: Literal["off", "dry-run", "on"] = Field(
        "off", description="abort hanging transactions: off, dry-run (only publish decisions) or on; see docs/abort.md"
    )
    abort_after_ms: NotNegativeMs = Field(
        _ABORT.after_ms, description="minimum time from the proof of a hang by this process to the abort"
    )
    abort_topics: Regex = Field(
        _ABORT.topics, description="regular expression; aborts are allowed on topics whose whole name matches"
    )
    abort_deny_topics: Regex | None = Field(
        None,
        description="regular expression; aborts are refused on topics that match, even if abort_topics allows them",
    )
    abort_transactional_id_prefixes: Prefixes = Field(
        (),
        description="comma-separated (or a list in the file); aborts are allowed for ids with one of these prefixes; "
        "empty for all ids",
    )
    abort_deny_transactional_id_prefixes: Prefixes = Field(
        (),
        description="comma-separated (or a list in the file); aborts are refused for ids with one of these prefixes",
    )
    abort_budget_per_hour: NotNegative = Field(10, description="maximum number of markers written in any hour")
    abort_breaker_incidents: NotNegative = Field(
        20,
        description="maximum number of transactions that hang at the same time; if more hang, nothing is aborted, "
        "because the whole cluster may have a fault",
    )
    abort_breaker_cooldown_ms: NotNegativeMs = Field(
        DurationMs(600_000), description="for how long nothing is aborted after an abort with an unexpected result"
    )

    @model_validator(mode="after")
    def _has_a_registry(self) -> RunSettings:
        if self.events_format == CONFLUENT_AVRO and self.schema_registry_url is None:
            raise ValueError("events_format confluent-avro: expected schema_registry_url as well, found none")
        return self

    @property
    def abort_policy(self) -> AbortPolicy:
        """The policy of the automatic abort: which incidents it may end, and when it stops."""
        return AbortPolicy(
            after_ms=self.abort_after_ms,
            topics=self.abort_topics,
            deny_topics=self.abort_deny_topics,
            id_prefixes=self.abort_transactional_id_prefixes,
            deny_id_prefixes=self.abort_deny_transactional_id_prefixes,
            budget_per_hour=self.abort_budget_per_hour,
            breaker_incidents=self.abort_breaker_incidents,
        )

    @property
    def policy(self) -> DetectionPolicy:
        """The thresholds of detection."""
        return DetectionPolicy(**{name: getattr(self, name) for name in THRESHOLDS})


_THRESHOLD_NAMES = {spec.name for spec in fields(DetectionPolicy)}
THRESHOLDS = tuple(name for name in RunSettings.model_fields if name in _THRESHOLD_NAMES)


def events_flags(
    topic: str, registry_url: str | None, *, events_format: str | None = None, key_file: Path | None = None
) -> EventsFlags:
    """The flags about the events topic for a suggested command; there is no password in the URL of the registry."""
    return EventsFlags(
        topic if topic != EVENTS_TOPIC else None,
        events_format,
        without_credentials(registry_url) if registry_url is not None else None,
        str(key_file.absolute()) if key_file is not None else None,
    )
