"""The options of `format("kafka-transactions")`, with the names of Spark's Kafka source where it has the same option.

Spark passes options as text with case-insensitive names. An unknown option is an error that names it; otherwise a
misspelt option would silently keep its default.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from txnwatch.state.model.errors import ConfigError
from txnwatch.state.model.values import TRANSACTION_STATE_TOPIC, CoordinatorAccess, Offset, TopicPartition, TopicWatch
from txnwatch.streaming.client.metadata import TopicInfo
from txnwatch.streaming.client.notations import Endpoint, parse_bootstrap
from txnwatch.streaming.client.property_names import check_names
from txnwatch.streaming.client.security import Security, security_of

_T = TypeVar("_T")
LATEST, EARLIEST = "latest", "earliest"
Offsets = str | dict[TopicPartition, Offset]
_LATEST: Offsets = LATEST
_KAFKA_PREFIX = "kafka."
DEFAULT_BUCKETS = 16  # or one for each partition of the state, if it has more
KNOWN = {
    "kafka.bootstrap.servers": "host:port,... of some brokers",
    "subscribe": "topic names, comma-separated",
    "subscribepattern": "regular expression for whole topic names",
    "startingoffsets": 'latest (where the oldest open transaction begins), earliest, or {"topic": {"0": offset}}',
    "endingoffsets": 'batch only: latest, or {"topic": {"0": offset}}',
    "maxoffsetspertrigger": "maximum number of offsets in one batch, of all data partitions together",
    "maxbytespersecond": "bytes of data partitions to read in a second, and not to scan more; only for `txnwatch run`",
    "maxreadmspertrigger": "approximate time that one batch reads data partitions; only for `txnwatch run`",
    "buckets": "number of state keys that producer ids are hashed to; at least one for each partition of the state",
    "statepartitions": "number of partitions of the state, for the keys of packed facts; only for `txnwatch run`",
    "firstpattern": "regular expression; topics that match are scanned before the others within maxBytesPerSecond",
    "inputpartitions": "number of Spark tasks for a large batch",
    "metadatarefreshms": "pause between two searches for new topics and partitions",
    "listtimeoutms": "how long one round of listing waits for a broker",
    "readpatiencems": "how long reading waits without progress before it reports a gap",
    "censuspattern": "regular expression; topics that match and are not scanned are watched by census only",
    "foreignpattern": "regular expression; topics that match are not read: they are copies of another cluster's topics",
    "censusintervalms": "pause between two rounds of the census of topics that are not scanned",
    "healintervalms": "pause between two censuses of the scanned partitions, which check what the scan has found",
    "coordinatorview": "log (read `__transaction_state`), or api or none (do not read it)",
    "driverfile": "file in which the driver writes what it wants of the source; only for `txnwatch run`",
    "packed": "true for one blob of facts per task and bucket; only for `txnwatch run`",
    "episodes": "batch only: true for a row per episode (one finished transaction on one partition) instead of facts",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Validated options. They are picklable, because each task gets a copy."""

    bootstrap: tuple[Endpoint, ...]
    security: Security
    rack: str | None
    topics: tuple[str, ...]
    pattern: str | None
    starting_offsets: Offsets
    ending_offsets: Offsets
    max_offsets_per_trigger: int | None
    max_bytes_per_second: int | None
    first_pattern: str | None
    max_read_s: float | None
    buckets: int
    state_partitions: int
    input_partitions: int
    metadata_refresh_s: float
    list_timeout_s: float
    read_patience_s: float
    census_pattern: str | None
    foreign_pattern: str | None
    census_interval_s: float
    heal_interval_s: float
    coordinator_access: CoordinatorAccess
    driver_file: str | None
    packed: bool
    episodes: bool

    def watches(self, topic: TopicInfo) -> bool:
        """Whether the topic's partitions are data partitions to be scanned."""
        return self._is_ours(topic) and (topic.name in self.topics or _matches(self.pattern, topic.name))

    def counts(self, topic: TopicInfo) -> bool:
        """Whether the topic's partitions are watched by censuses only."""
        return self._is_ours(topic) and not self.watches(topic) and _matches(self.census_pattern, topic.name)

    def is_first(self, name: str) -> bool:
        """Whether a topic is scanned before the others, if not all can be."""
        return _matches(self.first_pattern, name)

    def watch_of(self, name: str) -> TopicWatch:
        """How a topic of this name would be watched if this user could see it."""
        shown = TopicInfo(name, "", {})
        if self.watches(shown):
            return TopicWatch.BY_SCAN
        return TopicWatch.BY_CENSUS if self.counts(shown) else TopicWatch.NONE

    def wants(self, name: str) -> bool:
        """Whether a topic of this name would be watched if this user could see it."""
        return self.watch_of(name) is not TopicWatch.NONE

    @property
    def state_keys(self) -> tuple[int, ...]:
        """The keys of the buckets in Spark's state."""
        return state_keys(self.buckets, self.state_partitions)

    @property
    def topics_digest(self) -> str:
        """Of the settings that choose the topics: sources with the same one watch the same partitions of a cluster."""
        chosen = (sorted(self.topics), self.pattern, self.census_pattern, self.foreign_pattern)
        return hashlib.sha256(repr(chosen).encode()).hexdigest()[:16]

    def _is_ours(self, topic: TopicInfo) -> bool:
        is_foreign = topic.name not in self.topics and _matches(self.foreign_pattern, topic.name)
        return topic.name != TRANSACTION_STATE_TOPIC and topic.error is None and not is_foreign


@lru_cache(maxsize=1 << 16)  # each listing asks again for each topic
def _matches(pattern: str | None, name: str) -> bool:
    return pattern is not None and re.fullmatch(pattern, name) is not None


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of one source.

    Raises:
        ConfigError: an option is unknown, invalid or missing.
    """
    raw = {name.lower(): value for name, value in options.items()}
    for name in raw:
        if name not in KNOWN and not name.startswith(_KAFKA_PREFIX):
            raise ConfigError(f"option {name!r} is not known to kafka-transactions; known: {', '.join(sorted(KNOWN))}")
    properties = {name.removeprefix(_KAFKA_PREFIX): value for name, value in raw.items() if name.startswith("kafka.")}
    check_names(properties, "options with the prefix kafka.")
    state_partitions = _value(raw, "statepartitions", _positive, 1)
    topics = tuple(name.strip() for name in raw.get("subscribe", "").split(",") if name.strip())
    pattern = raw.get("subscribepattern")
    if bool(topics) == (pattern is not None):
        raise ConfigError("expected one of subscribe and subscribePattern, found " + ("both" if topics else "neither"))
    return SourceOptions(
        bootstrap=parse_bootstrap(properties.get("bootstrap.servers", ""), "kafka.bootstrap.servers"),
        security=security_of(properties),
        rack=properties.get("client.rack") or None,
        topics=topics,
        pattern=_value(raw, "subscribepattern", _regex, None),
        starting_offsets=_value(raw, "startingoffsets", _offsets, _LATEST),
        ending_offsets=_value(raw, "endingoffsets", _ends, _LATEST),
        max_offsets_per_trigger=_value(raw, "maxoffsetspertrigger", _positive, None),
        max_bytes_per_second=_value(raw, "maxbytespersecond", _positive, None),
        first_pattern=_value(raw, "firstpattern", _regex, None),
        max_read_s=_value(raw, "maxreadmspertrigger", _seconds, None),
        buckets=_value(raw, "buckets", _positive, max(DEFAULT_BUCKETS, state_partitions)),
        state_partitions=state_partitions,
        input_partitions=_value(raw, "inputpartitions", _positive, 2),
        metadata_refresh_s=_value(raw, "metadatarefreshms", _positive, 5_000) / 1000,
        list_timeout_s=_value(raw, "listtimeoutms", _positive, 1_500) / 1000,
        read_patience_s=_value(raw, "readpatiencems", _positive, 5_000) / 1000,
        census_pattern=_value(raw, "censuspattern", _regex, None),
        foreign_pattern=_value(raw, "foreignpattern", _regex, None),
        census_interval_s=_value(raw, "censusintervalms", _positive, 5_000) / 1000,
        heal_interval_s=_value(raw, "healintervalms", _positive, 60_000) / 1000,
        coordinator_access=_value(raw, "coordinatorview", CoordinatorAccess, CoordinatorAccess.LOG),
        driver_file=raw.get("driverfile"),
        packed=_value(raw, "packed", _boolean, False),
        episodes=_value(raw, "episodes", _boolean, False),
    )


def _value(raw: Mapping[str, str], name: str, parse: Callable[[str], _T], default: _T) -> _T:
    if name not in raw:
        return default
    try:
        return parse(raw[name])
    except (ValueError, TypeError, AttributeError, re.error) as exc:
        raise ConfigError(f"option {name}: expected {KNOWN[name]}, found {raw[name]!r} ({exc})") from exc


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError("not a positive number")
    return value


def _seconds(text: str) -> float:
    return _positive(text) / 1000


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("neither true nor false")
    return text.lower() == "true"


def _regex(text: str) -> str:
    re.compile(text)
    return text


def _offsets(text: str) -> Offsets:
    if text.lower() in {LATEST, EARLIEST}:
        return text.lower()
    offsets = {
        TopicPartition(topic, int(partition)): Offset(int(offset))
        for topic, partitions in json.loads(text).items()
        for partition, offset in partitions.items()
    }
    if any(offset < 0 for offset in offsets.values()):
        raise ValueError("an offset below 0; Spark's -1 and -2 are not supported")
    return offsets


def _ends(text: str) -> Offsets:
    if text.lower() == EARLIEST:
        raise ValueError("nothing would be read")
    return _offsets(text)


# The keys of the buckets in Spark's state.
#
# Spark puts a key into the partition that its hash has, and evaluates the keys of a partition one after the other. Of
# 16 consecutive numbers the hashes leave 6 of 16 partitions empty, and one gets 2. So the keys are chosen by their
# hashes: every partition gets as many buckets, or one more.

_SEED, _BITS = 42, (1 << 32) - 1


@lru_cache(maxsize=4)  # each task asks
def state_keys(buckets: int, partitions: int) -> tuple[int, ...]:
    """The keys of the buckets, for a number of partitions of the state; the first one is 0."""
    first = spark_hash(0)  # its partition has one more, if some have
    free = Counter((first + number) % partitions for number in range(buckets))
    keys: list[int] = []
    for key in itertools.count():
        partition = spark_hash(key) % partitions
        if free[partition]:
            free[partition] -= 1
            keys.append(key)
            if len(keys) == buckets:
                break
    return tuple(keys)


def spark_hash(key: int) -> int:
    """The hash by which Spark distributes a 32-bit integer that is not negative: Murmur3, as a signed number."""
    mixed = _rotated(key * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS
    hashed = (_rotated(_SEED ^ mixed, 13) * 5 + 0xE6546B64 & _BITS) ^ 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _BITS
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _BITS
    hashed ^= hashed >> 16
    return hashed - (1 << 32) if hashed >> 31 else hashed


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & _BITS
