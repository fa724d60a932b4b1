"""Spark's own settings, as an operator gives them: which of them txnwatch does not accept. Pure.

Law: a setting that txnwatch needs is never replaced silently. It is refused, with what to use instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from txnwatch.state.text.redaction import is_secret_name

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_OF_HADOOP: Final = "spark.hadoop."
_NEEDED: Final = {
    "spark.master": "the setting master",
    "spark.sql.shuffle.partitions": "the setting state_partitions",
    "spark.submit.deployMode": "spark-submit --deploy-mode",
    "spark.sql.streaming.stateStore.providerClass": "no other provider: the operator needs RocksDB",
    "spark.sql.session.timeZone": "no other time zone: txnwatch needs UTC",
}


def conf_of(value: object) -> dict[str, str]:
    """The settings by key: from KEY=VALUE texts, from one text with several of them, or from a table of TOML.

    Raises:
        ValueError: it is none of these, or a key is not Spark's, or txnwatch sets it itself.
    """
    if isinstance(value, Mapping):
        found = dict(_flat("", value))
    else:
        texts = shlex.split(value) if isinstance(value, str) else value
        if not isinstance(texts, list | tuple):
            raise ValueError("expected a table, or KEY=VALUE texts")  # noqa: TRY004 - pydantic wants a ValueError
        found = dict(_pair(text) for text in texts)
    for key in found:
        if not key.startswith("spark.") or key != key.strip():
            raise ValueError(f"expected keys that begin with `spark.`, found {key}")
        if key in _NEEDED:
            raise ValueError(f"{key}: expected {_NEEDED[key]}")
    return found


def with_conf(own: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The settings of txnwatch with those of an operator; Java options are appended, all others replace a default."""
    options = " ".join(filter(None, (own.get(JAVA_OPTIONS), given.get(JAVA_OPTIONS))))
    return {**own, **given, **({JAVA_OPTIONS: options} if options else {})}


def arguments_of_the_jvm(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that the JVM may get as arguments, which every user of the machine can read.

    The others are set after its start. A setting of a file system may be a secret whatever its name is: the names of
    Azure's keys and tokens, for example, end with the account. Spark's own settings are secrets only by their names.
    """
    return {key: text for key, text in settings.items() if not key.startswith(_OF_HADOOP) and not is_secret_name(key)}


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """TOML reads an unquoted `spark.executor.memory` as three tables."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}{name}.", value)
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise ValueError(f"{prefix}{name}: expected a text, a number, true or false")  # noqa: TRY004 - as above


def _pair(text: object) -> tuple[str, str]:
    key, sign, value = str(text).partition("=")
    if not sign or not key:
        raise ValueError("expected KEY=VALUE")
    return key, value
