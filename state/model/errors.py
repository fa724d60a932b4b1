"""Every error txnwatch raises on purpose.

An error speaks to an operator: what was expected, what was found, where, and what to do next. The command
line prints it as one line; anything that is not a `TxnwatchError` is a bug and keeps its traceback.
"""

from __future__ import annotations

from enum import StrEnum


class TxnwatchError(Exception):
    """The root of all errors raised on purpose."""


class ConfigError(TxnwatchError):
    """A setting is unknown, malformed or contradicts another."""


class WireError(TxnwatchError):
    """Bytes that do not follow Kafka's formats.

    Attributes:
        field: the field that was being read.
        position: byte position of that field in the buffer that was handed in.
        found: what stood there.
    """

    def __init__(self, field: str, position: int, found: object, expected: str) -> None:
        self.field = field
        self.position = position
        self.found = found
        self.expected = expected
        super().__init__(f"{field} at byte {position}: expected {expected}, found {found}")


class BrokerError(TxnwatchError):
    """A broker could not be reached, or answered with an error for the whole request."""


class AuthorizationError(BrokerError):
    """A right is missing; the message names the resource and the operation."""


class OutputError(TxnwatchError):
    """The answer could not be written to standard output."""


class QueryError(TxnwatchError):
    """Spark did not start the query; it may the next time."""


class CheckpointError(TxnwatchError):
    """The checkpoint does not fit what is being run (another cluster, other settings)."""


class SinkError(TxnwatchError):
    """An event could not be delivered now; it is kept and tried again."""


class PassedOver(StrEnum):
    """Why a record of the events topic is passed over: a closed set, because it is a metric's label."""

    TOO_LARGE = "too_large"
    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    WRONG_KEY = "wrong_key"
    UNSIGNED = "unsigned"
    BAD_SIGNATURE = "bad_signature"


class BadEventError(SinkError):
    """A record that is no event of ours: it is passed over and counted.

    Attributes:
        why: its kind.
        key: the record's key where it has the form of an incident's id.
    """

    def __init__(self, why: PassedOver, message: str, key: str | None = None) -> None:
        self.why = why
        self.key = key
        super().__init__(message)


class RegistryAwayError(SinkError):
    """The schema registry does not answer now: nothing is known about the event."""
