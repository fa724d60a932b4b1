"""The small values of the model: names and numbers of Kafka, places, times, problems and gaps. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, EnumType, IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, NewType, TypeVar, overload

import msgspec

from txnwatch.state.model.errors import BrokerError, UnsupportedRequestError

_AnEnum = TypeVar("_AnEnum", bound=EnumType)


def plain_members(of: _AnEnum) -> _AnEnum:
    """An enum whose members are plain attributes of the class, as from Python 3.12 on.

    In Python 3.11 each access to a member by its name is a call, which costs ten times as much.
    """
    for name in of.__members__:
        type.__setattr__(of, name, of.__members__[name])
    return of


# Names of partitions, topics, producers, brokers and barriers, and the name of the coordinators' log topic; and the
# highest number that each of Kafka's fields for a whole number holds.

INT16, INT32, INT64 = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1

TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
INTERNAL_TOPICS = frozenset(
    {TRANSACTION_STATE_TOPIC, CONSUMER_OFFSETS_TOPIC, "__share_group_state", "__cluster_metadata"}
)
TOPIC_NAME_RULE = "a topic's name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and neither '.' nor '..'"
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PLACE = re.compile(r"(?P<partition>.+-\d+)@(?P<offset>\d{1,18})")

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
BrokerId = NewType("BrokerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)  # of a partition; it rises with every election
CoordinatorEpoch = NewType("CoordinatorEpoch", int)  # the leader epoch of a coordinator's partition of its log
BarrierNumber = NewType("BarrierNumber", int)  # also the number of the batch that begins with the barrier
NO_BARRIER = BarrierNumber(0)  # before the first barrier of a watch


class TopicPartition(NamedTuple):
    """A partition by topic name, as in the records of the coordinators' log."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TopicPartition:
        """Parses `topic-partition`; the topic name may contain dashes.

        Raises:
            ValueError: there is no dash, or the part after the last dash is not a number.
        """
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic:
            raise ValueError(f"expected TOPIC-PARTITION, found {text!r}")
        return cls(topic, int(partition))


class _LogPartitions(dict[int, TopicPartition]):
    """The partitions of the coordinators' log by number, each made once: a census needs one for each transaction."""

    def __missing__(self, number: int) -> TopicPartition:
        partition = self[number] = TopicPartition(TRANSACTION_STATE_TOPIC, number)
        return partition


log_numbered: Final = _LogPartitions().__getitem__  # the partition of that log with this number


def coordinator_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of `__transaction_state` that owns the id (`TransactionStateManager.partitionFor`).

    Java's String.hashCode over UTF-16 units, absolute value, with 0 for abs(MIN_VALUE).
    """
    hashed = 0
    encoded = transactional_id.encode("utf-16-be")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        hashed = (31 * hashed + (high << 8 | low)) & 0xFFFFFFFF
    signed = hashed - (1 << 32) if hashed >= 1 << 31 else hashed
    return (0 if signed == -(1 << 31) else abs(signed)) % partition_count


class PartitionOffset(NamedTuple):
    """A partition and an offset of it."""

    partition: TopicPartition
    offset: Offset

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"

    @classmethod
    def parse(cls, text: str) -> PartitionOffset:
        """Parses `topic-partition@offset`.

        Raises:
            ValueError: the text has another form.
        """
        place = _PLACE.fullmatch(text)
        if place is None:
            raise ValueError(f"expected TOPIC-PARTITION@OFFSET, found {text!r}")
        return cls(TopicPartition.parse(place["partition"]), Offset(int(place["offset"])))


class SpanStart(NamedTuple):
    """What identifies open data: its producer, and where it begins."""

    partition: TopicPartition
    producer_id: ProducerId
    start_offset: Offset

    def __str__(self) -> str:
        return f"{self.place} of producer id {self.producer_id}"

    @property
    def place(self) -> PartitionOffset:
        """Where the data begins."""
        return PartitionOffset(self.partition, self.start_offset)


def is_log(partition: TopicPartition) -> bool:
    """Whether it is a partition of the coordinators' log."""
    return partition.topic == TRANSACTION_STATE_TOPIC


def is_data(partition: TopicPartition) -> bool:
    """Whether it is a data partition: any that is not of the coordinators' log."""
    return partition.topic != TRANSACTION_STATE_TOPIC


def is_foreign(topic: str, foreign_topics: str | None) -> bool:
    """Whether the topic is a copy of another cluster's topic: absence from our coordinators proves nothing there."""
    return foreign_topics is not None and re.fullmatch(foreign_topics, topic) is not None


def is_topic_name(text: str) -> bool:
    """Whether Kafka accepts the text as a topic name, by the rule of `org.apache.kafka.common.internals.Topic`."""
    return _TOPIC_NAME.fullmatch(text) is not None and text not in {".", ".."}


LEASE_CLIENT: Final = "txnwatch-speaker"  # the client id of every instance in these groups


def lease_group(cluster_id: str, topics_digest: str) -> str:
    """The consumer group of the instances that share a lease: those of one cluster that watch the same topics."""
    return f"{lease_groups(cluster_id)}{topics_digest[:8]}"


def transactions_group(cluster_id: str) -> str:
    """The consumer group of the speakers of one cluster: the one that has its lease tells whole transactions."""
    return f"{lease_groups(cluster_id)}transactions"


def lease_groups(cluster_id: str) -> str:
    """What the names of all such groups of a cluster begin with."""
    return f"{LEASE_CLIENT}-{cluster_id}-"


# Offsets, times and durations: three types that mypy keeps apart.
#
# At run time each is a plain `int`. For mypy each has its arithmetic: the difference of two times is a duration, and a
# time plus a duration is a time, without a call or a cast. What has no meaning (the sum of two times) is an `int`, and
# no parameter of these types accepts an `int`. Ids, epochs and the numbers of barriers are above.

if TYPE_CHECKING:

    class Offset(int):
        """A position in the log of a partition."""

        def __add__(self, count: int, /) -> Offset: ...

    class DurationMs(int):
        """A length of time in milliseconds; negative if a clock is behind another."""

        @overload
        def __add__(self, other: DurationMs, /) -> DurationMs: ...
        @overload
        def __add__(self, other: TimestampMs, /) -> TimestampMs: ...
        @overload
        def __add__(self, other: int, /) -> int: ...
        def __add__(self, other: int, /) -> int: ...

        @overload
        def __sub__(self, other: DurationMs, /) -> DurationMs: ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int: ...

        def __mul__(self, times: int, /) -> DurationMs: ...
        def __neg__(self) -> DurationMs: ...

    class TimestampMs(int):
        """A moment of a wall clock, in milliseconds since 1970."""

        @overload
        def __add__(self, other: DurationMs, /) -> TimestampMs: ...
        @overload
        def __add__(self, other: int, /) -> int: ...
        def __add__(self, other: int, /) -> int: ...

        @overload
        def __sub__(self, other: TimestampMs, /) -> DurationMs: ...
        @overload
        def __sub__(self, other: DurationMs, /) -> TimestampMs: ...
        @overload
        def __sub__(self, other: int, /) -> int: ...
        def __sub__(self, other: int, /) -> int: ...

else:
    Offset = NewType("Offset", int)
    DurationMs = NewType("DurationMs", int)
    TimestampMs = NewType("TimestampMs", int)

NO_TIME: Final = DurationMs(0)
DAY_MS: Final = DurationMs(86_400_000)
WEEK_MS: Final = DurationMs(7 * DAY_MS)
LONG_AGO: Final = TimestampMs(0)
AT_ONCE: Final = LONG_AGO  # for a due time: it has passed already
NEVER_MS: Final = TimestampMs(INT64)  # for a due time: nothing is awaited
LAST_TIME_MS: Final = TimestampMs(253_402_300_799_999)  # the end of the year 9999: the last that has a date
FIRST_OFFSET: Final = Offset(0)  # where each log has begun


def elapsed(since_ms: TimestampMs, now_ms: TimestampMs) -> DurationMs:
    """How long ago a moment was; zero if it is ahead of the clock."""
    return max(NO_TIME, now_ms - since_ms)


def rfc3339(time_ms: TimestampMs) -> str:
    """A time as text in UTC, as RFC 3339 has it, with milliseconds."""
    seconds, millis = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"


# The base classes of the model's values: immutable, and encoded by their annotations.
#
# `serializer.py` encodes a record as the list of its values, in the order of its fields. So a field is declared once,
# in its class, and no other code names it. Named tuples and enums need no base class: their encoding is the same.


class ModelValue(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An immutable value of the model."""


class Variant(ModelValue, frozen=True, tag=True):
    """A record that is one of several in a union; its encoding begins with the name of its class."""


# Why something could not be read or written: a text for people, and Kafka's error code for a caller that decides.
#
# Law: a caller compares the code, and never searches the text.


class ErrorCode(IntEnum):
    """The codes of Kafka's class `Errors` that a caller of ours compares; a broker can return others."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_COORDINATOR = 16
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    UNSTABLE_OFFSET_COMMIT = 88
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


# A gap: a range of a log that was listed and not read, by what closes it.


class Remedy(StrEnum):
    """What closes a gap that a read from an offset cannot close."""

    NEW_READING = "new_reading"  # a partition of the coordinators' log is read again from its beginning
    CENSUS = "census"  # the leader of a data partition describes its producers


# The lowest unread offset, if a read from there closes the gap.
Gap = Offset | Remedy


# How a watch learns which transactions the coordinators have: from their log, from their answers, or not at all.
#
# docs/decisions/0027-coordinator-view.md has what each of them proves.


@plain_members
class CoordinatorAccess(StrEnum):
    """The source of the coordinators' view; the value is used in settings, events and metrics."""

    LOG = "log"
    API = "api"
    NONE = "none"


class TopicWatch(Enum):
    """How a watcher watches the partitions of a topic."""

    BY_SCAN = "it reads them"
    BY_CENSUS = "it asks their leaders now and then; a watcher with other settings may read them"
    NONE = "it does not watch them"
