"""Why something could not be read or written: a text for people, and Kafka's error code for a caller that decides.

Law: a caller compares the code, and never searches the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from txnwatch.state.model.errors import BrokerError, UnsupportedRequestError


class ErrorCode(IntEnum):
    """The codes of Kafka's class `Errors` that a caller of ours compares; a broker can return others."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    TRANSACTIONAL_ID_NOT_FOUND = 105


_DENIED = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem; `str` is the text for people.

    Attributes:
        code: the error code that a broker returned; None if no broker returned one, for example after a timeout.
    """

    text: str
    code: int | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def is_denied(self) -> bool:
        """Whether a right of this user is missing."""
        return self.code in _DENIED

    @property
    def is_unsupported(self) -> bool:
        """Whether the broker does not know the request."""
        return self.code == ErrorCode.UNSUPPORTED_VERSION

    @classmethod
    def from_error(cls, error: BrokerError) -> Problem:
        """The problem that an error of a whole request is for each item of the request."""
        return cls(str(error), ErrorCode.UNSUPPORTED_VERSION if isinstance(error, UnsupportedRequestError) else None)

    def of(self, subject: object) -> Problem:
        """The same problem, with its subject in front of the text."""
        return Problem(f"{subject}: {self.text}", self.code)

    def with_hint(self, hint: str) -> Problem:
        """The same problem, with a consequence or an advice behind the text."""
        return Problem(f"{self.text}: {hint}", self.code)

    def with_right(self, right: str) -> Problem:
        """The same problem; if a right of this user is missing, the text names it (operation and resource)."""
        return self.with_hint(f"the right {right} is missing") if self.is_denied else self
