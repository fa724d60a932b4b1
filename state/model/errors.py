"""All errors that txnwatch raises on purpose.

An error message is for an operator: what was expected, what was found, where, and what to do next. The command line
prints it as one line. An exception that is not a `TxnwatchError` is a bug and keeps its traceback.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final


class TxnwatchError(Exception):
    """The base class of all errors raised on purpose."""


class ConfigError(TxnwatchError):
    """A setting is unknown, malformed or contradicts another."""


class MissingMechanismError(ConfigError):
    """The installed confluent-kafka does not support the login of the connection.

    Attributes:
        fix: what to do.
    """

    def __init__(self, message: str, fix: str) -> None:
        self.fix = fix
        super().__init__(message)


class WireError(TxnwatchError):
    """Bytes that do not follow Kafka's formats.

    Attributes:
        field: the field that was read.
        position: byte position of that field in the given buffer.
        found: the value at that position.
        expected: what a valid value is.
    """

    def __init__(self, field: str, position: int, found: object, expected: str) -> None:
        self.field = field
        self.position = position
        self.found = found
        self.expected = expected
        super().__init__(f"{field} at byte {position}: expected {expected}, found {found}")


class LaterVersionError(WireError):
    """Bytes of a version that this txnwatch does not know, and that a newer broker can have written."""


class InputError(TxnwatchError):
    """A file or a text that the user gave cannot be decoded; the message has the place and what to do next."""


class BrokerError(TxnwatchError):
    """A broker could not be reached, or answered with an error for the whole request."""


class UnsupportedRequestError(BrokerError):
    """A broker does not support a request, because it is too old or not Apache Kafka."""


class AuthorizationError(BrokerError):
    """A permission is missing; the message names the resource and the operation."""


class OutputError(TxnwatchError):
    """The result could not be written to standard output."""


class QueryError(TxnwatchError):
    """Spark did not start the query; a retry may succeed."""


class SparkError(TxnwatchError):
    """Spark cannot run the query, and a retry does not help; the message has the root cause and what to do."""


class CheckpointError(TxnwatchError):
    """The checkpoint does not match the current run (another cluster, other settings)."""


class LeaseNotRenewedError(TxnwatchError):
    """The lease of the checkpoint could not be renewed for some time; a later attempt may succeed."""


class BadFactsError(TxnwatchError):
    """The answer of a watcher about its cluster is not what it must be; nothing of it is used."""


class SinkError(TxnwatchError):
    """An event could not be delivered now; it is kept and retried."""


class SkipReason(StrEnum):
    """Why a record of the events topic is skipped; a closed set, because it is a metric label."""

    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    WRONG_KEY = "wrong_key"
    UNSIGNED = "unsigned"
    BAD_SIGNATURE = "bad_signature"


class BadEventError(SinkError):
    """A record that is not one of our events; it is skipped and counted.

    Attributes:
        why: the reason.
        key: the key of the record if it has the form of an incident id.
    """

    def __init__(self, why: SkipReason, message: str, key: str | None = None) -> None:
        self.why = why
        self.key = key
        super().__init__(message)


class RegistryUnavailableError(SinkError):
    """The schema registry does not answer now, so nothing is known about the event."""


# What to install for a part of txnwatch that needs a further package: the extras of pyproject.toml.
#
# txnwatch is on no package index. So a message names the packages, not `txnwatch[jks]`: that is found only in an
# environment that has txnwatch already, and a stranger who takes the name on an index could serve it.

EXTRAS: Final = MappingProxyType(
    {
        "aws": ("aws-msk-iam-sasl-signer-python>=1.0.2,<2",),
        "jks": ("purejks>=1,<2",),
        "kerberos": ("gssapi>=1.8,<2",),
        "registry": ("confluent-kafka[schemaregistry]>=2.16,<3",),
        "spark": ("pyspark>=4.3.0,<4.4", "pandas>=2.2,<3", "pyarrow>=18,<27", "protobuf>=5,<8"),
    }
)


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra."""
    return "pip install " + " ".join(f"'{package}'" for package in EXTRAS[extra])
