"""The types of flags: one function for each range of numbers in Kafka, and for text that Kafka accepts.

Law: argparse calls these functions, so that an invalid value is a usage error before any request. Otherwise a number
that does not fit Kafka's field fails in the encoder, and an empty name fails with an error of a broker.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from txnwatch.config_providers import expanded, has_reference
from txnwatch.setting_types import INT32, INT64, is_redis_url, is_registry_url
from txnwatch.state.model.ids import TOPIC_NAME_RULE, is_topic_name
from txnwatch.state.text.redaction import REDIS_URL_RULE, REGISTRY_URL_RULE, shown_url


def int64(text: str) -> int:
    """Any int64, for flags where a negative number has a meaning, as in Kafka's own tools."""
    return _number(text, -INT64 - 1, INT64)


def id64(text: str) -> int:
    """A producer id or an offset."""
    return _number(text, 0, INT64)


def id32(text: str) -> int:
    """A partition, a broker, or an amount that may be 0."""
    return _number(text, 0, INT32)


def count(text: str) -> int:
    """A count, at least 1."""
    return _number(text, 1, INT32)


def kafka_text(text: str) -> str:
    """Text that Kafka accepts: UTF-8, and not empty."""
    if not text:
        raise argparse.ArgumentTypeError("expected a value, found an empty one")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # the shell passed bytes that are not UTF-8
        raise argparse.ArgumentTypeError(f"expected UTF-8, found {text!r}") from exc
    return text


def topic_name(text: str) -> str:
    """A valid name of a topic."""
    if not is_topic_name(text):
        raise argparse.ArgumentTypeError(f"expected {TOPIC_NAME_RULE}, found {text!r}")
    return text


def topic_pattern(text: str) -> str:
    """A regular expression for whole names of topics."""
    try:
        re.compile(kafka_text(text))
    except re.error as exc:
        raise argparse.ArgumentTypeError(f"expected a regular expression, found {text!r} ({exc})") from exc
    return text


def redis_url(text: str) -> str:
    """The URL of a Redis, as it is given; parts of it may be references to a variable or a file."""
    return _url(text, "--redis-url", REDIS_URL_RULE, is_redis_url)


def registry_url(text: str) -> str:
    """The URL of a schema registry, as it is given; parts of it may be references to a variable or a file."""
    return _url(text, "--schema-registry-url", REGISTRY_URL_RULE, is_registry_url)


def _url(text: str, flag: str, rule: str, is_valid: Callable[[str], bool]) -> str:
    if not is_valid(expanded(kafka_text(text), flag)):
        found = text if has_reference(text) else shown_url(text)
        raise argparse.ArgumentTypeError(f"expected {rule}, found {found!r}")
    return text


def _number(text: str, lowest: int, highest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not lowest <= value <= highest:
        raise argparse.ArgumentTypeError(f"expected a whole number from {lowest} to {highest}, found {text[:40]!r}")
    return value
