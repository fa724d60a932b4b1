"""What a flag takes: one function for each range of Kafka's, and for text that Kafka can hold.

Law: argparse calls these, so that what cannot be asked is a usage error before anything is asked. A number that does
not fit Kafka's field would end in the encoder, an empty name in a broker's word for it.
"""

from __future__ import annotations

import argparse

from txnwatch.setting_types import INT32, INT64, REDIS_URL_RULE, is_redis_url, without_password
from txnwatch.state.model.ids import TOPIC_NAME_RULE, is_topic_name


def int64(text: str) -> int:
    """Any int64; where what is below 0 has a meaning, as in Kafka's own tools."""
    return _number(text, -INT64 - 1, INT64)


def id64(text: str) -> int:
    """A producer id or an offset."""
    return _number(text, 0, INT64)


def id32(text: str) -> int:
    """A partition, a broker, or an amount that may be nothing."""
    return _number(text, 0, INT32)


def count(text: str) -> int:
    """How many, at least one."""
    return _number(text, 1, INT32)


def words(text: str) -> str:
    """Text that Kafka can hold: UTF-8, and not empty."""
    if not text:
        raise argparse.ArgumentTypeError("expected a value, found an empty one")
    try:
        text.encode()
    except UnicodeEncodeError as exc:  # the shell gave bytes that are no UTF-8
        raise argparse.ArgumentTypeError(f"expected UTF-8, found {text!r}") from exc
    return text


def topic_name(text: str) -> str:
    """A topic that there may be."""
    if not is_topic_name(text):
        raise argparse.ArgumentTypeError(f"expected {TOPIC_NAME_RULE}, found {text!r}")
    return text


def redis_url(text: str) -> str:
    """Where a Redis is."""
    if not is_redis_url(words(text)):
        raise argparse.ArgumentTypeError(f"expected {REDIS_URL_RULE}, found {without_password(text)!r}")
    return text


def _number(text: str, lowest: int, highest: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = None
    if value is None or not lowest <= value <= highest:
        raise argparse.ArgumentTypeError(f"expected a whole number from {lowest} to {highest}, found {text[:40]!r}")
    return value
