"""Validated types of settings, for pydantic; the flags of the other commands use the same rules.

Law: a value that would fail later (a URL that redis-py rejects, an invalid topic name, a number that does not fit the
field of Kafka or Spark) is rejected here, with an error that has what is expected.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.ids import INTERNAL_TOPICS, TOPIC_NAME_RULE, is_topic_name
from txnwatch.state.model.quantities import DurationMs
from txnwatch.state.text.host_names import is_host_name
from txnwatch.state.text.redaction import REDIS_URL_RULE, REGISTRY_URL_RULE
from txnwatch.streaming.job.spark_conf import conf_of
from txnwatch.streaming.source.options import parse_bootstrap

MOST_STATE_PARTITIONS = 1_000  # 16 buckets of state have no use for more than 16
INT32, INT64 = (1 << 31) - 1, (1 << 63) - 1


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
RegistryUrl = Annotated[Text, AfterValidator(_registry)]
SparkConf = Annotated[dict[str, str], BeforeValidator(conf_of)]
